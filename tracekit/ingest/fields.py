"""What is read from an event: its arguments, and the table that its category belongs to.

The names follow libkineto's ``output_json.cpp`` and ``MetadataFieldCatalog.h``; older writers spell some differently.
"""

from enum import IntEnum

NULL = -(2**63)
"""Marks a missing number."""

NO_TEXT = -1
"""Marks a missing text."""


class Kind(IntEnum):
    """How an argument is stored."""

    INT = 0
    TEXT = 1
    RAW = 2


ARGUMENTS: dict[str, tuple[str, Kind]] = {
    "External id": ("external_id", Kind.INT),
    "external id": ("external_id", Kind.INT),
    "Record function id": ("record_function_id", Kind.INT),
    "Sequence number": ("sequence", Kind.INT),
    "Python id": ("python_id", Kind.INT),
    "correlation": ("correlation", Kind.INT),
    "device": ("device", Kind.INT),
    "stream": ("stream", Kind.INT),
    "bytes": ("bytes", Kind.INT),
    "size": ("size", Kind.INT),
    "registers per thread": ("registers_per_thread", Kind.INT),
    "shared memory": ("shared_memory_bytes", Kind.INT),
    "graph node id": ("graph_node_id", Kind.INT),
    "In msg nelems": ("in_nelems", Kind.INT),
    "Out msg nelems": ("out_nelems", Kind.INT),
    "Group size": ("group_size", Kind.INT),
    "Device Type": ("device_type", Kind.INT),
    "Device Id": ("device_id", Kind.INT),
    "Total Allocated": ("allocated_bytes", Kind.INT),
    "Total Reserved": ("reserved_bytes", Kind.INT),
    "wait_on_stream": ("wait_on_stream", Kind.INT),
    "wait_on_cuda_event_record_corr_id": ("wait_on_record", Kind.INT),
    "Collective name": ("collective", Kind.TEXT),
    "kernel": ("kernel", Kind.TEXT),
    "dtype": ("collective_dtype", Kind.TEXT),
    "Process Group Name": ("process_group", Kind.TEXT),
    "Process Group Description": ("group_description", Kind.TEXT),
    "Process Group Ranks": ("group_ranks", Kind.RAW),
    "Seq": ("collective_sequence", Kind.INT),
    "Comms Id": ("collective_id", Kind.RAW),
    "Src Rank": ("sender", Kind.INT),
    "Dst Rank": ("receiver", Kind.INT),
    "Input Dims": ("input_dims", Kind.RAW),
    "Input dims": ("input_dims", Kind.RAW),
    "Input type": ("input_types", Kind.RAW),
    "Input Strides": ("input_strides", Kind.RAW),
    "Concrete Inputs": ("concrete_inputs", Kind.RAW),
    "grid": ("grid", Kind.RAW),
    "block": ("block", Kind.RAW),
    "Call stack": ("call_stack", Kind.TEXT),
    "Module Hierarchy": ("module_hierarchy", Kind.TEXT),
}
"""JSON key of an argument to its field."""

STACK_FIELDS = ("call_stack", "module_hierarchy")
"""Fields that are read only where stacks are asked for."""

INTS = ("ts_ns", "dur_ns", "pid", "tid", *dict.fromkeys(f for f, kind in ARGUMENTS.values() if kind is Kind.INT))
TEXTS = ("name", *dict.fromkeys(f for f, kind in ARGUMENTS.values() if kind is not Kind.INT))

_SPAN = ("ts_ns", "dur_ns", "name")
_THREAD = ("pid", "tid")
_COLLECTIVE = (
    "collective", "collective_dtype", "in_nelems", "out_nelems", "group_size", "process_group", "group_description",
    "group_ranks", "collective_sequence", "collective_id", "sender", "receiver",
)  # fmt: skip
_ACTIVITY = (
    *_SPAN, *_THREAD, "device", "stream", "correlation", "bytes", "size", "grid", "block", "registers_per_thread",
    "shared_memory_bytes", "graph_node_id", *_COLLECTIVE,
)  # fmt: skip

TABLES: dict[str, tuple[str, ...]] = {
    "ops": (
        *_SPAN, *_THREAD, "external_id", "record_function_id", "sequence", "input_dims", "input_types",
        "input_strides", "concrete_inputs", *_COLLECTIVE, *STACK_FIELDS,
    ),
    "annotations": (*_SPAN, *_THREAD),
    "calls": (*_SPAN, *_THREAD, "correlation", "kernel", "grid", "block"),
    "kernel": _ACTIVITY,
    "memcpy": _ACTIVITY,
    "memset": _ACTIVITY,
    "syncs": (*_SPAN, "stream", "correlation", "wait_on_stream", "wait_on_record"),
    "overheads": _SPAN,
    "frames": ("ts_ns", "dur_ns", "python_id", "name", *_THREAD),
    "memory": (*_SPAN, "device_type", "device_id", "allocated_bytes", "reserved_bytes"),
}  # fmt: skip
"""Table to the fields that its rows hold."""

CATEGORIES = {
    "cpu_op": "ops",
    "Operator": "ops",
    "operator": "ops",
    "user_annotation": "annotations",
    "Runtime": "calls",
    "runtime": "calls",
    "cuda_runtime": "calls",
    "cuda_driver": "calls",
    "xpu_runtime": "calls",
    "xpu_driver": "calls",
    "mtia_runtime": "calls",
    "privateuse1_runtime": "calls",
    "privateuse1_driver": "calls",
    "Kernel": "kernel",
    "kernel": "kernel",
    "mtia_ccp_events": "kernel",
    "Memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memcpy": "memcpy",
    "Memset": "memset",
    "memset": "memset",
    "gpu_memset": "memset",
    "cpu_instant_event": "memory",
    "cuda_sync": "syncs",
    "overhead": "overheads",
}
"""Category of an event to its table; events of other categories are not read."""

ACTIVITY_KINDS = ("kernel", "memcpy", "memset")
"""The tables of what runs on the GPU."""

STACKS = {"python_function": "frames"}
"""The same for Python's calls, most of a trace that holds them: read only where they are asked for."""


def categories(stacks: bool) -> dict[str, str]:
    """Category of an event to its table.

    Args:
        stacks: Whether Python's calls are read.
    """
    return CATEGORIES | STACKS if stacks else CATEGORIES
