"""Which family a kernel belongs to, from its name and from the op that launched it."""

import re

from tracekit.workload.names import family_of

OP_RULES = (
    ("conv", r"convolution|conv_depthwise|thnn_conv"),
    ("attention", r"attention|_attn|mha|(Flash|Fused)Attn\w*Func"),
    ("moe", r"^(?!_moe_C::|sgl_kernel::moe_wna16_marlin).*moe"),
    (
        "gemm",
        r"::(mm|bmm|addmm_?|_addmm_activation|baddbmm_?|_?scaled_mm(_v2)?|cutlass_scaled_mm|_int_mm|linear|matmul|mv|addmv_?|"
        r"_weight_int[48]pack_mm|(_scaled)?_grouped_mm(_v2)?|int8_linear_matmul|int8_scaled_mm|gem[mv]_4bit|"
        r"_sparse_semi_structured_(linear|mm|addmm)|_cslt_sparse_mm)$"
        r"|::(gemm_a\d+w\d+|rocm_unquantized_gemm$|apply_w8a8_block_fp8_linear$|f8f8bf16|(fp8|int8)_\w*scaled_mm$|"
        r"cutlass_scaled_(mm_azp|fp4_mm)$|dsv3_fused_a_gemm$|\w*(marlin|awq|gptq)_gemm$|deep_gemm)"
        r"|^_(LayerNorm|Grouped)?(Linear|MLP)(Backward)?$|^LinearWithGradAccumulation|fused_experts$",
    ),
    ("reduction", r"::(linalg_|linalg_vector_|frobenius_)?norm$"),
    ("norm", r"(?<!_foreach_)norm(?!al)"),
    ("softmax", r"softmax"),
    ("embedding", r"embedding|index_select"),
    ("copy", r"_foreach_copy_$"),
    ("optimizer", r"_foreach|::_fused_(adam|sgd|adagrad)|optimizer_update_"),
    ("collective", r"record_param_comms|^c10d::|^nccl:"),
    ("elementwise", r"::_fft_[rc]2[rc]$|grid_sampler|::_thnn_fused_(lstm|gru)_cell"),
    ("copy", r"::(copy_|cat|_chunk_cat|clone|contiguous|_to_copy|index|gather)$"),
)
# Inductor names a kernel, which is its own op, after all ops that it fuses.
GENERATED = re.compile(r"^triton_")
_OP_PATTERNS = tuple((family, re.compile(pattern)) for family, pattern in OP_RULES)

# Kernels that PyTorch shares among ops: the op says more.
GENERIC = ("elementwise", "copy", "reduction")
SPECIFIC_OPS = ("norm", "softmax", "embedding", "optimizer")
# A batch norm whose statistics are given scales and shifts each element by itself.
GIVEN_STATISTICS = re.compile(r"bn_fw_inf|BatchNormFwdInfer|batch_norm_elementwise")
# Ops whose GEMMs may run in a kernel that calls itself a GEMM.
COMPUTE_OPS = ("conv", "attention", "moe", "gemm")


def op_family(op: str | None) -> str | None:
    """Family that an op's name tells; ``None`` if no rule knows it."""
    if op is None or GENERATED.search(op):
        return None
    return next((family for family, pattern in _OP_PATTERNS if pattern.search(op)), None)


def classify(kind: str, kernel: str, op: str | None) -> str:
    """Family of one GPU activity.

    Args:
        kind: kernel, memcpy or memset.
        kernel: The activity's name.
        op: The op that launched it, if known.
    """
    if kind != "kernel":
        return kind
    if GIVEN_STATISTICS.search(kernel):
        return "elementwise"
    by_kernel, by_op = family_of(kernel), op_family(op)
    if by_kernel == "gemm" and by_op in COMPUTE_OPS:
        return by_op
    if by_kernel in GENERIC and by_op in SPECIFIC_OPS and _same_op(by_op, op):
        return by_op
    return by_kernel or by_op or "other"


def _same_op(family: str, op: str | None) -> bool:
    """Fused ops (a norm that also reduces) keep their own kernels' families; torch's own ops are one thing."""
    return family == "optimizer" or (op or "").startswith("aten::")


def is_helper(family: str, op: str | None) -> bool:
    """Whether a kernel only assists its op (layout change, split-K sum, cast), so that the op's work isn't its."""
    by_op = op_family(op)
    return by_op in COMPUTE_OPS and family != by_op
