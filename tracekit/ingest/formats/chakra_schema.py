"""The schema of MLCommons Chakra's execution traces, version 0.0.4 (``schema/protobuf/et_def.proto``).

A file holds a ``GlobalMetadata`` and then a ``Node`` after the other, each behind its length as a varint.
"""

from enum import IntEnum
from functools import cache
from typing import Any

from tracekit.ingest.formats.protobufs import build_messages

VERSION = "0.0.4"

HOST_WORK_NAME = "host work"
"""Name of a node for what a thread does between its calls."""
RETURN_SUFFIX = " returns"
"""Ends the name of the node for the end of a call that waits for the GPU."""

_SCHEMA = {
    "Int64List": ("repeated int64 values = 1",),
    "AttributeProto": (
        "string name = 1", "double double_val = 3", "float float_val = 5", "int32 int32_val = 7", "int64 int64_val = 9",
        "Int64List int64_list = 10", "uint32 uint32_val = 11", "uint64 uint64_val = 13", "sint32 sint32_val = 15",
        "sint64 sint64_val = 17", "bool bool_val = 27", "string string_val = 29",
    ),
    "GlobalMetadata": ("string version = 1", "repeated AttributeProto attr = 2"),
    "IOInfo": ("string values = 1", "string shapes = 2", "string types = 3"),
    "Node": (
        "uint64 id = 1", "string name = 2", "int32 type = 3", "repeated uint64 ctrl_deps = 4",
        "repeated uint64 data_deps = 5", "uint64 start_time_micros = 6", "uint64 duration_micros = 7",
        "IOInfo inputs = 8", "IOInfo outputs = 9", "repeated AttributeProto attr = 10",
    ),
}  # fmt: skip


class NodeType(IntEnum):
    """What a node does; ``MEM_LOAD`` and ``MEM_STORE`` go to a memory that machines share."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


COLLECTIVES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
    "reduce_scatter_block", "barrier",
)  # fmt: skip
"""Names of ``CollectiveCommType``, by number."""
SIZED_BY_PART = ("all_gather", "gather")
"""Collectives whose ``comm_size``, what a rank puts in, is only its part of the buffer."""


@cache
def load_messages() -> dict[str, Any]:
    """Return the message classes.

    Raises:
        ImportError: The package ``protobuf`` isn't installed.
    """
    return build_messages("ChakraProtoMsg", _SCHEMA)
