"""Find where the events of a trace are in its file, by a second pass over it: the tables don't keep that."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec import Raw, Struct, field

from tracekit.messages import Message
from tracekit.messages import traces as messages
from tracekit.time_base import add_base

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
        One row per event with ``place`` (its index in ``traceEvents``), ``category``, ``name``, ``ts_ns``, ``dur_ns``,
        ``pid``, ``tid``, ``correlation``, ``external_id`` and ``bandwidth_gbps``; or why there are none.
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
    timed = [(place, each) for place, each in enumerate(file.events) if each.ph in TIMED_PHASES]
    events = [each for _, each in timed]
    args = [each.args or _NO_ARGUMENTS for each in events]
    columns = {
        "place": [place for place, _ in timed],
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


def join_places(events: pl.DataFrame, file_events: pl.DataFrame) -> pl.DataFrame:
    """Add ``place`` and ``bandwidth_gbps`` to events; null where the file has no such event.

    Args:
        events: Events of the rank's tables, in any order, with the columns of the tables.
        file_events: From :func:`read_file_events`.
    """
    mine = _number_equal_events(events.with_row_index("row"))
    theirs = _number_equal_events(file_events.filter(pl.col("category").ne_missing(GPU_ANNOTATION)))
    found = mine.join(theirs.select(*_IDENTITY, "nth", "place", "bandwidth_gbps"), on=[*_IDENTITY, "nth"], how="left")
    return events.with_columns(found.sort("row")["place", "bandwidth_gbps"])


def _number_equal_events(events: pl.DataFrame) -> pl.DataFrame:
    shown = pl.col("name").str.replace_all(_CHANGED_CHARACTERS, "?").str.replace(_CALL_VERSION, "")
    table = events.with_columns(shown=shown).sort(*_IDENTITY, *_TIES)
    return table.with_columns(nth=pl.int_range(pl.len()).over(_IDENTITY))
