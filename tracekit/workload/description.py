"""What each kernel is and the work it does, from its name and from the call that launched it."""

import re
from dataclasses import replace
from typing import Any

import polars as pl

from predictors.kernels import ROW_FAMILIES, TENSOR_FAMILIES
from tracekit import schema
from tracekit.workload import functions
from tracekit.workload.classify import classify, is_helper
from tracekit.workload.names import copy_kind_of, describe, dtype_of, is_indexed, item_bytes_of
from tracekit.workload.ops import chains, fbgemm, layout, norm, optimizer, passes, recurrent, state_space, work
from tracekit.workload.ops.conv import as_weight_gradient, is_weight_gradient
from tracekit.workload.ops.vector import Columns
from tracekit.workload.signature import ITEM_BYTES, Signature

CALL_SIGNATURE = (
    "op", "name", "kind", "input_dims", "input_types", "input_strides", "concrete_inputs", "output_dims", "quantised",
    "elements", "blocks", "threads_per_block", *functions.COLUMNS, "place", "products", "of_call",
)  # fmt: skip
DESCRIPTION = (
    "family", "dtype", "direction", "batch", "m", "n", "k", "heads", "kv_heads", "q_len", "kv_len", "head_dim",
    "causal", "window", "paged", "rows", "cols", "flops", "bytes", "work_low", "work_high", "copy_kind", "indexed",
    "across", "winograd", "part", "channels", "height", "width",
)  # fmt: skip
FROM_NAME = ("tile_m", "tile_n", "tile_k", "stages", "split_k", "layout", "tensor_core", "algorithm")
COMPILED_IN = ("batch", "m", "n", "k")
"""Sides of a GEMM that its name may tell; where its op's were recorded, these count."""
MOST_WORK = 1 << 58
"""Bytes or operations of a kernel, which would run for minutes."""
FUSED = "fused"
"""A reduction, norm or softmax that Inductor generated, with whatever else the kernel does."""
TREE = "tree"
"""PyTorch's own reduction (ATen/native/cuda/Reduce.cuh), in which the threads of a block sum up together."""
OWN_REDUCTION = re.compile(r"\breduce_kernel<")
GENERATED = re.compile(r"^triton_(?:per|red)_fused_")
MOST_OF_A_THREAD = 16
"""Elements, in PyTorch's elementwise kernels."""
MOVERS = {"memcpy": ("aten::copy_", "aten::_to_copy"), "memset": ("aten::zero_", "aten::fill_")}
EXTRA_TYPES = {
    "output_dims": pl.String,
    "quantised": pl.String,
    "elements": pl.Int64,
    "shares": pl.Boolean,
    **dict.fromkeys(functions.COLUMNS, pl.String),
    "place": pl.Int64,
    "products": pl.Int64,
    "of_call": pl.String,
}


def of_calls(signatures: pl.DataFrame) -> pl.DataFrame:
    """Family, dtype and work of each distinct kernel in each distinct call."""
    rows = [row | _describe_one(row) for row in signatures.iter_rows(named=True)]
    types = schema.KERNELS.dtypes | EXTRA_TYPES
    return pl.DataFrame(
        rows, schema={name: types[name] for name in (*CALL_SIGNATURE, *DESCRIPTION, *FROM_NAME, "shares")}
    )


def _describe_one(row: dict[str, Any]) -> dict[str, Any]:
    op, name, kind = row["op"], row["name"], row["kind"]
    family = classify(kind, name, op)
    by_name = dtype_of(name) if kind == "kernel" else None
    known = describe(name) if kind == "kernel" else None
    described = {"family": family, "dtype": by_name, "shares": False}
    described |= {column: getattr(known, column, None) for column in (*FROM_NAME, *COMPILED_IN)}
    if kind == "kernel":
        described["indexed"] = is_indexed(name)
    if kind == "memcpy":
        described["copy_kind"] = copy_kind_of(name)
    if op is None or row["input_dims"] is None:
        return described
    signature = _signature(row)
    if kind != "kernel":
        return described | {"bytes": _moved(signature, kind)}
    # Their precision is the instructions', which the kernel's name tells; elsewhere it is the inputs'.
    told = known is not None and known.dtype is not None and known.family in TENSOR_FAMILIES
    if not told and by_name != "tf32":
        by_inputs = signature.product_dtype if family in ("gemm", "moe") else signature.dtype
        cast = row["quantised"] if row["place"] is not None else None
        described["dtype"] = cast or by_inputs or by_name
    if described["indexed"]:
        described["across"] = signature.lies_across
    columns = _possible(_work(signature, family, by_name, row))
    recorded = dict.fromkeys(COMPILED_IN) if columns.get("m") is not None else {}
    return described | recorded | columns


def _signature(row: dict[str, Any]) -> Signature:
    """The op's inputs; of the backward pass of a Python function its forward call's, the first gradient as output."""
    recorded = (row["input_dims"], row["input_types"], row["concrete_inputs"], row["input_strides"], row["output_dims"])
    own = Signature.parse(row["op"], *recorded)
    if row["forward_dims"] is None:
        return own
    forward = Signature.parse(row["op"], *(row[column] for column in functions.COLUMNS))
    return replace(forward, output=own.shape(0))


def _possible(columns: dict[str, Any]) -> dict[str, Any]:
    """``columns``; none where a value of the op can't be meant, as what it would come to is more than any GPU does."""
    numbers = [value for value in columns.values() if isinstance(value, int | float)]
    return columns if all(0 <= number < MOST_WORK for number in numbers) else {}


def _moved(signature: Signature, kind: str) -> int | None:
    """Bytes of a copy or set, which AMD's traces don't record, from the op that asked for it."""
    target = signature.at(0)
    return target[0].numel * target[0].item_bytes(4) if target and signature.op in MOVERS[kind] else None


def _work(signature: Signature, family: str, by_name: str | None, row: dict[str, Any]) -> dict[str, Any]:
    """What one kernel does: its own part where that can be told, else the op's work, to be shared."""
    name = row["name"]
    item_bytes = item_bytes_of(name) or ITEM_BYTES.get(by_name or signature.dtype or "", 4)
    if fbgemm.OPS.search(signature.op):
        columns = fbgemm.work(signature, name, item_bytes)
        return {**(columns or {}), "shares": fbgemm.UPDATE.search(name) is not None}
    if row["place"] is not None:
        return {**(chains.product(signature, row["place"], row["products"]) or {}), "shares": False}
    if signature.op in recurrent.STATE_AND_DIRECTION:
        return {"shares": False, **(recurrent.work(signature, name, row["of_call"], item_bytes) or {})}
    if state_space.OPS.search(signature.op):
        return {"shares": False, **(state_space.work(signature, name, item_bytes) or {})}
    passed = passes.work(signature, name, item_bytes)
    if passed is not None:
        return {**passed, "shares": True}
    if is_helper(family, signature.op):
        return {"shares": False, **(layout.assistance(signature, name, row["blocks"]) or {})}
    own = norm.own_passes(signature, name, item_bytes, _room(row)) if family == "norm" else None
    if own is not None:
        return {**own, "shares": False}
    columns = work(signature, family, item_bytes)
    if columns is None and row["elements"] is not None:
        columns = optimizer.over_parameters(signature, name, row["elements"], item_bytes)
    return {**_in_direction(columns or {}, name), **_variant(signature.op, name, family), "shares": True}


def _variant(op: str, kernel: str, family: str) -> Columns:
    """What sort of reduction, norm or softmax a kernel is; nothing of other families."""
    if family not in (*ROW_FAMILIES, "reduction"):
        return {}
    part = FUSED if GENERATED.search(kernel) else _own_part(op, kernel, family)
    direction = "backward" if "backward" in op else "forward"
    return {"part": part, "direction": direction if family in ROW_FAMILIES else None}


def _own_part(op: str, kernel: str, family: str) -> str | None:
    """Which of PyTorch's own kernels over rows one is; ``None`` for any other."""
    if family == "norm":
        return norm.part_of_rows(op, kernel)
    return TREE if family == "reduction" and OWN_REDUCTION.search(kernel) else None


def _room(row: dict[str, Any]) -> int | None:
    """Elements that a kernel's threads can take, of which each takes several."""
    blocks, threads = row["blocks"], row["threads_per_block"]
    return blocks * threads * MOST_OF_A_THREAD if blocks and threads else None


def _in_direction(columns: Columns, kernel: str) -> Columns:
    backward = columns.get("direction") == "dgrad" and is_weight_gradient(kernel)
    return as_weight_gradient(columns) if backward else columns
