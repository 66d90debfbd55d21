"""Find where the events of a trace are in its file, by a second pass over it: the tables don't keep that."""

from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec import Raw, Struct, field

from tracekit.errors import TraceError
from tracekit.ingest.build import CALL_VERSION_SUFFIX
from tracekit.ingest.event_decoder import JSON_ERRORS, READ_PHASES
from tracekit.ingest.event_times import convert_to_ns
from tracekit.ingest.fields import CATEGORIES, CONTROL_CHARACTERS
from tracekit.ingest.source import make_file_source
from tracekit.messages import Message
from tracekit.messages import event_places as messages

PLAIN_NAMES = (".json", ".gz")
"""Ends of the names of files that other tools open."""
GPU_ANNOTATION = "gpu_user_annotation"
_HOST = "host"
_GROUPS = CATEGORIES | {category: _HOST for category, table in CATEGORIES.items() if table in ("ops", "annotations")}
"""Table of each category; ops and annotations are one, as some step marks are ops in the file."""
_IDENTITY = ("group", "ts_ns", "dur_ns", "name")
_TIES = ("correlation", "external_id", "tid")
"""What orders events of one identity, on both sides."""
_READ_BYTES = 1 << 20


class _Arguments(Struct, gc=False):
    correlation: Any = None
    external_id: Any = field(name="External id", default=None)
    old_external_id: Any = field(name="external id", default=None)
    bandwidth: Any = field(name="memory bandwidth (GB/s)", default=None)


class _Event(Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: Any = None
    ts: Raw = Raw()
    dur: Raw = Raw()
    pid: Any = None
    tid: Any = None
    args: _Arguments | None = None


class _File(Struct, gc=False):
    events: list[_Event] = field(name="traceEvents")
    base_ns: int = field(name="baseTimeNanoseconds", default=0)


_DECODER = msgspec.json.Decoder(_File)
_NO_ARGUMENTS = _Arguments()


def read_file_events(source: str) -> pl.DataFrame | Message:
    """Read the events of a file that are known to tracekit or are annotations on the GPU.

    Args:
        source: Path of the file, as ``RankTrace.source`` has it.

    Returns:
        One row per event with ``place`` (its index in ``traceEvents``), ``category``, ``group``, ``name``, ``ts_ns``,
        ``dur_ns``, ``pid``, ``tid``, ``correlation``, ``external_id`` and ``bandwidth_gbps``; or why there are none.
    """
    path = Path(source)
    if not source.endswith(PLAIN_NAMES) or not path.is_file():
        return messages.PLACES_WITHOUT_FILE(path=source)
    try:
        file = _DECODER.decode(_read_text(path))
        return _build_table(file)
    except (TraceError, *JSON_ERRORS) as error:
        return messages.PLACES_WITHOUT_JSON(path=source, reason=str(error))


def _read_text(path: Path) -> bytes:
    text, block = bytearray(), bytearray(_READ_BYTES)
    with make_file_source(path).open() as stream:
        while size := stream.readinto(memoryview(block)):
            text += memoryview(block)[:size]
    return bytes(text)


def _build_table(file: _File) -> pl.DataFrame:
    known = _GROUPS.keys() | {GPU_ANNOTATION}
    read = [(place, each) for place, each in enumerate(file.events) if each.cat in known and each.ph in READ_PHASES]
    events = [each for _, each in read]
    args = [each.args or _NO_ARGUMENTS for each in events]
    external = [one.old_external_id if one.external_id is None else one.external_id for one in args]
    return pl.DataFrame(
        {
            "place": pl.Series([place for place, _ in read], dtype=pl.Int64),
            "category": pl.Series([each.cat for each in events], dtype=pl.String),
            "name": pl.Series([str(each.name) for each in events], dtype=pl.String),
            "ts_ns": convert_to_ns([bytes(each.ts) for each in events]) + file.base_ns,
            "dur_ns": convert_to_ns([bytes(each.dur) for each in events]).clip(0),
            "pid": _parse_integers([each.pid for each in events]),
            "tid": _parse_integers([each.tid for each in events]),
            "correlation": _parse_integers([one.correlation for one in args]),
            "external_id": _parse_integers(external),
            "bandwidth_gbps": pl.Series([one.bandwidth for one in args], dtype=pl.Float64, strict=False),
        }
    ).with_columns(
        group=pl.col("category").replace_strict(_GROUPS, default=None),
        name=pl.col("name")
        .str.replace_all(CONTROL_CHARACTERS, "\N{REPLACEMENT CHARACTER}")
        .str.replace(CALL_VERSION_SUFFIX, ""),
    )


def _parse_integers(values: list[Any]) -> pl.Series:
    return pl.Series(values, dtype=pl.Int64, strict=False)


def join_places(events: pl.DataFrame, file_events: pl.DataFrame) -> pl.DataFrame:
    """Add ``place`` and ``bandwidth_gbps`` to events; null where the file has no such event.

    Args:
        events: Events of the rank's tables, in any order, with ``cat``, its category, and the columns of the tables.
        file_events: From :func:`read_file_events`.
    """
    mine = _number_equal_events(
        events.with_row_index("row").with_columns(
            group=pl.col("cat").replace_strict(_GROUPS), name=pl.col("name").str.replace(CALL_VERSION_SUFFIX, "")
        )
    )
    theirs = _number_equal_events(file_events).select(*_IDENTITY, "nth", "place", "bandwidth_gbps")
    joined = mine.select("row", *_IDENTITY, "nth").join(theirs, on=[*_IDENTITY, "nth"], how="left").sort("row")
    return events.with_columns(joined["place"], joined["bandwidth_gbps"])


def _number_equal_events(events: pl.DataFrame) -> pl.DataFrame:
    return events.sort(*_IDENTITY, *_TIES).with_columns(nth=pl.int_range(pl.len()).over(_IDENTITY))
