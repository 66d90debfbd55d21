"""The part of Perfetto's trace schema that slices with arguments need (``perfetto_trace.proto``)."""

from functools import cache
from typing import Any

from tracekit.ingest.formats.protobufs import build_messages

_SCHEMA = {
    "Trace": ("repeated TracePacket packet = 1",),
    "TracePacket": (
        "uint32 trusted_packet_sequence_id = 10", "TrackEvent track_event = 11", "InternedData interned_data = 12",
        "uint32 sequence_flags = 13",
    ),
    "TrackEvent": (
        "repeated uint64 category_iids = 3", "repeated DebugAnnotation debug_annotations = 4", "int32 type = 9",
        "uint64 name_iid = 10", "repeated string categories = 22", "string name = 23",
    ),
    "DebugAnnotation": (
        "uint64 name_iid = 1", "uint64 uint_value = 3", "int64 int_value = 4", "string string_value = 6",
        "string name = 10", "uint64 string_value_iid = 17",
    ),
    "InternedText": ("uint64 iid = 1", "string name = 2"),
    "InternedData": (
        "repeated InternedText event_categories = 1", "repeated InternedText event_names = 2",
        "repeated InternedText debug_annotation_names = 3", "repeated InternedText debug_annotation_string_values = 29",
    ),
}  # fmt: skip


@cache
def load_messages() -> dict[str, Any]:
    """Return the message classes.

    Raises:
        ImportError: The package ``protobuf`` isn't installed.
    """
    return build_messages("tracekit.perfetto", _SCHEMA)
