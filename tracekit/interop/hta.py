"""Convert traces to HolisticTraceAnalysis (HTA), so that its analyses run without its loader."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.interop.packages import import_package
from tracekit.interop.pandas import to_pandas_frame

if TYPE_CHECKING:
    from tracekit.trace import RankTrace, Trace

_DRIVER_CALL_PATTERN = re.compile("^cu[A-Z]")
_CATEGORY_BY_KIND = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_MISSING_NUMBERS = {
    "stream": -1,
    "correlation": -1,
    "bytes": -1,
    "wait_on_stream": -1,
    "wait_on_cuda_event_record_corr_id": -1,
    "external_id": -1,
}
"""Integer columns, and the value that HTA writes if a number is missing."""

_INPUT_COLUMNS = {"input_dims": "input_dims", "input_types": "input_type", "input_strides": "input_strides"}
_NOT_RECORDED = "-1"


def to_hta(trace: "Trace", *, include_last_profiler_step: bool = False) -> Any:
    """Return a ``hta.trace_analysis.TraceAnalysis`` of the trace.

    Args:
        trace: The trace.
        include_last_profiler_step: HTA's argument of that name: of several steps, HTA drops the last one by default.

    Raises:
        TracekitError: HolisticTraceAnalysis isn't installed.
    """
    analysis = import_package("hta.trace_analysis", "HolisticTraceAnalysis", "hta").TraceAnalysis
    result = analysis.__new__(analysis)
    result.t = _build_hta_trace(trace, include_last_profiler_step)
    return result


def _build_hta_trace(trace: "Trace", include_last_profiler_step: bool) -> Any:
    hta = import_package("hta.common.trace", "HolisticTraceAnalysis", "hta")
    result = hta.Trace(trace_files={})
    events = {rank.rank or 0: _build_event_table(rank) for rank in trace.ranks}
    for table in events.values():
        result.symbol_table.add_symbols(pl.concat([table["cat"], table["name"]]).unique(maintain_order=True).to_list())
    for rank in trace.ranks:
        number = rank.rank or 0
        result.trace_files[number] = rank.source
        result.meta_data[number] = dict(rank.metadata)
        result.traces[number] = _link_events(hta, events[number], result.symbol_table)
    result.align_and_filter_trace(include_last_profiler_step)
    for number, table in result.traces.items():
        result.traces[number] = table.set_index("index", drop=False).rename_axis(None)
    result.is_parsed = True
    return result


def _link_events(hta: Any, events: pl.DataFrame, symbols: Any) -> Any:
    """Return the events as HTA's loader does: names as numbers, calls linked to activities, iterations numbered."""
    numbers = symbols.get_sym_id_map()
    table = to_pandas_frame(
        events.with_columns(
            pl.col("cat", "name").replace_strict(numbers, return_dtype=pl.Int64),
            end=pl.col("ts") + pl.col("dur"),
        )
    )
    for column in _INPUT_COLUMNS.values():
        decoded = {text: json.loads(text) for text in events[column].unique() if text != _NOT_RECORDED}
        table[column] = [decoded.get(text, text) for text in table[column]]
    table = table.set_index("index", drop=False).rename_axis(None)
    table = hta.transform_correlation_to_index(table, symbols)
    hta.add_iteration(table, symbols)
    return table


def _build_event_table(rank: "RankTrace") -> pl.DataFrame:
    """Return every event in one table, with HTA's columns and whole microseconds."""
    start = pl.col("ts_ns").floordiv(1000) + (pl.col("ts_ns") % 1000 > 0)
    stop = (pl.col("ts_ns") + pl.col("dur_ns")).floordiv(1000)
    events = pl.concat(_iter_tables(rank), how="diagonal").sort("ts_ns", "dur_ns", descending=[False, True])
    numbers = [_fill_missing(events, name, missing) for name, missing in _MISSING_NUMBERS.items()]
    texts = [pl.col(ours).fill_null(_NOT_RECORDED).alias(theirs) for ours, theirs in _INPUT_COLUMNS.items()]
    bandwidth = (pl.col("bytes") / pl.col("dur_ns")).fill_null(0.0).replace(float("inf"), 0.0)
    # In HTA the event number 0 means "no event".
    return events.with_row_index("index", offset=1).select(
        pl.col("index").cast(pl.Int64), "cat", "name", "pid", "tid", start.alias("ts"), (stop - start).alias("dur"),
        *numbers, *texts, memory_bw_gbps=bandwidth,
    )  # fmt: skip


def _fill_missing(events: pl.DataFrame, name: str, missing: int) -> pl.Expr:
    return (pl.col(name) if name in events.columns else pl.lit(None, pl.Int64)).fill_null(missing).alias(name)


def _iter_tables(rank: "RankTrace") -> Iterator[pl.DataFrame]:
    """Yield the rank's tables with a category; as in the file, pid and tid of GPU events are device and stream."""
    devices = rank.activities["device"]
    device = devices.mode().min() if devices.count() else 0
    yield rank.ops.with_columns(cat=pl.lit("cpu_op"))
    yield rank.annotations.with_columns(cat=pl.lit("user_annotation"))
    is_driver = pl.col("name").str.contains(_DRIVER_CALL_PATTERN.pattern)
    yield rank.calls.with_columns(cat=pl.when(is_driver).then(pl.lit("cuda_driver")).otherwise(pl.lit("cuda_runtime")))
    yield rank.activities.with_columns(cat=pl.col("kind").replace_strict(_CATEGORY_BY_KIND), pid="device", tid="stream")
    yield rank.syncs.with_columns(cat=pl.lit("cuda_sync"), pid=pl.lit(device, pl.Int64), tid="stream").rename(
        {"wait_on_record": "wait_on_cuda_event_record_corr_id"}
    )
