"""The fields that are read from an event: its arguments, and the table of its category.

Names follow libkineto's ``output_json.cpp`` and ``MetadataFieldCatalog.h``; older writers spell some differently.
"""

from enum import IntEnum

NULL = -(2**63)
"""Marks a missing number."""

NO_TEXT = -1
"""Marks a missing text."""


class ArgumentKind(IntEnum):
    """Storage type of an argument."""

    INT = 0
    TEXT = 1
    RAW = 2


ARGUMENTS: dict[str, tuple[str, ArgumentKind]] = {
    "External id": ("external_id", ArgumentKind.INT),
    "external id": ("external_id", ArgumentKind.INT),
    "Record function id": ("record_function_id", ArgumentKind.INT),
    "Sequence number": ("sequence", ArgumentKind.INT),
    "Python id": ("python_id", ArgumentKind.INT),
    "correlation": ("correlation", ArgumentKind.INT),
    "device": ("device", ArgumentKind.INT),
    "stream": ("stream", ArgumentKind.INT),
    "bytes": ("bytes", ArgumentKind.INT),
    "size": ("size", ArgumentKind.INT),
    "registers per thread": ("registers_per_thread", ArgumentKind.INT),
    "shared memory": ("shared_memory_bytes", ArgumentKind.INT),
    "graph node id": ("graph_node_id", ArgumentKind.INT),
    "In msg nelems": ("in_nelems", ArgumentKind.INT),
    "Out msg nelems": ("out_nelems", ArgumentKind.INT),
    "Group size": ("group_size", ArgumentKind.INT),
    "Device Type": ("device_type", ArgumentKind.INT),
    "Device Id": ("device_id", ArgumentKind.INT),
    "Total Allocated": ("allocated_bytes", ArgumentKind.INT),
    "Total Reserved": ("reserved_bytes", ArgumentKind.INT),
    "wait_on_stream": ("wait_on_stream", ArgumentKind.INT),
    "wait_on_cuda_event_record_corr_id": ("wait_on_record", ArgumentKind.INT),
    "Collective name": ("collective", ArgumentKind.TEXT),
    "kernel": ("kernel", ArgumentKind.TEXT),
    "dtype": ("collective_dtype", ArgumentKind.TEXT),
    "Process Group Name": ("process_group", ArgumentKind.TEXT),
    "Process Group Description": ("group_description", ArgumentKind.TEXT),
    "Process Group Ranks": ("group_ranks", ArgumentKind.RAW),
    "Seq": ("collective_sequence", ArgumentKind.INT),
    "Comms Id": ("collective_id", ArgumentKind.RAW),
    "Src Rank": ("sender", ArgumentKind.INT),
    "Dst Rank": ("receiver", ArgumentKind.INT),
    "Input Dims": ("input_dims", ArgumentKind.RAW),
    "Input dims": ("input_dims", ArgumentKind.RAW),
    "Input type": ("input_types", ArgumentKind.RAW),
    "Input Strides": ("input_strides", ArgumentKind.RAW),
    "Concrete Inputs": ("concrete_inputs", ArgumentKind.RAW),
    "grid": ("grid", ArgumentKind.RAW),
    "block": ("block", ArgumentKind.RAW),
    "Call stack": ("call_stack", ArgumentKind.TEXT),
    "Module Hierarchy": ("module_hierarchy", ArgumentKind.TEXT),
    "module_fqn": ("module_fqn", ArgumentKind.TEXT),
}
"""Field of each argument, by JSON key."""

STACK_FIELDS = ("call_stack", "module_hierarchy")
"""Fields that are read only if stacks are requested."""

INTS = (
    "ts_ns",
    "dur_ns",
    "pid",
    "tid",
    *dict.fromkeys(f for f, kind in ARGUMENTS.values() if kind is ArgumentKind.INT),
)
TEXTS = ("name", *dict.fromkeys(f for f, kind in ARGUMENTS.values() if kind is not ArgumentKind.INT))

_SPAN = ("ts_ns", "dur_ns", "name")
_THREAD = ("pid", "tid")
_COLLECTIVE = (
    "collective", "collective_dtype", "in_nelems", "out_nelems", "group_size", "process_group", "group_description",
    "group_ranks", "collective_sequence", "collective_id", "sender", "receiver",
)  # fmt: skip
_ACTIVITY = (
    *_SPAN, *_THREAD, "device", "stream", "correlation", "external_id", "bytes", "size", "grid", "block",
    "registers_per_thread", "shared_memory_bytes", "graph_node_id", "module_fqn", *_COLLECTIVE,
)  # fmt: skip

TABLES: dict[str, tuple[str, ...]] = {
    "ops": (
        *_SPAN, *_THREAD, "external_id", "record_function_id", "sequence", "input_dims", "input_types",
        "input_strides", "concrete_inputs", *_COLLECTIVE, *STACK_FIELDS,
    ),
    "annotations": (*_SPAN, *_THREAD),
    "calls": (*_SPAN, *_THREAD, "correlation", "external_id", "kernel", "grid", "block"),
    "kernel": _ACTIVITY,
    "memcpy": _ACTIVITY,
    "memset": _ACTIVITY,
    "syncs": (*_SPAN, "pid", "stream", "correlation", "wait_on_stream", "wait_on_record"),
    "overheads": (*_SPAN, "pid"),
    "frames": ("ts_ns", "dur_ns", "python_id", "name", *_THREAD),
    "worker_calls": (*_SPAN, *_THREAD),
    "memory": (*_SPAN, "pid", "device_type", "device_id", "allocated_bytes", "reserved_bytes"),
}  # fmt: skip
"""Fields of the rows of each table."""

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
"""Table of each event category; events of other categories are not read."""

ACTIVITY_KINDS = ("kernel", "memcpy", "memset")
"""Tables of GPU activities."""

PYTHON_CATEGORY, WORKER_TABLE = "python_function", "worker_calls"
"""Category of Python calls; without stacks, those of serving workers alone are read, into a table of their own."""

STACK_CATEGORIES = {PYTHON_CATEGORY: "frames"}
"""Table of Python calls, most of a trace that holds them; read only on request."""


CONTROL_CHARACTERS = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
"""Characters of a name that would act on a terminal; tabs and line ends aren't among them."""


def select_categories(stacks: bool) -> dict[str, str]:
    """Return the table of each event category."""
    return CATEGORIES | STACK_CATEGORIES if stacks else CATEGORIES


WORKER_FUNCTIONS = ("execute_model", "run_batch", "_run_batch_inner", "forward_batch_generation", "_forward_step")
"""Functions of vLLM, SGLang and TensorRT-LLM, by the names of which Python calls end."""

WORKER_FRAME = rf"\): ({'|'.join(WORKER_FUNCTIONS)})$"
"""Such a call; the group is its function."""
WORKER_CALL = rf"^(?:{'|'.join(WORKER_FUNCTIONS)})$"
_ENDS = tuple(f"): {name}" for name in WORKER_FUNCTIONS)


def is_worker_call(name: object) -> bool:
    """Return whether a Python call, such as ``worker.py(12): execute_model``, runs a batch."""
    return isinstance(name, str) and name.endswith(_ENDS)
