"""Compute ops of serving engines and their kernel libraries: vLLM, SGLang, aiter, FBGEMM's for generative models.

Arguments as declared in ``csrc/torch_bindings.cpp`` (vLLM), ``sgl-kernel/csrc/common_extension.cc`` (SGLang),
``aiter/ops`` and ``gen_ai/src/quantize/quantize.cpp`` (FBGEMM). Most ops take their outputs as arguments.
"""

import math
from collections.abc import Sequence
from typing import Any

from tracekit.workload.ops import gemm, norm, quantised_gemm
from tracekit.workload.ops.expert_routing import TokenSpread
from tracekit.workload.ops.memory_traffic import Columns, Formula, TrafficFormula, make_read_write, make_single_pass
from tracekit.workload.signature import Signature

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


def _read_marlin(signature: Signature) -> Columns | None:
    """Compute Marlin's GEMM; its versions differ in their arguments, but m, n and k are always three in a row."""
    x = signature.get_shape(0)
    if x is None or len(x) != 2:
        return None
    n = _find_output_width(x, [signature.get_value(index) for index in range(len(signature.dims))])
    return None if n is None else _build_stored_gemm(signature, n)


def _read_marlin_moe(signature: Signature) -> Columns | None:
    """Compute Marlin's grouped GEMM for a mixture of experts; experts per token come before the first flag.

    Its versions differ in their arguments. Input [m, k], weights of each expert at 2. Each expert with tokens
    (:mod:`tracekit.workload.ops.expert_routing`) is read as it is stored.
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


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        (
            "aiter::gemm_a16w16", "aiter::gemm_a16w16_asm", "aiter::gemm_a8w8_ck", "aiter::gemm_a8w8_bpreshuffle_ck",
            "vllm::rocm_unquantized_gemm", "vllm::apply_w8a8_block_fp8_linear", "fbgemm::f8f8bf16",
            "fbgemm::f8f8bf16_rowwise", "fbgemm::f8f8bf16_tensorwise", "fbgemm::f8f8bf16_blockwise",
        ),
        _make_linear(1),
    ),
    **dict.fromkeys(
        ("_rocm_C::LLMM1", "_rocm_C::wvSplitK", "_rocm_C::wvSplitKrc", "_rocm_C::wvSplitKQ"), _make_linear(0, x=1)
    ),
    "sglang::deep_gemm_fp8_fp8_bf16_nt": _make_linear(2),
    **dict.fromkeys(
        ("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm", "sgl_kernel::fp8_blockwise_scaled_mm"),
        gemm.FORMULAS["aten::mm"],
    ),
    **dict.fromkeys(
        ("_C::cutlass_scaled_mm_azp", "_C::dsv3_fused_a_gemm", "sgl_kernel::dsv3_fused_a_gemm"),
        quantised_gemm.FORMULAS["_C::cutlass_scaled_mm"],
    ),
    **dict.fromkeys(("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm"), _compute_nvfp4_mm),
    **dict.fromkeys(
        ("_C::marlin_gemm", "_C::gptq_marlin_gemm", "_C::fp8_marlin_gemm", "sgl_kernel::gptq_marlin_gemm"), _read_marlin
    ),
    **dict.fromkeys(("_moe_C::moe_wna16_marlin_gemm", "sgl_kernel::moe_wna16_marlin_gemm"), _read_marlin_moe),
    "_C::awq_gemm": _make_packed_formula(FOUR_BIT_PER_INT32),
    **dict.fromkeys(("_C::gptq_gemm", "sgl_kernel::gptq_gemm"), _make_packed_formula(1)),
}  # fmt: skip

QUANTISED_NORM = make_read_write(both=(6,), read=(1, 2), write=(0, 3))
"""Adds in place to its last input, if given."""
TRAFFIC: dict[str, TrafficFormula] = {
    **dict.fromkeys(
        (
            "_C::rms_norm_static_fp8_quant", "aiter::rmsnorm2d_fwd_with_add", "aiter::rmsnorm2d_fwd_with_add_ck",
            "aiter::layernorm2d_fwd_with_add",
        ),
        make_single_pass(norm.FLOPS_PER_ELEMENT),
    ),
    **dict.fromkeys(
        ("aiter::rms_norm", "aiter::rmsnorm2d_fwd", "aiter::layer_norm", "aiter::layernorm2d_fwd"), norm.compute_traffic
    ),
    "_C::fused_add_rms_norm_static_fp8_quant": make_read_write(both=(2,), read=(1, 3), write=(0,)),
    "_C::rms_norm_dynamic_per_token_quant": QUANTISED_NORM,
    "_C::rms_norm_per_block_quant": QUANTISED_NORM,
    "sgl_kernel::gemma_fused_add_rmsnorm": make_read_write(both=(0, 1), read=(2,)),
    "_C::fused_qk_norm_rope": make_read_write(both=(0,)),
    **dict.fromkeys(
        (
            "_C::silu_and_mul_quant", "_C::silu_and_mul_per_block_quant", "_C::mul_and_silu", "_C::gelu_tanh_and_mul",
            "_C::fatrelu_and_mul", "_C::swigluoai_and_mul", "_C::gelu_new", "_C::gelu_fast", "_C::gelu_quick",
            "aiter::silu_and_mul", "_moe_C::topk_softmax", "sgl_kernel::topk_softmax",
        ),
        make_single_pass(5),
    ),
    **dict.fromkeys(
        (
            "_C::static_scaled_int8_quant", "_C::dynamic_scaled_int8_quant", "_C::per_token_group_fp8_quant",
            "_C::per_token_group_quant_int8", "_C::scaled_fp4_quant", "sgl_kernel::scaled_fp4_quant",
            "sgl_kernel::sgl_per_token_group_quant_fp8", "sgl_kernel::sgl_per_token_group_quant_int8",
            "sgl_kernel::sgl_per_tensor_quant_fp8", "sgl_kernel::sgl_per_token_quant_fp8", "_moe_C::moe_sum",
        ),
        make_single_pass(2),
    ),
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache": make_read_write(both=(), read=(0, 1), write=(2, 3)),
}  # fmt: skip
