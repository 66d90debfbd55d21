"""Read the packets of a Perfetto trace with the texts that they refer to by number.

The schema is the part that rocprofv3 and PyTorch's profiler write (``perfetto_trace.proto``, v56).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tracekit.ingest.formats.protobufs import build_messages

_SCHEMA = {
    "Trace": ("repeated TracePacket packet = 1",),
    "TracePacket": (
        "uint64 timestamp = 8", "uint32 trusted_packet_sequence_id = 10", "TrackEvent track_event = 11",
        "InternedData interned_data = 12", "uint32 sequence_flags = 13", "GpuEvent gpu_render_stage_event = 53",
        "TrackDescriptor track_descriptor = 60",
    ),
    "TrackDescriptor": ("uint64 uuid = 1", "string name = 2", "Thread thread = 4"),
    "Thread": ("int32 pid = 1", "int64 tid = 2", "string thread_name = 5"),
    "TrackEvent": (
        "repeated uint64 category_iids = 3", "repeated DebugAnnotation debug_annotations = 4", "int32 type = 9",
        "uint64 name_iid = 10", "uint64 track_uuid = 11", "repeated string categories = 22", "string name = 23",
    ),
    "DebugAnnotation": (
        "uint64 name_iid = 1", "bool bool_value = 2", "uint64 uint_value = 3", "int64 int_value = 4",
        "double double_value = 5", "string string_value = 6", "string name = 10",
        "repeated DebugAnnotation dict_entries = 11", "repeated DebugAnnotation array_values = 12",
        "uint64 string_value_iid = 17",
    ),
    "GpuEvent": (
        "uint64 duration = 2", "repeated ExtraData extra_data = 6", "int32 gpu_id = 11", "uint64 hw_queue_iid = 13",
        "uint64 stage_iid = 14", "uint64 kernel_iid = 19", "uint64 name_iid = 20", "Launch launch = 21",
    ),
    "ExtraData": ("string name = 1", "string value = 2"),
    "Launch": ("Sizes grid_size = 1", "Sizes workgroup_size = 2", "repeated LaunchArgument args = 3"),
    "Sizes": ("uint32 x = 1", "uint32 y = 2", "uint32 z = 3"),
    "LaunchArgument": ("uint64 name_iid = 1", "string name = 2", "int64 int_value = 3", "uint64 uint_value = 4"),
    "InternedText": ("uint64 iid = 1", "string name = 2"),
    "InternedKernel": ("uint64 iid = 1", "string name = 2", "string demangled_name = 3"),
    "InternedData": (
        "repeated InternedText event_categories = 1", "repeated InternedText event_names = 2",
        "repeated InternedText debug_annotation_names = 3", "repeated InternedText gpu_specifications = 24",
        "repeated InternedText debug_annotation_string_values = 29", "repeated InternedKernel compute_kernels = 1000",
        "repeated InternedText compute_arg_names = 1001",
    ),
}  # fmt: skip


@cache
def load_messages() -> dict[str, Any]:
    """Return the message classes.

    Raises:
        ImportError: The package ``protobuf`` isn't installed.
    """
    return build_messages("tracekit.perfetto", _SCHEMA)


Texts = Mapping[str, Mapping[int, str]]
"""The numbered texts of a sequence of packets, by the field that numbers them."""

STATE_CLEARED = 1
"""Flag of a packet after which the texts that were numbered before are forgotten."""


def list_packets(trace: Any) -> Iterator[tuple[Any, Texts]]:
    """Yield each packet, and the texts known by then."""
    known: dict[int, dict[str, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & STATE_CLEARED:
            known.pop(sequence, None)
        texts = known[sequence]
        for field, entries in packet.interned_data.ListFields():
            texts[field.name].update((entry.iid, entry.name or _get_demangled_name(entry)) for entry in entries)
        yield packet, texts


def name_event(event: Any, texts: Texts) -> str:
    """Return the name of a slice."""
    return str(event.name or texts["event_names"].get(event.name_iid, "unknown"))


def list_categories(event: Any, texts: Texts) -> list[str]:
    """Return the categories of a slice."""
    return [*event.categories, *(texts["event_categories"].get(iid, "") for iid in event.category_iids)]


def name_note(note: Any, texts: Texts) -> str:
    """Return the name of an argument."""
    return str(note.name or texts["debug_annotation_names"].get(note.name_iid, ""))


def _get_demangled_name(entry: Any) -> str:
    return str(getattr(entry, "demangled_name", ""))
