"""Read the ``.pftrace`` that ``rocprofv3 --output-format pftrace`` writes.

Its slices carry their times, ids and sizes as arguments. Perfetto's own reader, the trace processor, is a binary that
its package downloads when it is first used; here nothing is downloaded, so slices are read with protobuf alone.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import polars as pl

from tracekit.errors import NoGpuActivityError
from tracekit.ingest.formats.perfetto_packets import list_categories, list_packets, load_messages, name_event, name_note
from tracekit.ingest.formats.protobufs import parse_message
from tracekit.ingest.formats.tables import ForeignFile, ForeignTrace, build_texts, name_copies, split_ranges
from tracekit.messages.traces import PERFETTO_WITHOUT_KERNELS

FORM = "Perfetto trace"
SLICE_BEGIN = 1
PROCESS = 1
_TABLES = {"kernel_dispatch": "kernel", "memory_copy": "memcpy", "hip_api": "calls", "marker_api": "ranges"}
"""Table of each category of rocprofv3's slices."""
_ARGUMENTS = {
    "begin_ns": "ts_ns", "end_ns": "end_ns", "tid": "tid", "corr_id": "correlation", "agent": "device",
    "queue": "stream", "stream_id": "stream", "copy_bytes": "bytes", "dst_agent": "device",
    "group_segment_size": "shared_memory_bytes", "workgroup_size": "threads", "grid_size": "work_items",
}  # fmt: skip


def read(file: ForeignFile) -> ForeignTrace:
    """Read a file.

    Raises:
        TraceError: It is none, too large, holds no kernels of rocprofv3, or the package ``protobuf`` isn't installed.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for category, row in _list_slices(parse_message(file, FORM, load_messages, "Trace")):
        if category in _TABLES:
            rows[_TABLES[category]].append(row)
    if not rows["kernel"] and not rows["memcpy"]:
        raise NoGpuActivityError(PERFETTO_WITHOUT_KERNELS(path=file.name))
    tables = {name: _build_frame(rows[name]) for name in _TABLES.values()}
    file.check_texts(tables.values())
    ops, annotations = split_ranges(tables.pop("ranges"))
    copies = tables["memcpy"].with_columns(name=name_copies(pl.col("name")))
    return ForeignTrace(tables | {"memcpy": copies, "ops": ops, "annotations": annotations}, {})


def _list_slices(trace: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the category of each slice, and its name and arguments."""
    for packet, texts in list_packets(trace):
        event = packet.track_event
        if event.type != SLICE_BEGIN:
            continue
        categories = list_categories(event, texts)
        row: dict[str, Any] = {"name": name_event(event, texts)}
        for note in event.debug_annotations:
            column = _ARGUMENTS.get(name_note(note, texts))
            if column:
                row[column] = note.uint_value if note.HasField("uint_value") else note.int_value
        yield (categories[0] if categories else ""), row


def _build_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    numbers = {
        name: pl.Series([row.get(name) for row in rows], dtype=pl.Int64, strict=False)
        for name in dict.fromkeys(_ARGUMENTS.values())
    }
    return pl.DataFrame({"name": build_texts([row["name"] for row in rows]), **numbers}).with_columns(
        dur_ns=pl.col("end_ns") - pl.col("ts_ns"),
        pid=pl.lit(PROCESS),
        grid=pl.format("[{}]", -(-pl.col("work_items") // pl.col("threads").clip(1))),
        block=pl.format("[{}]", "threads"),
    )
