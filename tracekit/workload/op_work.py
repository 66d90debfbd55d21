"""Compute the family, precision and work of each kernel, from its name and from the call that launched it."""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import polars as pl

from predictors.kernels import ROW_FAMILIES, TENSOR_FAMILIES
from tracekit import schema
from tracekit.bounds import MAX_REMEMBERED_NAMES
from tracekit.ingest.cuda_graph_captures import WHOLE_GRAPH_NAME
from tracekit.models.lookups import IndexPattern
from tracekit.workload import call_inputs
from tracekit.workload.names import (
    infer_copy_kind,
    infer_dtype,
    infer_family,
    infer_item_bytes,
    infer_library,
    infer_weight_dtype,
    is_indexed,
    parse_kernel_name,
)
from tracekit.workload.ops import (
    compute_work,
    embedding,
    fbgemm,
    function_kernels,
    gemm_sequences,
    helper_kernels,
    norm,
    optimizer,
    recurrent,
    reduction,
    state_space,
)
from tracekit.workload.ops.conv import convert_to_weight_gradient, is_weight_gradient
from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.ops.registry import OPS, compute_kernel_work
from tracekit.workload.signature import ITEM_BYTES, Signature

OP_FAMILY_RULES = (
    (
        "linear_attention",
        r"(?i)gdn_attention|linear_attention|mamba|delta_?rule|causal_conv1d|selective_scan|short_conv|kda_attention",
    ),
    ("conv", r"convolution|conv_depthwise|thnn_conv"),
    ("attention", r"attention|_attn|mha|(Flash|Fused)Attn\w*Func"),
    ("moe", r"^(?!_moe_C::|sgl_kernel::moe_wna16_marlin).*moe"),
    (
        "gemm",
        r"::(mm|bmm|addmm_?|baddbmm_?|cutlass_scaled_mm|linear|matmul|mv|addmv_?)$"
        r"|::(gemm_a\d+w\d+|f8f8bf16|(fp8|int8)_\w*scaled_mm$|\w*(marlin|awq|gptq)_gemm$|deep_gemm)"
        r"|^_(LayerNorm|Grouped)?(Linear|MLP)(Backward)?$|^LinearWithGradAccumulation|fused_experts$",
    ),
    ("reduction", r"::(linalg_|linalg_vector_|frobenius_)?norm$"),
    ("norm", r"(?<!_foreach_)norm(?!al)"),
    ("softmax", r"softmax"),
    ("embedding", r"embedding|index_select"),
    ("optimizer", r"_foreach|::_fused_(adam|sgd|adagrad)"),
    ("collective", r"record_param_comms|^c10d::|^nccl:"),
    ("copy", r"::(copy_|cat|clone|contiguous|_to_copy|index|gather)$"),
)
# Inductor's kernel is its own op, and its name lists all ops that it fuses: the rules for ops don't apply.
GENERATED_OP = re.compile(r"^triton_")
_OP_PATTERNS = tuple((family, re.compile(pattern)) for family, pattern in OP_FAMILY_RULES)

# Families of generic kernels, which PyTorch uses for many ops: the op's family is more specific.
GENERIC_FAMILIES = ("elementwise", "copy", "reduction")
SPECIFIC_OP_FAMILIES = ("norm", "softmax", "embedding", "optimizer")
# A batch norm with given statistics is elementwise: it scales and shifts each element.
GIVEN_STATISTICS_NORM = re.compile(r"bn_fw_inf|BatchNormFwdInfer|batch_norm_elementwise")
# Families of ops whose work may run in a kernel with the name of a GEMM.
COMPUTE_FAMILIES = ("conv", "attention", "moe", "gemm")


@lru_cache(MAX_REMEMBERED_NAMES)
def classify_op(op: str | None) -> str | None:
    """Classify an op by its formula or its name; ``None`` if it has none and no rule matches."""
    if op is None or GENERATED_OP.search(op):
        return None
    if op in OPS:
        return OPS[op].family
    return next((family for family, pattern in _OP_PATTERNS if pattern.search(op)), None)


@lru_cache(MAX_REMEMBERED_NAMES)
def classify_activity(kind: str, kernel: str, op: str | None) -> str:
    """Classify one GPU activity, a kernel, memcpy or memset, into a family."""
    if kind != "kernel":
        return kind
    if re.search(WHOLE_GRAPH_NAME, kernel):
        return "other"
    if GIVEN_STATISTICS_NORM.search(kernel):
        return "elementwise"
    by_kernel, by_op = infer_family(kernel), classify_op(op)
    known = OPS.get(op or "")
    if known is not None and not known.is_product and by_kernel in TENSOR_FAMILIES:
        return known.family  # its formula is one of memory traffic, whatever the kernel's name sounds like
    if by_kernel == "gemm" and by_op in COMPUTE_FAMILIES:
        return by_op
    if by_kernel == "moe" and by_op == "gemm":
        return "gemm"  # a grouped GEMM whose op has the shapes
    if by_kernel in GENERIC_FAMILIES and by_op in SPECIFIC_OP_FAMILIES and _has_family_of_op(by_op, op):
        return by_op
    return by_kernel or by_op or "other"


def _has_family_of_op(family: str, op: str | None) -> bool:
    """Return whether all kernels of an op have its family: true of PyTorch's own ops, not of other fused ops."""
    return family == "optimizer" or (op or "").startswith("aten::")


def is_helper(family: str, op: str | None) -> bool:
    """Return whether a kernel only assists its op (layout change, split-K sum, cast), without doing its work."""
    by_op = classify_op(op)
    return by_op in COMPUTE_FAMILIES and family != by_op


CALL_COLUMNS = (
    "op", "name", "kind", "input_dims", "input_types", "input_strides", "concrete_inputs", "output_dims", "quantised",
    "elements", "blocks", "threads_per_block", *call_inputs.FORWARD_COLUMNS, "place", "products", "of_call",
)  # fmt: skip
WORK_COLUMNS = (
    "library", "family", "dtype", "weight_dtype", "direction",
    "batch", "m", "n", "k", "heads", "kv_heads", "q_len", "kv_len", "head_dim",
    "causal", "window", "cache_width", "kv_dtype", "mask_bytes", "mask_batch", "mask_heads",
    "paged", "rows", "cols", "flops", "bytes", "work_low", "work_high", "copy_kind",
    "indexed",
    "across", "winograd", "part", "channels", "channels_first", "height", "width", "tokens", "experts", "top_k",
    "hidden", "inter", "topk",
    "serial_clocks", "warp_clocks", "accessed_bytes", "reuse_bytes", "distinct_bytes", "streamed_bytes", "host_bytes",
)  # fmt: skip
KERNEL_NAME_COLUMNS = ("tile_m", "tile_n", "tile_k", "stages", "split_k", "layout", "tensor_core", "algorithm")
GEMM_SIZE_COLUMNS = ("batch", "m", "n", "k")
"""Sizes of a GEMM that its kernel's name may have; sizes recorded with the op take precedence."""
BLOCK_SCALED_DTYPES = ("nvfp4", "mxfp4", "mxfp8")
"""Precisions that no type of a tensor says: they are recorded as bytes, or made within the op."""
MAX_WORK = 1 << 58
"""Maximum bytes or operations of a kernel; more would run for minutes."""
FUSED_PART = "fused"
"""A reduction, norm or softmax that Inductor generated, with whatever else the kernel does."""
TREE_REDUCTION = "tree"
"""PyTorch's own reduction (ATen/native/cuda/Reduce.cuh), in which the threads of a block sum up together."""
OWN_REDUCTION = re.compile(r"\breduce_kernel<")
GENERATED_KERNEL = re.compile(r"^triton_(?:per|red)_fused_")
MAX_ELEMENTS_PER_THREAD = 16
"""Maximum elements per thread of PyTorch's elementwise kernels."""
MOVING_OPS = {"memcpy": ("aten::copy_", "aten::_to_copy"), "memset": ("aten::zero_", "aten::fill_")}
EXTRA_TYPES = {
    "output_dims": pl.String,
    "quantised": pl.String,
    "elements": pl.Int64,
    "shares": pl.Boolean,
    **dict.fromkeys(call_inputs.FORWARD_COLUMNS, pl.String),
    "place": pl.Int64,
    "products": pl.Int64,
    "of_call": pl.String,
}


def compute_work_of_calls(signatures: pl.DataFrame, pattern: IndexPattern | None = None) -> pl.DataFrame:
    """Compute family, dtype and work of each distinct kernel in each distinct call.

    The calls have ``CALL_COLUMNS``.
    """
    rows = [row | _describe_call(row | {"pattern": pattern}) for row in signatures.iter_rows(named=True)]
    types = schema.KERNELS.dtypes | EXTRA_TYPES
    return pl.DataFrame(
        rows, schema={name: types[name] for name in (*CALL_COLUMNS, *WORK_COLUMNS, *KERNEL_NAME_COLUMNS, "shares")}
    )


def _describe_call(row: dict[str, Any]) -> dict[str, Any]:
    op, name, kind = row["op"], row["name"], row["kind"]
    family = classify_activity(kind, name, op)
    by_name = infer_dtype(name) if kind == "kernel" else None
    known = parse_kernel_name(name) if kind == "kernel" else None
    described = {"family": family, "dtype": by_name, "shares": False}
    described |= {column: getattr(known, column, None) for column in (*KERNEL_NAME_COLUMNS, *GEMM_SIZE_COLUMNS)}
    if kind == "kernel":
        described |= {"library": infer_library(name), "weight_dtype": infer_weight_dtype(name)}
        described["indexed"] = is_indexed(name)
    if kind == "memcpy":
        described["copy_kind"] = infer_copy_kind(name)
    if op is None or row["input_dims"] is None:
        return described
    signature = _parse_signature(row)
    if kind != "kernel":
        return described | {"bytes": _compute_moved_bytes(signature, kind)}
    # The precision of tensor-core families is that of the instructions, in the kernel's name; elsewhere the inputs'.
    told = known is not None and known.dtype is not None and known.family in TENSOR_FAMILIES
    told = told or (family in TENSOR_FAMILIES and by_name in BLOCK_SCALED_DTYPES)
    if not told and by_name != "tf32":
        by_inputs = signature.gemm_dtype if family in ("gemm", "moe") else signature.dtype
        cast = row["quantised"] if row["place"] is not None else None
        described["dtype"] = cast or by_inputs or by_name
    if described["indexed"]:
        described["across"] = signature.mixes_layouts
    columns = _drop_impossible(_compute_work(signature, family, by_name, row))
    recorded = dict.fromkeys(GEMM_SIZE_COLUMNS) if columns.get("m") is not None else {}
    return described | recorded | columns


def _parse_signature(row: dict[str, Any]) -> Signature:
    """Parse the op's inputs.

    The backward pass of a Python function gets the inputs of its forward call, with its first gradient as output.
    """
    recorded = (row["input_dims"], row["input_types"], row["concrete_inputs"], row["input_strides"], row["output_dims"])
    own = Signature.parse(row["op"], *recorded)
    if row["quantised"] is not None:
        own = replace(own, cast=row["quantised"])
    if row["forward_dims"] is None:
        return own
    forward = Signature.parse(row["op"], *(row[column] for column in call_inputs.FORWARD_COLUMNS))
    return replace(forward, output=own.get_shape(0))


def _drop_impossible(columns: dict[str, Any]) -> dict[str, Any]:
    """Return ``columns``, or none of them if one value exceeds what any GPU can do: the op was misread."""
    numbers = [value for value in columns.values() if isinstance(value, int | float)]
    return columns if all(0 <= number < MAX_WORK for number in numbers) else {}


def _compute_moved_bytes(signature: Signature, kind: str) -> int | None:
    """Compute the bytes of a copy or set, which AMD's traces don't record, from the op that asked for it."""
    target = signature.get_tensors(0)
    return target[0].numel * target[0].get_item_bytes(4) if target and signature.op in MOVING_OPS[kind] else None


def _compute_work(signature: Signature, family: str, by_name: str | None, row: dict[str, Any]) -> dict[str, Any]:
    """Compute the work of one kernel: its own part if known, else the op's work, to be split among its kernels."""
    name = row["name"]
    item_bytes = infer_item_bytes(name) or ITEM_BYTES.get(by_name or signature.dtype or "", 4)
    own_part = _compute_own_part(signature, name, item_bytes, row)
    if own_part is not None:
        return {"shares": False, **own_part}
    passed = function_kernels.compute_function_traffic(signature, name, item_bytes)
    if passed is not None:
        return {**passed, "shares": True}
    if is_helper(family, signature.op) or helper_kernels.sorts_indices(signature.op, name):
        return {"shares": False, **(helper_kernels.compute_helper_work(signature, name, row["blocks"]) or {})}
    own = (
        norm.compute_partial_norm(signature, name, item_bytes, _count_thread_elements(row))
        if family == "norm"
        else None
    )
    if own is not None:
        return {**own, "shares": False}
    if family == "reduction":
        signature = reduction.cast_to_read_type(signature, name)
    columns = compute_work(signature, family, item_bytes)
    if columns is None and row["elements"] is not None:
        columns = optimizer.compute_traffic_without_lists(signature, name, row["elements"], item_bytes)
    return {**_apply_direction(columns or {}, name), **_classify_variant(signature.op, name, family), "shares": True}


def _compute_own_part(signature: Signature, name: str, item_bytes: int, row: dict[str, Any]) -> Columns | None:
    """Compute the work of a kernel of an op whose kernels each have a part of their own; ``None`` for other ops."""
    pattern: IndexPattern | None = row["pattern"]
    own_kernel = compute_kernel_work(signature, name, item_bytes)
    if own_kernel is not None:
        return own_kernel
    if fbgemm.FBGEMM_OPS.search(signature.op):
        columns = fbgemm.compute_fbgemm_work(signature, name, item_bytes, pattern)
        return {**(columns or {}), "shares": fbgemm.SHARING_KERNEL.search(name) is not None}
    if row["place"] is not None:
        return gemm_sequences.compute_gemm_in_sequence(signature, row["place"], row["products"]) or {}
    if signature.op in recurrent.STATE_AND_DIRECTION_POSITIONS:
        return recurrent.compute_recurrent_work(signature, name, row["of_call"], item_bytes) or {}
    if state_space.STATE_SPACE_OPS.search(signature.op):
        return state_space.compute_state_space_work(signature, name, item_bytes) or {}
    looked_up = embedding.compute_bag_lookup(signature, item_bytes, pattern)
    looked_up = looked_up or fbgemm.compute_quantised_lookup(signature, pattern)
    if looked_up is not None:
        return looked_up | {"shares": True}
    return embedding.compute_gradient_work(signature, name, item_bytes, pattern)


def _classify_variant(op: str, kernel: str, family: str) -> Columns:
    """Classify the variant of a reduction, norm or softmax; return nothing for other families."""
    if family not in (*ROW_FAMILIES, "reduction"):
        return {}
    part = FUSED_PART if GENERATED_KERNEL.search(kernel) else _classify_own_part(op, kernel, family)
    direction = "backward" if "backward" in op else "forward"
    return {"part": part, "direction": direction if family in ROW_FAMILIES else None}


def _classify_own_part(op: str, kernel: str, family: str) -> str | None:
    """Which of PyTorch's own kernels over rows one is; ``None`` for any other."""
    if family == "norm":
        return norm.classify_row_norm(op, kernel)
    return TREE_REDUCTION if family == "reduction" and OWN_REDUCTION.search(kernel) else None


def _count_thread_elements(row: dict[str, Any]) -> int | None:
    """Compute the number of elements that a kernel's threads can take, several per thread."""
    blocks, threads = row["blocks"], row["threads_per_block"]
    return blocks * threads * MAX_ELEMENTS_PER_THREAD if blocks and threads else None


def _apply_direction(columns: Columns, kernel: str) -> Columns:
    backward = columns.get("direction") == "dgrad" and is_weight_gradient(kernel)
    return convert_to_weight_gradient(columns) if backward else columns
