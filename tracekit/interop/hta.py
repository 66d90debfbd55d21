"""Traces as HolisticTraceAnalysis holds them, so that its analyses run without its loader."""

import json
import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from tracekit.errors import install_extra
from tracekit.interop.packages import require
from tracekit.interop.pandas import frame
from tracekit.trace import RankTrace, Trace

_DRIVER_CALL = re.compile("^cu[A-Z]")
_KINDS = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_NUMBERS = {
    "stream": -1,
    "correlation": -1,
    "bytes": -1,
    "wait_on_stream": -1,
    "wait_on_cuda_event_record_corr_id": -1,
    "external_id": -1,
}
"""Columns of numbers and what HTA writes where they are missing."""

_INPUTS = {"input_dims": "input_dims", "input_types": "input_type", "input_strides": "input_strides"}
_NOT_RECORDED = "-1"


def to_hta(trace: Trace, *, include_last_profiler_step: bool = False) -> Any:
    """A ``hta.trace_analysis.TraceAnalysis`` of the trace.

    Args:
        trace: The trace.
        include_last_profiler_step: As HTA's own argument: of several steps it leaves out the last one by default.

    Raises:
        TracekitError: HolisticTraceAnalysis isn't installed.
    """
    analysis = require("hta.trace_analysis", "HolisticTraceAnalysis", install_extra("hta")).TraceAnalysis
    result = analysis.__new__(analysis)
    result.t = _trace(trace, include_last_profiler_step)
    return result


def _trace(trace: Trace, include_last_profiler_step: bool) -> Any:
    hta = require("hta.common.trace", "HolisticTraceAnalysis", install_extra("hta"))
    result = hta.Trace(trace_files={})
    events = {rank.rank or 0: _events(rank) for rank in trace.ranks}
    for table in events.values():
        result.symbol_table.add_symbols(pl.concat([table["cat"], table["name"]]).unique(maintain_order=True).to_list())
    for rank in trace.ranks:
        number = rank.rank or 0
        result.trace_files[number] = rank.source
        result.meta_data[number] = dict(rank.metadata)
        result.traces[number] = _linked(hta, events[number], result.symbol_table)
    result.align_and_filter_trace(include_last_profiler_step)
    for number, table in result.traces.items():
        result.traces[number] = table.set_index("index", drop=False).rename_axis(None)
    result.is_parsed = True
    return result


def _linked(hta: Any, events: pl.DataFrame, symbols: Any) -> Any:
    """The events as HTA's loader leaves them: names as numbers, calls linked to activities, iterations numbered."""
    numbers = symbols.get_sym_id_map()
    table = frame(
        events.with_columns(
            pl.col("cat", "name").replace_strict(numbers, return_dtype=pl.Int64),
            end=pl.col("ts") + pl.col("dur"),
        )
    )
    for column in _INPUTS.values():
        decoded = {text: json.loads(text) for text in events[column].unique() if text != _NOT_RECORDED}
        table[column] = [decoded.get(text, text) for text in table[column]]
    table = table.set_index("index", drop=False).rename_axis(None)
    table = hta.transform_correlation_to_index(table, symbols)
    hta.add_iteration(table, symbols)
    return table


def _events(rank: RankTrace) -> pl.DataFrame:
    """Every event in one table, with HTA's columns and its whole microseconds."""
    start = pl.col("ts_ns").floordiv(1000) + (pl.col("ts_ns") % 1000 > 0)
    stop = (pl.col("ts_ns") + pl.col("dur_ns")).floordiv(1000)
    events = pl.concat(_tables(rank), how="diagonal").sort("ts_ns", "dur_ns", descending=[False, True])
    numbers = [_number(events, name, missing) for name, missing in _NUMBERS.items()]
    texts = [pl.col(ours).fill_null(_NOT_RECORDED).alias(theirs) for ours, theirs in _INPUTS.items()]
    bandwidth = (pl.col("bytes") / pl.col("dur_ns")).fill_null(0.0).replace(float("inf"), 0.0)
    # HTA takes an event with the number 0 for "no event".
    return events.with_row_index("index", offset=1).select(
        pl.col("index").cast(pl.Int64), "cat", "name", "pid", "tid", start.alias("ts"), (stop - start).alias("dur"),
        *numbers, *texts, memory_bw_gbps=bandwidth,
    )  # fmt: skip


def _number(events: pl.DataFrame, name: str, missing: int) -> pl.Expr:
    return (pl.col(name) if name in events.columns else pl.lit(None, pl.Int64)).fill_null(missing).alias(name)


def _tables(rank: RankTrace) -> Iterator[pl.DataFrame]:
    """The rank's tables with a category; HTA, like the file, has device and stream for a GPU event's pid and tid."""
    devices = rank.activities["device"]
    device = devices.mode().min() if devices.count() else 0
    yield rank.ops.with_columns(cat=pl.lit("cpu_op"))
    yield rank.annotations.with_columns(cat=pl.lit("user_annotation"))
    is_driver = pl.col("name").str.contains(_DRIVER_CALL.pattern)
    yield rank.calls.with_columns(cat=pl.when(is_driver).then(pl.lit("cuda_driver")).otherwise(pl.lit("cuda_runtime")))
    yield rank.activities.with_columns(cat=pl.col("kind").replace_strict(_KINDS), pid="device", tid="stream")
    yield rank.syncs.with_columns(cat=pl.lit("cuda_sync"), pid=pl.lit(device, pl.Int64), tid="stream").rename(
        {"wait_on_record": "wait_on_cuda_event_record_corr_id"}
    )
