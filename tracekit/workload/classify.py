"""Classify a kernel into a family, by its name and by the op that launched it.

An op whose work is known has the family that it is registered with (:mod:`tracekit.workload.ops.registry`); rules tell
that of all others.
"""

import re
from functools import lru_cache

from predictors.kernels import TENSOR_FAMILIES
from tracekit.bounds import MAX_REMEMBERED_NAMES
from tracekit.ingest.whole_graphs import WHOLE_GRAPH_NAME
from tracekit.workload.names import infer_family
from tracekit.workload.ops.registry import OPS

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
GENERATED_KERNEL = re.compile(r"^triton_")
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
    if op is None or GENERATED_KERNEL.search(op):
        return None
    if op in OPS:
        return OPS[op].family
    return next((family for family, pattern in _OP_PATTERNS if pattern.search(op)), None)


@lru_cache(MAX_REMEMBERED_NAMES)
def classify_activity(kind: str, kernel: str, op: str | None) -> str:
    """Classify one GPU activity into a family.

    Args:
        kind: kernel, memcpy or memset.
        kernel: The activity's name.
        op: The op that launched it, if known.
    """
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
