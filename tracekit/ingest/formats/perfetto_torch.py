"""Read the ``.pftrace`` that PyTorch's profiler writes since 2026 with its own CUPTI reader (``CuspyConfig``).

Slices of threads carry Kineto's arguments as annotations. What ran on a GPU is a render stage, whose further figures
are texts (``torch/profiler/_cuspy/trace.py``). The first versions wrote slices for it too, and no categories.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tracekit.errors import NoGpuActivityError
from tracekit.ingest.fields import ARGUMENTS, CATEGORIES, ArgumentKind
from tracekit.ingest.formats.perfetto_packets import (
    Texts,
    list_categories,
    list_packets,
    load_messages,
    name_event,
    name_note,
)
from tracekit.ingest.formats.protobufs import parse_message
from tracekit.ingest.formats.tables import ForeignFile, ForeignTrace, build_table
from tracekit.messages.traces import TORCH_PERFETTO_WITHOUT_KERNELS

FORM = "Perfetto trace"
SLICE_BEGIN, SLICE_END = 1, 2
OVERHEAD_TRACK = "Overhead"
_CATEGORY_OF_NOTE = {
    "grid": "kernel", "copy kind": "gpu_memcpy", "memory kind": "gpu_memset", "cuda_sync_kind": "cuda_sync",
    "cbid": "cuda_runtime", "Python id": "python_function", "External id": "cpu_op",
}  # fmt: skip
"""What tells the category of a slice that has none."""
_TABLE_OF_STAGE = {"Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset"}
_FIELD_OF_EXTRA = {"stream id": "stream", "device id": "device"}
_FIELD_OF_ARGUMENT = {"registers_per_thread": "registers_per_thread", "shared_mem_dynamic": "shared_memory_bytes"}

_NAMES = ("name", "name_iid")

Row = dict[str, Any]


class Track(NamedTuple):
    """A thread, or what is shown as one."""

    pid: int = 0
    tid: int = 0
    name: str = ""


class Slice(NamedTuple):
    """The beginning of a slice."""

    ts_ns: int
    track: int
    category: str
    row: Row


@dataclass(slots=True)
class Found:
    """What the packets hold.

    Attributes:
        tracks: Tracks by their id.
        slices: Beginnings of slices.
        ends: Time and track of each end of a slice.
        rows: Rows by table.
        unread: Number of events that aren't read, by category.
    """

    tracks: dict[int, Track] = field(default_factory=lambda: defaultdict(Track))
    slices: list[Slice] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    unread: Counter[str] = field(default_factory=Counter)


def read(file: ForeignFile) -> ForeignTrace:
    """Read a file.

    Raises:
        TraceError: It is none, too large, holds no kernels, or the package ``protobuf`` isn't installed.
    """
    found = _read_packets(parse_message(file, FORM, load_messages, "Trace"))
    for one, end_ns in zip(found.slices, _pair_ends(found.slices, found.ends), strict=True):
        track = found.tracks[one.track]
        category = one.category or ("overhead" if track.name == OVERHEAD_TRACK else "user_annotation")
        if category in CATEGORIES and end_ns is not None:
            place = {"ts_ns": one.ts_ns, "dur_ns": end_ns - one.ts_ns, "pid": track.pid, "tid": track.tid}
            found.rows[CATEGORIES[category]].append(one.row | place)
        else:
            found.unread[category] += 1
    if not any(found.rows[kind] for kind in _TABLE_OF_STAGE.values()):
        raise NoGpuActivityError(TORCH_PERFETTO_WITHOUT_KERNELS(path=file.name))
    names = {(track.pid, track.tid): track.name for track in found.tracks.values() if track.name}
    return ForeignTrace({name: build_table(name, rows) for name, rows in found.rows.items()}, {}, names, found.unread)


def _read_packets(trace: Any) -> Found:
    found = Found()
    for packet, texts in list_packets(trace):
        if packet.HasField("track_event"):
            event = packet.track_event
            if event.type == SLICE_BEGIN:
                found.slices.append(_read_slice(packet, texts))
            elif event.type == SLICE_END:
                found.ends.append((packet.timestamp, event.track_uuid))
        elif packet.HasField("gpu_render_stage_event"):
            stage = texts["gpu_specifications"].get(packet.gpu_render_stage_event.stage_iid, "unknown")
            if stage in _TABLE_OF_STAGE:
                found.rows[_TABLE_OF_STAGE[stage]].append(_read_stage(packet, stage, texts))
            else:
                found.unread[stage] += 1
        elif packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            found.tracks[track.uuid] = Track(track.thread.pid, track.thread.tid, track.thread.thread_name or track.name)
    return found


def _read_slice(packet: Any, texts: Texts) -> Slice:
    event = packet.track_event
    notes = {note.name or name_note(note, texts): note for note in event.debug_annotations}
    category = next((one for one in list_categories(event, texts) if one), "")
    if not category:
        category = next((one for name, one in _CATEGORY_OF_NOTE.items() if name in notes), "")
    row: Row = {"name": name_event(event, texts)}
    if "copy kind" in notes:
        row["name"] = f"Memcpy {notes['copy kind'].string_value}"
    for name in notes.keys() & ARGUMENTS.keys():
        target, kind = ARGUMENTS[name]
        row[target] = _convert_value(_read_note(notes[name], texts), kind)
    return Slice(packet.timestamp, event.track_uuid, category, row)


def _read_note(note: Any, texts: Texts) -> Any:
    """Return the value of an argument, of which lists and objects have several; an empty list has none."""
    for field_, value in note.ListFields():
        if field_.name == "array_values":
            return [_read_note(one, texts) for one in value]
        if field_.name == "dict_entries":
            return {name_note(one, texts): _read_note(one, texts) for one in value}
        if field_.name not in _NAMES:
            return value
    return []


def _convert_value(value: Any, kind: ArgumentKind) -> int | str | None:
    if kind is ArgumentKind.RAW:
        return msgspec.json.encode(value).decode()
    if kind is ArgumentKind.TEXT:
        return str(value)
    with suppress(TypeError, ValueError, OverflowError):
        return int(value)
    return None


def _read_stage(packet: Any, stage: str, texts: Texts) -> Row:
    """Read what ran on a GPU."""
    event = packet.gpu_render_stage_event
    name = texts["event_names"].get(event.name_iid) or texts["compute_kernels"].get(event.kernel_iid)
    row: Row = {"ts_ns": packet.timestamp, "dur_ns": event.duration, "name": name or stage, "pid": event.gpu_id}
    row["device"] = event.gpu_id
    for one in event.extra_data:
        target, kind = ARGUMENTS.get(one.name, (_FIELD_OF_EXTRA.get(one.name), ArgumentKind.INT))
        if target is not None:
            # All values are texts here, lists among them.
            row[target] = one.value if kind is ArgumentKind.RAW else _convert_value(one.value, kind)
    if event.HasField("launch"):
        row["grid"], row["block"] = _write_sizes(event.launch.grid_size), _write_sizes(event.launch.workgroup_size)
        for argument in event.launch.args:
            target = _FIELD_OF_ARGUMENT.get(argument.name or texts["compute_arg_names"].get(argument.name_iid, ""))
            if target is not None:
                row[target] = argument.uint_value
    return row


def _write_sizes(sizes: Any) -> str:
    return f"[{sizes.x},{sizes.y},{sizes.z}]"


def _pair_ends(slices: Sequence[Slice], ends: Sequence[tuple[int, int]]) -> list[int | None]:
    """Return when each slice ends; ``None`` if it doesn't.

    PyTorch writes some thousand beginnings and then their ends in the same order. Where the tracks show that it isn't
    so, slices of a track are taken to nest, as Perfetto defines them.
    """
    if [one.track for one in slices] == [track for _, track in ends]:
        return [end_ns for end_ns, _ in ends]
    marks = [(one.ts_ns, True, number) for number, one in enumerate(slices)]
    found: list[int | None] = [None] * len(slices)
    open_slices: dict[int, list[int]] = defaultdict(list)
    for ts_ns, begins, number in sorted([*marks, *((at, False, n) for n, (at, _) in enumerate(ends))]):
        track = slices[number].track if begins else ends[number][1]
        if begins:
            open_slices[track].append(number)
        elif open_slices[track]:
            found[open_slices[track].pop()] = ts_ns
    return found
