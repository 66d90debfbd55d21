"""Collectives: canonical names, message sizes and ranks from what torch.distributed recorded."""

import json
from typing import Any

import polars as pl

from tracekit.workload.owners import at_rows, innermost_ops
from tracekit.workload.parameters import GRADIENT
from tracekit.workload.signature import FLOATS, ITEM_BYTES, Signature

# nccl-tests' convention: the size of a collective is that of its whole buffer, which is the output of an all-gather
# and the input of everything else (nccl-tests, doc/PERFORMANCE.md).
SIZED_BY_OUTPUT = "all_gather"

NAMES = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all",
    "alltoall_base": "all_to_all",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "send": "send_recv",
    "recv": "send_recv",
}
ELEMENTS = {
    "Float": "fp32",
    "Half": "fp16",
    "BFloat16": "bf16",
    "Double": "fp64",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Byte": "int8",
    "Char": "int8",
    "Bool": "bool",
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e4m3fnuz", "Float8_e5m2", "Float8_e5m2fnuz"), "fp8"),
}
"""Type of a message as torch.distributed records it to that of its elements."""
ELEMENT_BYTES = {name: ITEM_BYTES[dtype] for name, dtype in ELEMENTS.items()}
DTYPES = {name: dtype for name, dtype in ELEMENTS.items() if dtype in (*FLOATS, "int8")}
"""To precision; other integers have none."""

# What a collective is and which of its inputs is the whole buffer, by the op that asked for it.
BUFFERS = {
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::allreduce_coalesced_": ("all_reduce", 0),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::reduce_": ("reduce", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::allgather_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d::alltoall_base_": ("all_to_all", 1),
    "c10d::alltoall_": ("all_to_all", 1),
    "c10d::allgather_into_tensor_coalesced_": ("all_gather", 0),
    "c10d::reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "symm_mem::multimem_all_reduce_": ("all_reduce", 0),
    "symm_mem::one_shot_all_reduce": ("all_reduce", 0),
    "symm_mem::two_shot_all_reduce_": ("all_reduce", 0),
    "_C_custom_ar::all_reduce": ("all_reduce", 1),
    "_C_custom_ar::all_reduce_reg": ("all_reduce", 1),
    "_C_custom_ar::all_reduce_unreg": ("all_reduce", 1),
    "sgl_kernel::all_reduce": ("all_reduce", 1),
}
BY_KERNEL = {
    r"AllReduce|(?i:all_?reduce)|cross_device_reduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Kernel_Reduce_": "reduce",
    r"(?:deep_ep|dpsk::ep)::int(?:ra|er)node": "all_to_all",
}
FUNCTIONAL = "_c10d_functional::"
"""Ops that call those above with a list of tensors, whose type lists don't tell; it is that of their first input."""

FP32_BYTES = 4
"""Of an element of a list of tensors, which is recorded without its type, where no kernel's name tells it."""

ADD_UP = ("all_reduce", "reduce_scatter", "reduce")

RECORDED_BY = "record_param_comms"
"""Runs inside the op that asked for the collective; its first input is what is sent."""


def describe(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with ``collective``, ``bytes``, ``ranks`` and ``dtype`` set on the rows of that family.

    Args:
        kernels: With the sizes that torch.distributed recorded, and ``op_row``.
        ops: As in the trace (``schema.OPS``): traces without those sizes have the buffers' shapes.
    """
    is_collective = pl.col("family") == "collective"
    name = pl.col("collective").replace(NAMES)
    nelems = pl.when(name == SIZED_BY_OUTPUT).then("out_nelems").otherwise("in_nelems")
    size = nelems * pl.col("collective_dtype").replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    told = kernels.join(_by_shapes(kernels, ops), on="op_row", how="left", maintain_order="left")
    told = told.with_columns(from_gradients=pl.col("guessed").fill_null(False) & _grids_fit(told))
    buffer = pl.when(pl.col("from_gradients") | ~pl.col("guessed").fill_null(False)).then("buffer_bytes")
    recorded_dtype = pl.col("collective_dtype").replace_strict(DTYPES, default=None, return_dtype=pl.String)
    by_kernel = [pl.when(pl.col("name").str.contains(word)).then(pl.lit(kind)) for word, kind in BY_KERNEL.items()]
    return told.with_columns(
        collective=pl.when(is_collective).then(pl.coalesce(name, "asked_for", *by_kernel)),
        bytes=pl.when(is_collective).then(pl.coalesce(size, buffer)).otherwise("bytes"),
        ranks=pl.when(is_collective).then("group_size"),
        dtype=pl.when(is_collective & recorded_dtype.is_not_null()).then(recorded_dtype).otherwise("dtype"),
    ).drop("asked_for", "buffer_bytes", "guessed")


def _grids_fit(told: pl.DataFrame) -> bool:
    """Whether no bucket is larger than one that got more channels.

    Buckets that fill out of turn, as in the first steps of a job, don't hold the gradients between two all-reduces.
    """
    buckets = told.filter("guessed").drop_nulls(["blocks", "buffer_bytes"]).group_by("blocks")
    sizes = buckets.agg(least=pl.col("buffer_bytes").min(), most=pl.col("buffer_bytes").max()).sort("blocks")
    return bool((sizes["most"].shift(1).cum_max() <= sizes["least"]).fill_null(True).all())


def _by_shapes(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """What each ``op_row`` asked for that launched a collective without a recorded size.

    ``asked_for`` (its kind), ``buffer_bytes`` and whether these are ``guessed`` from the gradients before it.
    """
    unsized = (pl.col("family") == "collective") & pl.col("in_nelems").is_null() & pl.col("op_row").is_not_null()
    launched = kernels.filter(unsized).group_by("op_row").agg(pl.first("dtype"), kernel=pl.first("name")).sort("op_row")
    owners = ops[launched["op_row"]]
    askers = ops.filter(pl.col("name").is_in(list(BUFFERS)))
    functional = ops.filter(pl.col("name").str.starts_with(FUNCTIONAL))
    asker, wrapper = innermost_ops(owners, askers), innermost_ops(owners, functional)
    asked = launched.with_columns(
        owners["name", "input_dims", "input_types"],
        asker=at_rows(askers["name"], asker),
        asker_ts=at_rows(askers["ts_ns"], asker),
        asker_dims=at_rows(askers["input_dims"], asker),
        asker_types=at_rows(askers["input_types"], asker),
        wrapper_types=at_rows(functional["input_types"], wrapper),
    )
    buckets = gradient_buckets(ops)
    rows = [(row["op_row"], *_buffer(row, buckets)) for row in asked.iter_rows(named=True)]
    schema = {"op_row": pl.Int64, "asked_for": pl.String, "buffer_bytes": pl.Int64, "guessed": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _buffer(row: dict[str, Any], buckets: dict[int, int]) -> tuple[str | None, int | None, bool]:
    asked = row["asker"] is not None
    kind, index = BUFFERS[row["asker"]] if asked else (None, 0)
    types = row["asker_types"]
    if types and row["wrapper_types"]:
        types = types.replace("TensorList", json.loads(row["wrapper_types"])[0])
    # Kernels that don't add up move bytes, whatever their name says.
    item = ITEM_BYTES.get(row["dtype"], FP32_BYTES) if kind in ADD_UP else FP32_BYTES
    size = _input_bytes(row["asker_dims"], types, index, item) if asked else None
    gathers = kind == SIZED_BY_OUTPUT or "AllGather" in row["kernel"]
    if size is None and row["name"] == RECORDED_BY and not gathers:
        size = _input_bytes(row["input_dims"], row["input_types"], 0, item)
    if size is None and row["asker"] == "c10d::allreduce_" and asked:
        return kind, buckets.get(row["asker_ts"]), True
    return kind, size, False


def _input_bytes(dims: str | None, types: str | None, index: int, item: int = FP32_BYTES) -> int | None:
    """Bytes of one input, or of all tensors of a list, whose elements are taken to have ``item``."""
    tensors = Signature.parse("", dims, types, None).at(index) if dims and types else []
    return sum(tensor.size_bytes(item) for tensor in tensors) if tensors else None


def gradient_buckets(ops: pl.DataFrame) -> dict[int, int]:
    """Bytes of the gradients that each all-reduce of DistributedDataParallel sends, by its start.

    A bucket goes out as soon as the last of its gradients is there, so it holds those since the one before.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    gradient = pl.col("name") == GRADIENT
    events = ops.filter(gradient & pl.col("input_dims").is_not_null() | (pl.col("name") == "c10d::allreduce_"))
    waiting: dict[tuple[int, int], int] = {}
    buckets: dict[int, int] = {}
    chosen = events.sort("ts_ns").select("ts_ns", "pid", "tid", "name", "input_dims", "input_types")
    for ts_ns, pid, tid, name, dims, types in chosen.iter_rows():
        if name == GRADIENT:
            waiting[pid, tid] = waiting.get((pid, tid), 0) + (_input_bytes(dims, types, 0) or 0)
        elif size := waiting.pop((pid, tid), 0):
            buckets[ts_ns] = size
    return buckets
