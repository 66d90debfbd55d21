"""Ops of serving engines and their kernel libraries: vLLM, SGLang, aiter, FBGEMM's for generative models.

Arguments as ``csrc/torch_bindings.cpp`` (vLLM), ``sgl-kernel/csrc/common_extension.cc`` (SGLang), ``aiter/ops`` and
``gen_ai/src/quantize/quantize.cpp`` (FBGEMM) declare them. Most take their outputs as arguments.
"""

import math
from collections.abc import Sequence
from typing import Any

from tracekit.workload.ops import gemm, norm, quantised
from tracekit.workload.ops.vector import Columns, Formula, Traffic, every_tensor_once, read_and_write
from tracekit.workload.signature import Signature

PER_INT32 = 8
"""Weights of four bits."""


def _weight_at(index: int, *, x: int = 0) -> Formula:
    """The formula of an op with input [..., k] at ``x`` and a weight [n, k] at ``index``."""

    def columns(signature: Signature) -> Columns | None:
        rows, weight = signature.shape(x), signature.shape(index)
        if not rows or weight is None or len(weight) != 2 or weight[1] != rows[-1]:
            return None
        return {"batch": 1, "m": math.prod(rows[:-1]), "n": weight[0], "k": rows[-1]}

    return columns


def _four_bit(signature: Signature) -> Columns | None:
    """Output [m, n] and operands [m, k / 2] and [n, k / 2], two elements in a byte."""
    out, left = signature.shape(0), signature.shape(1)
    if out is None or left is None or len(out) != 2 or len(left) != 2:
        return None
    return {"batch": 1, "m": out[0], "n": out[1], "k": 2 * left[1], "dtype": "nvfp4"}


def _stored(signature: Signature, n: int) -> Columns | None:
    """Input [m, k] first; weight, scales and zeros are the other matrices, read as they are stored."""
    x, *others = [tensor for tensor in signature.tensors if len(tensor.shape) == 2]
    m, k = x.shape
    read = sum(tensor.size_bytes(2) for tensor in others if tensor.shape != (m, n))
    return {"batch": 1, "m": m, "n": n, "k": k, "bytes": read + (m * k + m * n) * x.item_bytes(2)}


def _sized(signature: Signature) -> Columns | None:
    """Marlin's, whose versions differ in their arguments: three in a row are m, n and k."""
    x = signature.shape(0)
    if x is None or len(x) != 2:
        return None
    n = _columns_of_sizes(x, [signature.value(index) for index in range(len(signature.dims))])
    return None if n is None else _stored(signature, n)


def _marlin_experts(signature: Signature) -> Columns | None:
    """Marlin's for a mixture of experts, whose versions differ too: experts per token come before the first flag.

    Input [m, k], weights of each expert at 2. The tokens are taken to be spread evenly, each expert that one is sent to
    is read as it is stored; at least those of one token are.
    """
    x, weights = signature.shape(0), signature.shape(2)
    values = [signature.value(index) for index in range(len(signature.dims))]
    n = _columns_of_sizes(x, values)
    if not x or not weights or n is None:
        return None
    flag = next((i for i, value in enumerate(values) if isinstance(value, bool)), 0)
    top_k = signature.whole(flag - 1) if flag else None
    if top_k is None or top_k < 1:
        return None
    m, k = x
    pairs = m * top_k
    visited = min(weights[0], pairs)
    stored = sum(t.size_bytes(2) for t in signature.tensors[1:] if len(t.shape) == 3 and t.shape[0] == weights[0])
    moved = stored * visited // weights[0] + (m * k + pairs * n) * signature.at(0)[0].item_bytes(2)
    sizes: Columns = {"batch": visited, "m": math.ceil(pairs / visited), "n": n, "k": k, "bytes": moved}
    return sizes | {"work_low": min(top_k / visited, 1.0), "work_high": 1.0}


def _columns_of_sizes(x: Sequence[int] | None, values: Sequence[Any]) -> int | None:
    """The one in the middle of three numbers in a row of which the others are the input's axes."""
    triples = zip(values, values[1:], values[2:], strict=False)
    return next((n for m, n, k in triples if [m, k] == [*(x or ())] and isinstance(n, int)), None)


def _columns_packed(by: int) -> Formula:
    """The formula of an op with input [m, k] and a weight whose second axis has ``by`` columns in each element."""

    def columns(signature: Signature) -> Columns | None:
        x, weight = signature.shape(0), signature.shape(1)
        if x is None or weight is None or len(x) != 2 or len(weight) != 2:
            return None
        return _stored(signature, by * weight[1])

    return columns


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        (
            "aiter::gemm_a16w16", "aiter::gemm_a16w16_asm", "aiter::gemm_a8w8_ck", "aiter::gemm_a8w8_bpreshuffle_ck",
            "vllm::rocm_unquantized_gemm", "vllm::apply_w8a8_block_fp8_linear", "fbgemm::f8f8bf16",
            "fbgemm::f8f8bf16_rowwise", "fbgemm::f8f8bf16_tensorwise", "fbgemm::f8f8bf16_blockwise",
        ),
        _weight_at(1),
    ),
    **dict.fromkeys(
        ("_rocm_C::LLMM1", "_rocm_C::wvSplitK", "_rocm_C::wvSplitKrc", "_rocm_C::wvSplitKQ"), _weight_at(0, x=1)
    ),
    "sglang::deep_gemm_fp8_fp8_bf16_nt": _weight_at(2),
    **dict.fromkeys(
        ("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm", "sgl_kernel::fp8_blockwise_scaled_mm"),
        gemm.FORMULAS["aten::mm"],
    ),
    **dict.fromkeys(
        ("_C::cutlass_scaled_mm_azp", "_C::dsv3_fused_a_gemm", "sgl_kernel::dsv3_fused_a_gemm"),
        quantised.FORMULAS["_C::cutlass_scaled_mm"],
    ),
    **dict.fromkeys(("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm"), _four_bit),
    **dict.fromkeys(
        ("_C::marlin_gemm", "_C::gptq_marlin_gemm", "_C::fp8_marlin_gemm", "sgl_kernel::gptq_marlin_gemm"), _sized
    ),
    **dict.fromkeys(("_moe_C::moe_wna16_marlin_gemm", "sgl_kernel::moe_wna16_marlin_gemm"), _marlin_experts),
    "_C::awq_gemm": _columns_packed(PER_INT32),
    **dict.fromkeys(("_C::gptq_gemm", "sgl_kernel::gptq_gemm"), _columns_packed(1)),
}  # fmt: skip

QUANTISED_NORM = read_and_write(both=(6,), read=(1, 2), write=(0, 3))
"""Adds in place to the last of its inputs, where that is given."""
TRAFFIC: dict[str, Traffic] = {
    **dict.fromkeys(
        (
            "_C::rms_norm_static_fp8_quant", "aiter::rmsnorm2d_fwd_with_add", "aiter::rmsnorm2d_fwd_with_add_ck",
            "aiter::layernorm2d_fwd_with_add",
        ),
        every_tensor_once(norm.FLOPS_PER_ELEMENT),
    ),
    **dict.fromkeys(
        ("aiter::rms_norm", "aiter::rmsnorm2d_fwd", "aiter::layer_norm", "aiter::layernorm2d_fwd"), norm.traffic
    ),
    "_C::fused_add_rms_norm_static_fp8_quant": read_and_write(both=(2,), read=(1, 3), write=(0,)),
    "_C::rms_norm_dynamic_per_token_quant": QUANTISED_NORM,
    "_C::rms_norm_per_block_quant": QUANTISED_NORM,
    "sgl_kernel::gemma_fused_add_rmsnorm": read_and_write(both=(0, 1), read=(2,)),
    "_C::fused_qk_norm_rope": read_and_write(both=(0,)),
    **dict.fromkeys(
        (
            "_C::silu_and_mul_quant", "_C::silu_and_mul_per_block_quant", "_C::mul_and_silu", "_C::gelu_tanh_and_mul",
            "_C::fatrelu_and_mul", "_C::swigluoai_and_mul", "_C::gelu_new", "_C::gelu_fast", "_C::gelu_quick",
            "aiter::silu_and_mul", "_moe_C::topk_softmax", "sgl_kernel::topk_softmax",
        ),
        every_tensor_once(5),
    ),
    **dict.fromkeys(
        (
            "_C::static_scaled_int8_quant", "_C::dynamic_scaled_int8_quant", "_C::per_token_group_fp8_quant",
            "_C::per_token_group_quant_int8", "_C::scaled_fp4_quant", "sgl_kernel::scaled_fp4_quant",
            "sgl_kernel::sgl_per_token_group_quant_fp8", "sgl_kernel::sgl_per_token_group_quant_int8",
            "sgl_kernel::sgl_per_tensor_quant_fp8", "sgl_kernel::sgl_per_token_quant_fp8", "_moe_C::moe_sum",
        ),
        every_tensor_once(2),
    ),
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache": read_and_write(both=(), read=(0, 1), write=(2, 3)),
}  # fmt: skip
