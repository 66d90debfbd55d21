"""The schema of XPlane, the profiles of JAX, XLA and TensorFlow (``xplane.proto`` of TSL)."""

from functools import cache
from typing import Any

from tracekit.ingest.formats.protobufs import build_messages

_SCHEMA = {
    "XSpace": ("repeated XPlane planes = 1",),
    "XPlane": (
        "int64 id = 1", "string name = 2", "repeated XLine lines = 3", "repeated EventNameEntry event_metadata = 4",
        "repeated StatNameEntry stat_metadata = 5", "repeated XStat stats = 6",
    ),
    "EventNameEntry": ("int64 key = 1", "XEventMetadata value = 2"),
    "StatNameEntry": ("int64 key = 1", "XStatMetadata value = 2"),
    "XLine": ("int64 id = 1", "string name = 2", "int64 timestamp_ns = 3", "repeated XEvent events = 4"),
    "XEvent": (
        "int64 metadata_id = 1", "int64 offset_ps = 2", "int64 duration_ps = 3", "repeated XStat stats = 4",
    ),
    "XStat": (
        "int64 metadata_id = 1", "double double_value = 2", "uint64 uint64_value = 3", "int64 int64_value = 4",
        "string str_value = 5", "uint64 ref_value = 7",
    ),
    "XEventMetadata": ("int64 id = 1", "string name = 2", "string display_name = 4"),
    "XStatMetadata": ("int64 id = 1", "string name = 2"),
}  # fmt: skip


@cache
def load_messages() -> dict[str, Any]:
    """Return the message classes.

    Raises:
        ImportError: The package ``protobuf`` isn't installed.
    """
    return build_messages("tracekit.xplane", _SCHEMA)
