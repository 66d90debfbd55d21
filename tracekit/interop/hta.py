"""Convert traces to HolisticTraceAnalysis (HTA), so that its analyses run without its loader."""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
from msgspec import Raw, Struct, field

from tracekit.errors import TracekitError
from tracekit.interop.pandas import import_package, to_pandas_frame
from tracekit.messages import Message
from tracekit.messages import traces as messages
from tracekit.time_base import add_base

if TYPE_CHECKING:
    from tracekit.trace import RankTrace, Trace

GPU_ANNOTATION = "gpu_user_annotation"
TIMED_PHASES = ("X", "i")
"""Phases of events that have a duration, or none because they are instant."""

_COMPRESSED, _PLAIN = ".gz", ".json"
"""Ends of the names of files that HTA opens."""
_READ_ERRORS = (OSError, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_IDENTITY = ("ts_ns", "dur_ns", "shown")
_TIES = ("correlation", "external_id", "tid")
"""What orders events of one identity, on both sides."""
# What ingest changes in names: control characters, and the version of a call.
_CHANGED_CHARACTERS = r"[\p{Cc}\x{FFFD}]"
_CALL_VERSION = r"_v\d{4,}$"
_TIME = pl.Decimal(38, 9)


class _Arguments(Struct, gc=False):
    correlation: Any = None
    external_id: Any = field(name="External id", default=None)
    old_external_id: Any = field(name="external id", default=None)
    bandwidth: Any = field(name="memory bandwidth (GB/s)", default=None)


class _Event(Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: Any = None
    ts: Raw = Raw(b"")
    dur: Raw = Raw(b"0")
    pid: Any = None
    tid: Any = None
    args: _Arguments | None = None


class _File(Struct, gc=False):
    events: list[_Event] = field(name="traceEvents")
    base_ns: int = field(name="baseTimeNanoseconds", default=0)


_DECODER = msgspec.json.Decoder(_File)
_NO_ARGUMENTS = _Arguments()


def read_file_events(source: str) -> pl.DataFrame | Message:
    """Read the timed events of a file.

    Args:
        source: Path of the file, as ``RankTrace.source`` has it.

    Returns:
        One row per event with ``file_index`` (its index in ``traceEvents``), ``category``, ``name``, ``ts_ns``,
        ``dur_ns``, ``pid``, ``tid``, ``correlation``, ``external_id`` and ``bandwidth_gbps``; or why there are none.
    """
    path = Path(source)
    if not source.endswith((_COMPRESSED, _PLAIN)) or not path.is_file():
        return messages.PLACES_WITHOUT_FILE(path=source)
    try:
        text = path.read_bytes()
        return _build_table(_DECODER.decode(gzip.decompress(text) if source.endswith(_COMPRESSED) else text))
    except _READ_ERRORS as error:
        return messages.PLACES_WITHOUT_JSON(path=source, reason=str(error))


def _build_table(file: _File) -> pl.DataFrame:
    timed = [(index, each) for index, each in enumerate(file.events) if each.ph in TIMED_PHASES]
    events = [each for _, each in timed]
    args = [each.args or _NO_ARGUMENTS for each in events]
    columns = {
        "file_index": [index for index, _ in timed],
        "pid": [each.pid for each in events],
        "tid": [each.tid for each in events],
        "correlation": [one.correlation for one in args],
        "external_id": [one.old_external_id if one.external_id is None else one.external_id for one in args],
    }
    return pl.DataFrame(
        {name: pl.Series(values, dtype=pl.Int64, strict=False) for name, values in columns.items()}
        | {
            "category": pl.Series([each.cat for each in events], dtype=pl.String),
            "name": pl.Series([str(each.name) for each in events], dtype=pl.String),
            "ts_ns": add_base(_convert_to_ns([each.ts for each in events]), file.base_ns),
            "dur_ns": _convert_to_ns([each.dur for each in events]).clip(0),
            "bandwidth_gbps": pl.Series([one.bandwidth for one in args], dtype=pl.Float64, strict=False),
        }
    )


def _convert_to_ns(times: list[Raw]) -> pl.Series:
    """Convert microseconds in JSON to whole nanoseconds; null where they are no plain number."""
    texts = pl.Series([bytes(time).decode() for time in times], dtype=pl.String).str.strip_chars('"')
    return (texts.cast(_TIME, strict=False) * 1000).round(0).cast(pl.Int64)


def join_file_indices(events: pl.DataFrame, file_events: pl.DataFrame) -> pl.DataFrame:
    """Add ``file_index`` and ``bandwidth_gbps`` to events; null where the file has no such event.

    Args:
        events: Events of the rank's tables, in any order, with the columns of the tables.
        file_events: From :func:`read_file_events`.
    """
    mine = _number_equal_events(events.with_row_index("row"))
    theirs = _number_equal_events(file_events.filter(pl.col("category").ne_missing(GPU_ANNOTATION)))
    found = mine.join(
        theirs.select(*_IDENTITY, "nth", "file_index", "bandwidth_gbps"), on=[*_IDENTITY, "nth"], how="left"
    )
    return events.with_columns(found.sort("row")["file_index", "bandwidth_gbps"])


def _number_equal_events(events: pl.DataFrame) -> pl.DataFrame:
    shown = pl.col("name").str.replace_all(_CHANGED_CHARACTERS, "?").str.replace(_CALL_VERSION, "")
    table = events.with_columns(shown=shown).sort(*_IDENTITY, *_TIES)
    return table.with_columns(nth=pl.int_range(pl.len()).over(_IDENTITY))


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
    result.t, mismatches = _build_hta_trace(trace, include_last_profiler_step)
    result.overlay_critical_path_analysis = _guard_overlay(result.overlay_critical_path_analysis, mismatches)
    return result


def _build_hta_trace(trace: "Trace", include_last_profiler_step: bool) -> tuple[Any, dict[int, Message | None]]:
    """Return HTA's trace, and by rank why the indices of its events aren't those in the file, if they aren't."""
    hta = import_package("hta.common.trace", "HolisticTraceAnalysis", "hta")
    result = hta.Trace(trace_files={})
    files = _read_files(trace.ranks)
    events = {number: _build_event_table(rank, files[number]) for number, rank in _number_ranks(trace.ranks)}
    gpu_annotations = {number: _build_gpu_annotations(file) for number, file in files.items()}
    for table in (*events.values(), *gpu_annotations.values()):
        result.symbol_table.add_symbols(pl.concat([table["cat"], table["name"]]).unique(maintain_order=True).to_list())
    for number, rank in _number_ranks(trace.ranks):
        result.trace_files[number] = rank.source
        result.meta_data[number] = dict(rank.metadata)
        result.traces[number] = _link_events(hta, events[number], result.symbol_table)
    result.align_and_filter_trace(include_last_profiler_step)
    for number, table in result.traces.items():
        whole = _add_gpu_annotations(table, gpu_annotations[number], result)
        result.traces[number] = whole.set_index("index", drop=False).rename_axis(None)
    result.is_parsed = True
    ranks = _number_ranks(trace.ranks)
    return result, {number: _find_mismatch(rank.source, events[number], files[number]) for number, rank in ranks}


def _number_ranks(ranks: "Sequence[RankTrace]") -> "list[tuple[int, RankTrace]]":
    return [(rank.rank or 0, rank) for rank in ranks]


def _read_files(ranks: "Sequence[RankTrace]") -> dict[int, pl.DataFrame | Message]:
    """Read the events of each rank's file again, for what the tables don't keep; or return why that's not possible."""
    shared = {source for source, count in Counter(rank.source for rank in ranks).items() if count > 1}
    return {
        number: messages.PLACES_OF_SEVERAL_RANKS(path=rank.source)
        if rank.source in shared
        else read_file_events(rank.source)
        for number, rank in _number_ranks(ranks)
    }


def _find_mismatch(source: str, events: pl.DataFrame, file: pl.DataFrame | Message) -> Message | None:
    """Return why the events' indices aren't those in the file; None if they are."""
    if isinstance(file, Message):
        return file
    missing_events = events.height - int(events["index"].is_in(file["file_index"].implode()).sum())
    return messages.PLACES_CHANGED(path=source, events=missing_events) if missing_events else None


def _guard_overlay(overlay: Callable[..., str], mismatches: Mapping[int, Message | None]) -> Callable[..., str]:
    """Return HTA's function that flags events by their indices in the file; it is refused where these aren't known."""

    @wraps(overlay)
    def overlay_if_matched(rank: int, *args: Any, **options: Any) -> str:
        mismatch = mismatches.get(rank)
        if mismatch is not None:
            raise TracekitError(messages.OVERLAY_NOT_POSSIBLE(reason=mismatch))
        return overlay(rank, *args, **options)

    return overlay_if_matched


def _link_events(hta: Any, events: pl.DataFrame, symbols: Any) -> Any:
    """Return the events as HTA's loader does: names as numbers, calls linked to activities, iterations numbered."""
    table = _convert_events(events, symbols)
    for column in _INPUT_COLUMNS.values():
        decoded = {text: json.loads(text) for text in events[column].unique() if text != _NOT_RECORDED}
        table[column] = [decoded.get(text, text) for text in table[column]]
    table = table.set_index("index", drop=False).rename_axis(None)
    table = hta.transform_correlation_to_index(table, symbols)
    hta.add_iteration(table, symbols)
    return table


def _convert_events(events: pl.DataFrame, symbols: Any) -> Any:
    numbers = symbols.get_sym_id_map()
    return to_pandas_frame(
        events.with_columns(
            pl.col("cat", "name").replace_strict(numbers, return_dtype=pl.Int64),
            end=pl.col("ts") + pl.col("dur"),
        )
    )


def _build_event_table(rank: "RankTrace", file: pl.DataFrame | Message) -> pl.DataFrame:
    """Return every event in one table, with HTA's columns and whole microseconds.

    ``index`` is that of the event in its file, as in HTA's loader; without a file, a number from 1 on, as 0 is "no
    event" in HTA. An event that isn't in the file has a number behind all that are.
    """
    events = pl.concat(_iter_tables(rank), how="diagonal").sort("ts_ns", "dur_ns", descending=[False, True])
    derived = (pl.col("bytes") / pl.col("dur_ns")).fill_null(0.0).replace(float("inf"), 0.0)
    if isinstance(file, Message):
        numbered = events.with_row_index("index", offset=1).with_columns(memory_bw_gbps=derived)
    else:
        behind = pl.lit(file["file_index"].max()) + pl.col("file_index").is_null().cum_sum()
        numbered = join_file_indices(events, file).with_columns(
            index=pl.coalesce("file_index", behind), memory_bw_gbps=pl.coalesce("bandwidth_gbps", derived)
        )
    numbers = [_fill_missing(events, name, missing) for name, missing in _MISSING_NUMBERS.items()]
    texts = [pl.col(ours).fill_null(_NOT_RECORDED).alias(theirs) for ours, theirs in _INPUT_COLUMNS.items()]
    named = (pl.col("index").cast(pl.Int64), "cat", "name", "pid", "tid", *_round_times())
    return numbered.select(*named, *numbers, *texts, "memory_bw_gbps").sort("index")


def _round_times() -> tuple[pl.Expr, pl.Expr]:
    """Return start and duration in whole microseconds within the event, as HTA rounds them."""
    start = pl.col("ts_ns").floordiv(1000) + (pl.col("ts_ns") % 1000 > 0)
    stop = (pl.col("ts_ns") + pl.col("dur_ns")).floordiv(1000)
    return start.alias("ts"), (stop - start).alias("dur")


def _build_gpu_annotations(file: pl.DataFrame | Message) -> pl.DataFrame:
    """Return the GPU's side of annotations, which tracekit doesn't read, with HTA's columns."""
    if isinstance(file, Message):
        return pl.DataFrame(schema={"index": pl.Int64, "cat": pl.String, "name": pl.String})
    return file.filter(pl.col("category") == GPU_ANNOTATION).select(
        pl.col("file_index").alias("index"), pl.col("category").alias("cat"), "name", "pid", "tid", *_round_times()
    )


def _add_gpu_annotations(table: Any, annotations: pl.DataFrame, result: Any) -> Any:
    """Return HTA's table with the GPU's side of the annotations that begin before the last activity ends.

    They are added after HTA chose the steps, as it would take the GPU's profiler steps for steps of their own.
    """
    if annotations.is_empty():
        return table
    own = _convert_events(annotations.with_columns(pl.col("ts") - int(result.min_ts)), result.symbol_table)
    own = own[own["ts"] <= table.loc[table["stream"] >= 0, "ts"].max()]
    texts = _INPUT_COLUMNS.values()
    missing = {name: _NOT_RECORDED if name in texts else -1 for name in table.columns if name not in own.columns}
    return import_package("pandas", "pandas").concat([table, own.assign(**missing)]).sort_values("index")


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
