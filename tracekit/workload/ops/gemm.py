"""Compute the work of GEMMs: out[m,n] = a[m,k] b[k,n], ``batch`` times; dense, quantised, grouped, sparse."""

import math
from collections.abc import Sequence
from typing import Any

from predictors.kernels import INDEXER_LAW
from tracekit.workload.ops import gemm_sequences
from tracekit.workload.ops.elementwise import broadcast_shapes
from tracekit.workload.ops.gemm_sequences import TokenSpread
from tracekit.workload.ops.memory_traffic import Columns, Formula, sum_bytes
from tracekit.workload.ops.registry import op
from tracekit.workload.signature import ITEM_BYTES, Signature, Tensor

ADDED, BETA = 0, 3
"""Positions of the added matrix and its factor in ``addmm`` and its kin."""
MIN_RESULT_BYTES = 2
"""Minimum bytes per element of a result: that of narrower formats is of 16 bit."""


def _make_gemm_formula(a: int, b: int) -> Formula:
    """Make the formula of an op whose inputs ``a`` and ``b`` are [..., m, k] and [..., k, n]."""

    def columns(signature: Signature) -> Columns | None:
        left, right = signature.get_shape(a), signature.get_shape(b)
        if left is None or right is None or len(left) < 2 or len(right) < 2:
            return None
        sizes = {"batch": math.prod(left[:-2]), "m": left[-2], "n": right[-1], "k": left[-1]}
        return sizes | _find_run(signature, a, b, left[-1])

    return columns


def _find_run(signature: Signature, a: int, b: int, k: int) -> Columns:
    """Find how many elements lie side by side in operands, as ``channels``, where that isn't the depth in any of them.

    It tells whether loads are aligned: of both numbers the one that is divisible by more powers of two. A weight's
    gradient, for one, is a product whose depth, the tokens, may be odd without harm::

        gradient [k, m] transposed, input [k, n]     runs: m and n
    """
    runs = [_count_run(signature.get_tensor(place)) for place in (a, b)]
    known = [run for run in runs if run]
    if len(known) < len(runs) or k in known:
        return {}
    return {"channels": max(known, key=lambda run: run & -run)}


def _count_run(matrix: Tensor | None) -> int | None:
    """Return how many elements lie side by side in a matrix; None where its strides don't tell."""
    if matrix is None or len(matrix.strides) != len(matrix.shape):
        return None
    runs = (size for size, stride in zip(matrix.shape[:-3:-1], matrix.strides[:-3:-1], strict=True) if stride == 1)
    return next(runs, None)


@op("aten::linear", family="gemm")
def _compute_linear(signature: Signature) -> Columns | None:
    """Compute the GEMM of input [..., k] and weight [n, k]."""
    left, right = signature.get_shape(0), signature.get_shape(1)
    if not left or right is None or len(right) != 2:
        return None
    return {"batch": 1, "m": math.prod(left[:-1]), "n": right[0], "k": left[-1]}


@op("aten::matmul", family="gemm")
def _compute_matmul(signature: Signature) -> Columns | None:
    """Compute the GEMM of [..., m, k] and [..., k, n]; a single right matrix makes all rows on the left one GEMM."""
    left, right = signature.get_shape(0), signature.get_shape(1)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    if len(right) == 2:
        return {"batch": 1, "m": math.prod(left[:-1]), "n": right[1], "k": left[-1]}
    batch = math.prod(broadcast_shapes((left[:-2], right[:-2])))
    return {"batch": batch, "m": left[-2], "n": right[-1], "k": left[-1]}


def _make_matrix_vector_formula(a: int) -> Formula:
    def columns(signature: Signature) -> Columns | None:
        matrix = signature.get_shape(a)
        return {"batch": 1, "m": matrix[0], "n": 1, "k": matrix[1]} if matrix and len(matrix) == 2 else None

    return columns


def _add_matrix(product: Formula, axes: int) -> Formula:
    """Make the formula of an op that adds its first input to a product of ``axes`` axes.

    It is read as well, unless it is broadcast: a bias is as good as nothing.
    """

    def columns(signature: Signature) -> Columns | None:
        sizes, added = product(signature), signature.get_tensor(ADDED)
        if sizes is None or added is None or len(added.shape) < axes or signature.get_value(BETA) == 0:
            return sizes
        batch, m, n, k = (int(sizes[name] or 0) for name in ("batch", "m", "n", "k"))
        if added.stored_elements < batch * m * n:
            return sizes
        size = ITEM_BYTES[signature.gemm_dtype or "fp32"]
        results = 2 * m * n * max(size, MIN_RESULT_BYTES)
        return {**sizes, "bytes": batch * ((m * k + k * n) * size + results)}

    return columns


op(
    "aten::mm", "aten::bmm", "sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm",
    "sgl_kernel::fp8_blockwise_scaled_mm", family="gemm",
)(_make_gemm_formula(0, 1))  # fmt: skip
op("aten::addmm", "aten::addmm_", "aten::_addmm_activation", family="gemm")(_add_matrix(_make_gemm_formula(1, 2), 2))
op("aten::baddbmm", "aten::baddbmm_", family="gemm")(_add_matrix(_make_gemm_formula(1, 2), 3))
op("aten::mv", family="gemm")(_make_matrix_vector_formula(0))
op("aten::addmv", "aten::addmv_", family="gemm")(_add_matrix(_make_matrix_vector_formula(1), 1))


ACCUMULATOR_BYTES = 4
"""Bytes of the output of integer GEMMs, int32."""


@op("aten::_scaled_mm", "aten::_scaled_mm_v2", family="gemm")
def _compute_scaled_mm(signature: Signature) -> Columns | None:
    """Compute the GEMM of operands [m, k] and [k, n]; 4-bit operands store two elements in each along k."""
    left, right = signature.get_tensors(0), signature.get_tensors(1)
    if not left or not right or len(left[0].shape) != 2 or len(right[0].shape) != 2:
        return None
    return {
        "batch": 1,
        "m": left[0].shape[0],
        "n": right[0].shape[1],
        "k": _count_packed_elements(signature) * left[0].shape[1],
    }


def _count_packed_elements(signature: Signature) -> int:
    """Count the elements along k in each stored element of the first operand."""
    return 2 if signature.get_tensors(0)[0].dtype == "nvfp4" else 1


@op(
    "_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp", "_C::dsv3_fused_a_gemm", "sgl_kernel::dsv3_fused_a_gemm",
    family="gemm",
)  # fmt: skip
def _compute_scaled_mm_out(signature: Signature) -> Columns | None:
    """Compute the same GEMM from the output [m, n], which comes first, and the operands after it."""
    out, left = signature.get_shape(0), signature.get_shape(1)
    if out is None or left is None or len(out) != 2 or len(left) != 2:
        return None
    return {"batch": 1, "m": out[0], "n": out[1], "k": left[1]}


@op(
    "aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2", "tracekit::quantised_grouped_mm",
    family="gemm",
)  # fmt: skip
def _compute_grouped_mm(signature: Signature) -> Columns | None:
    """Compute one GEMM per group; groups that split an axis of a two-axis operand are assumed to be even.

    4-bit operands store two elements in each along k.
    """
    ends_at = {"aten::_scaled_grouped_mm": 4, "aten::_scaled_grouped_mm_v2": 8}.get(signature.op, 2)
    left, right, ends = signature.get_shape(0), signature.get_shape(1), signature.get_tensors(ends_at)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    m, k, n = left[-2], _count_packed_elements(signature) * left[-1], right[-1]
    told = _name_precision(signature.get_value(3)) if signature.op.startswith("tracekit::") else {}
    if len(left) == 3 and len(right) == 3:
        return {"batch": left[0], "m": m, "n": n, "k": k} | told
    if not ends:
        return None
    groups = max(ends[0].numel, 1)
    if len(right) == 3:
        m = math.ceil(m / groups)
    elif len(left) == 3:
        n = math.ceil(n / groups)
    else:
        k = math.ceil(k / groups)
    return {"batch": groups, "m": m, "n": n, "k": k} | told


def _make_packed_weight_formula(*, outputs: int, axis: int = 0, scales: tuple[int, ...] = ()) -> Formula:
    """Make the formula of an op with input [..., k] and a packed weight first, and n at ``axis`` of ``outputs``.

    Args:
        outputs: Argument with an axis as long as the output is wide: a tensor, or the list of the weight's sizes.
        axis: That axis.
        scales: Further arguments that are read.
    """

    def columns(signature: Signature) -> Columns | None:
        x, weight, wide = (
            signature.get_tensors(0),
            signature.get_tensors(1),
            signature.get_shape(outputs) or signature.get_integers(outputs),
        )
        if not x or not weight or not x[0].shape or not wide or len(wide) <= axis:
            return None
        m, n, k = math.prod(x[0].shape[:-1]), wide[axis], x[0].shape[-1]
        size = x[0].get_item_bytes(2)
        read = weight[0].compute_bytes(1) + sum(
            t.compute_bytes(2) for index in scales for t in signature.get_tensors(index)
        )
        return {"batch": 1, "m": m, "n": n, "k": k, "bytes": read + (m * k + m * n) * size}

    return columns


def _make_int8_formula(*, transposed: bool) -> Formula:
    """Make the formula of an op with 8-bit operands [..., k] and [k, n], or [n, k]."""

    def columns(signature: Signature) -> Columns | None:
        left, right = signature.get_shape(0), signature.get_shape(1)
        if left is None or right is None or not left or len(right) != 2:
            return None
        m, k, n = math.prod(left[:-1]), left[-1], right[0 if transposed else 1]
        size = ITEM_BYTES["int8"] * (m * k + k * n) + ACCUMULATOR_BYTES * m * n
        return {"batch": 1, "m": m, "n": n, "k": k, "dtype": "int8", "bytes": size}

    return columns


@op(
    *(f"primus_turbo_cpp_extension::hipblaslt_gemm{kind}" for kind in ("", "_fp8", "_fp4")),
    *(f"primus_turbo::hipblaslt_gemm{kind}" for kind in ("", "_fp8", "_fp4")),
    family="gemm",
)
def _compute_flagged(signature: Signature) -> Columns | None:
    """Compute the GEMM of two matrices, each perhaps with its scale after it, the type of the output, and two flags.

    The flags say which matrix is transposed. 4-bit operands store two elements in each along k.
    """
    places = [place for place in range(3) if len(signature.get_shape(place) or ()) == 2]
    if len(places) < 2 or places[0] != 0:
        return None
    flags = 5 if places[-1] == 2 else 3
    shapes = []
    for place, flag in ((0, flags), (places[-1], flags + 1)):
        shape, turned = signature.get_shape(place), signature.get_value(flag)
        if shape is None or not isinstance(turned, bool):
            return None
        shapes.append(shape[::-1] if turned else shape)
    (m, k), (depth, n) = shapes
    return {"batch": 1, "m": m, "n": n, "k": _count_packed_elements(signature) * k} if k == depth else None


@op("_Linear", "_LayerNormLinear", family="gemm")
def _compute_linear_function(signature: Signature) -> Columns | None:
    """Compute TransformerEngine's autograd function around one GEMM."""
    known = gemm_sequences.find_linear_sizes(signature)
    return None if known is None else {"batch": 1, "m": known[0], "n": known[1], "k": known[2]}


op("aten::_int_mm", family="gemm")(_make_int8_formula(transposed=False))
op("aten::_weight_int4pack_mm", family="gemm")(_make_packed_weight_formula(outputs=3, axis=1, scales=(3,)))
op("aten::_weight_int8pack_mm", family="gemm")(_make_packed_weight_formula(outputs=2, scales=(2,)))
op("bitsandbytes::int8_linear_matmul", family="gemm")(_make_int8_formula(transposed=True))
op("bitsandbytes::gemv_4bit", family="gemm")(_make_packed_weight_formula(outputs=2, scales=(3,)))
op("bitsandbytes::gemm_4bit", family="gemm")(_make_packed_weight_formula(outputs=2, scales=(3, 7)))


FOUR_BIT_PER_INT32 = 8
"""Number of 4-bit weights in an int32."""


def _make_linear(index: int, *, x: int = 0) -> Formula:
    """Make the formula of an op with input [..., k] at ``x`` and a weight [n, k] at ``index``."""

    def columns(signature: Signature) -> Columns | None:
        rows, weight = signature.get_shape(x), signature.get_shape(index)
        if not rows or weight is None or len(weight) != 2 or weight[1] != rows[-1]:
            return None
        return {"batch": 1, "m": math.prod(rows[:-1]), "n": weight[0], "k": rows[-1]}

    return columns


@op("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm", family="gemm")
def _compute_nvfp4_mm(signature: Signature) -> Columns | None:
    """Compute the GEMM of operands [m, k / 2] and [n, k / 2], two elements per byte, into the output [m, n]."""
    out, left = signature.get_shape(0), signature.get_shape(1)
    if out is None or left is None or len(out) != 2 or len(left) != 2:
        return None
    return {"batch": 1, "m": out[0], "n": out[1], "k": 2 * left[1], "dtype": "nvfp4"}


def _build_stored_gemm(signature: Signature, n: int) -> Columns | None:
    """Build the GEMM of input [m, k]; weight, scales and zeros are the other matrices, read as they are stored."""
    x, *others = [tensor for tensor in signature.tensors if len(tensor.shape) == 2]
    m, k = x.shape
    read = sum(tensor.compute_bytes(2) for tensor in others if tensor.shape != (m, n))
    return {"batch": 1, "m": m, "n": n, "k": k, "bytes": read + (m * k + m * n) * x.get_item_bytes(2)}


@op("_C::marlin_gemm", "_C::gptq_marlin_gemm", "_C::fp8_marlin_gemm", "sgl_kernel::gptq_marlin_gemm", family="gemm")
def _read_marlin(signature: Signature) -> Columns | None:
    """Compute Marlin's GEMM; its versions differ in their arguments, but m, n and k are always three in a row."""
    x = signature.get_shape(0)
    if x is None or len(x) != 2:
        return None
    n = _find_output_width(x, [signature.get_value(index) for index in range(len(signature.dims))])
    return None if n is None else _build_stored_gemm(signature, n)


@op("_moe_C::moe_wna16_marlin_gemm", "sgl_kernel::moe_wna16_marlin_gemm", family="gemm")
def _read_marlin_moe(signature: Signature) -> Columns | None:
    """Compute Marlin's grouped GEMM for a mixture of experts; experts per token come before the first flag.

    Its versions differ in their arguments. Input [m, k], weights of each expert at 2. Each expert with tokens
    (:mod:`tracekit.workload.ops.gemm_sequences`) is read as it is stored.
    """
    x, weights = signature.get_shape(0), signature.get_shape(2)
    values = [signature.get_value(index) for index in range(len(signature.dims))]
    n = _find_output_width(x, values)
    if not x or not weights or n is None:
        return None
    flag = next((i for i, value in enumerate(values) if isinstance(value, bool)), 0)
    top_k = signature.get_integer(flag - 1) if flag else None
    m, k = x
    if top_k is None or not 0 < top_k <= weights[0] or not m:
        return None
    spread = TokenSpread(m, weights[0], top_k)
    stored = sum(t.compute_bytes(2) for t in signature.tensors[1:] if len(t.shape) == 3 and t.shape[0] == weights[0])
    activations = (m * k + m * top_k * n) * signature.get_tensors(0)[0].get_item_bytes(2)
    return spread.build_columns(n, k) | {"bytes": stored * spread.hit // weights[0] + activations}


def _find_output_width(x: Sequence[int] | None, values: Sequence[Any]) -> int | None:
    """Find n, the middle of three consecutive numbers m, n, k, of which m and k are the input's axes."""
    triples = zip(values, values[1:], values[2:], strict=False)
    return next((n for m, n, k in triples if [m, k] == [*(x or ())] and isinstance(n, int)), None)


def _make_packed_formula(by: int) -> Formula:
    """Make the formula of an op with input [m, k] and a weight that packs ``by`` columns in each element."""

    def columns(signature: Signature) -> Columns | None:
        x, weight = signature.get_shape(0), signature.get_shape(1)
        if x is None or weight is None or len(x) != 2 or len(weight) != 2:
            return None
        return _build_stored_gemm(signature, by * weight[1])

    return columns


op(
    "aiter::gemm_a16w16", "aiter::gemm_a16w16_asm", "aiter::gemm_a8w8_ck", "aiter::gemm_a8w8_bpreshuffle_ck",
    "vllm::rocm_unquantized_gemm", "vllm::apply_w8a8_block_fp8_linear", "fbgemm::f8f8bf16",
    "fbgemm::f8f8bf16_rowwise", "fbgemm::f8f8bf16_tensorwise", "fbgemm::f8f8bf16_blockwise", family="gemm",
)(_make_linear(1))  # fmt: skip
op("_rocm_C::LLMM1", "_rocm_C::wvSplitK", "_rocm_C::wvSplitKrc", "_rocm_C::wvSplitKQ", family="gemm")(
    _make_linear(0, x=1)
)
op("sglang::deep_gemm_fp8_fp8_bf16_nt", family="gemm")(_make_linear(2))
op("_C::awq_gemm", family="gemm")(_make_packed_formula(FOUR_BIT_PER_INT32))
op("_C::gptq_gemm", "sgl_kernel::gptq_gemm", family="gemm")(_make_packed_formula(1))


STORED_SIXTEENTHS = {"int8": 10}
"""Elements that cuSPARSELt stores for sixteen, with the positions of the nonzero ones; 9 for all other types."""
MIN_OUTPUT_BYTES = 2


def _build_sparse_gemm(rows: int, columns: int, half: int, dense: Tensor, stored: list[Tensor]) -> Columns:
    """Build the GEMM of a dense operand [rows, 2 x half] and a sparse one with ``columns``."""
    item = dense.get_item_bytes(2)
    read = sum_bytes(stored, 2) + 2 * half * rows * item
    written = rows * columns * max(item, MIN_OUTPUT_BYTES)
    return {"batch": 1, "m": rows, "n": columns, "k": half, "bytes": read + written}


@op("aten::_sparse_semi_structured_linear", family="gemm")
def _compute_sparse_linear(signature: Signature) -> Columns | None:
    """Compute the GEMM of input [..., k] and weight [n, k / 2] with the positions of its elements."""
    x, weight = signature.get_tensors(0), signature.get_tensors(1)
    if not x or not weight or not x[0].shape or len(weight[0].shape) != 2 or x[0].shape[-1] != 2 * weight[0].shape[1]:
        return None
    rows = math.prod(x[0].shape[:-1])
    return _build_sparse_gemm(rows, *weight[0].shape, x[0], [weight[0], *signature.get_tensors(2)])


def _compute_sparse_mm(signature: Signature, first: int) -> Columns | None:
    """Compute the GEMM of a sparse operand [n, k / 2] at ``first``, its elements' positions, and a dense one [k, m]."""
    sparse, dense = signature.get_tensors(first), signature.get_tensors(first + 2)
    if not sparse or not dense or len(sparse[0].shape) != 2 or len(dense[0].shape) != 2:
        return None
    return _build_sparse_gemm(
        dense[0].shape[1], *sparse[0].shape, dense[0], [sparse[0], *signature.get_tensors(first + 1)]
    )


@op("aten::_cslt_sparse_mm", family="gemm")
def _compute_compressed_mm(signature: Signature) -> Columns | None:
    """Compute the GEMM of a sparse operand [n, k] as cuSPARSELt stores it, in any shape, and a dense one [k, m]."""
    sparse, dense = signature.get_tensors(0), signature.get_tensors(1)
    if not sparse or not dense or len(dense[0].shape) != 2 or not dense[0].shape[0]:
        return None
    k, rows = dense[0].shape
    columns = sparse[0].numel * 16 // STORED_SIXTEENTHS.get(sparse[0].dtype or "", 9) // k
    return _build_sparse_gemm(rows, columns, k // 2, dense[0], sparse)


op("aten::_sparse_semi_structured_mm", family="gemm")(lambda signature: _compute_sparse_mm(signature, 0))
op("aten::_sparse_semi_structured_addmm", family="gemm")(lambda signature: _compute_sparse_mm(signature, 1))


UNPACKED_WEIGHTS = ("int4", "mxfp4")
EXPERT_FORMATS = {"int4": "int4_wo", "mxfp4": "w4a16_mxfp4"}
"""Formats of experts' weights that products in 16 bits unpack, as the laws of whole layers of experts name them."""


SCORE_BYTES = ITEM_BYTES["fp32"]
"""Of an indexer's scores."""


@op("tracekit::quantised_linear", family="gemm")
def _compute_quantised_linear(signature: Signature) -> Columns | None:
    """Compute a captured engine's GEMM of input [m, k] and weight [k, n], in the precision of its last argument."""
    left, right, dtype = signature.get_shape(0), signature.get_shape(1), signature.get_value(2)
    if left is None or right is None or len(left) != 2 or len(right) != 2:
        return None
    return {"batch": 1, "m": left[0], "n": right[1], "k": left[1], **_name_precision(dtype)}


@op("tracekit::index_scores", family="gemm")
def _compute_index_scores(signature: Signature) -> Columns | None:
    """Compute an indexer's scores: queries [sequences, tokens, heads, width], keys [sequences, keys, width].

    A query of a prompt sees the keys before it, half of them on average. Scores are summed up over heads.
    """
    q, k = signature.get_shape(0), signature.get_shape(1)
    if not q or not k or len(q) != 4 or len(k) != 3:
        return None
    (sequences, each, heads, width), keys = q, k[1]
    seen = keys - each // 2
    moved = each * seen * SCORE_BYTES + (each * heads + keys) * width
    sizes = {"batch": sequences, "m": each * heads, "n": seen, "k": width}
    return {**sizes, "bytes": sequences * moved, "part": INDEXER_LAW, "dtype": "fp8"}


@op("tracekit::expert_gemm", family="gemm")
def _compute_expert_gemm(signature: Signature) -> Columns | None:
    """Compute a captured engine's grouped GEMM: input [tokens, k], weights [experts, k, n], top k, precision."""
    x, weights, top_k = signature.get_shape(0), signature.get_shape(1), signature.get_integer(2)
    if not x or weights is None or len(weights) != 3 or top_k is None or min(top_k, x[0], weights[0]) < 1:
        return None
    spread = TokenSpread(x[0], weights[0], min(top_k, weights[0]))
    return spread.build_columns(weights[2], weights[1]) | _name_precision(signature.get_value(3))


@op("tracekit::packed_experts", family="moe")
def _compute_packed_experts(signature: Signature) -> Columns | None:
    """Compute a captured engine's gated experts: input [tokens, hidden], weights [experts, inter, hidden], top k.

    Which kernel unpacks the weights decides its time, so it is that of whole layers of experts as engines run them.
    """
    x, weights, top_k = signature.get_shape(0), signature.get_shape(1), signature.get_integer(2)
    dtype = EXPERT_FORMATS.get(str(signature.get_value(3)))
    if not x or weights is None or len(weights) != 3 or not top_k or dtype is None:
        return None
    sizes = {"tokens": x[0], "experts": weights[0], "inter": weights[1], "hidden": weights[2], "topk": top_k}
    return {**sizes, "dtype": dtype}


def _name_precision(dtype: object) -> Columns:
    """Name the precision of a captured engine's product; weights of 4 bits are unpacked to 16."""
    if dtype in UNPACKED_WEIGHTS:
        return {"dtype": "bf16", "weight_dtype": dtype}
    return {"dtype": dtype} if isinstance(dtype, str) else {}
