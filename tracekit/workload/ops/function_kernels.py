"""Compute the memory traffic of autograd functions' kernels: norms, activations, losses, rotary embeddings.

Such a function (of Liger, Apex, Transformer Engine, flash-attn or Unsloth) is one op with several kernels. The name of
each tells how often it goes over the function's inputs.
"""

import math
import re
from dataclasses import dataclass

from tracekit.workload.ops.memory_traffic import Columns, build_traffic_columns
from tracekit.workload.signature import Signature, Tensor


@dataclass(frozen=True, slots=True)
class _Passes:
    """Number of passes of kernels of one name over the input.

    Attributes:
        kernel: Pattern of the kernel's name.
        count: Reads and writes of as many elements as the first input has.
        residual: Additional ones if the second input, added to the first, has its shape.
        inputs: Positions of the inputs; several are processed one after the other.
    """

    kernel: re.Pattern[str]
    count: int
    residual: int = 0
    inputs: tuple[int, ...] = (0,)


KERNEL_PASSES = (
    _Passes(re.compile(r"(?:rms|layer)_?norm_(?:forward|fwd)|\b(?:ln|rmsnorm)_fwd_|cuApply(?:Layer|RMS)Norm"), 2, 2),
    _Passes(re.compile(r"(?:rms|layer)_?norm_(?:backward|bwd)|\b(?:ln|rmsnorm)_bwd_(?!fin)|cuComputeGradInput"), 3, 1),
    _Passes(re.compile(r"_(?:swiglu|geglu_tanh)_forward_kernel"), 3),
    _Passes(re.compile(r"_(?:swiglu|geglu_tanh)_backward_kernel"), 5),
    _Passes(re.compile(r"masked_softmax_warp_forward|_softmax_(?:single|multi)_block_forward_kernel"), 2),
    _Passes(re.compile(r"masked_softmax_warp_backward|_softmax_(?:single|multi)_block_backward_kernel"), 3),
    _Passes(re.compile(r"_cross_entropy_forward|cross_entropy_fwd_kernel"), 1),
    _Passes(re.compile(r"_cross_entropy_backward|cross_entropy_bwd_kernel|liger_cross_entropy_kernel"), 2),
    _Passes(re.compile(r"_triton_rope|_rope_embedding_QK"), 2, inputs=(0, 1)),
    _Passes(re.compile(r"_rope_embedding|\bfused_rope_(?:forward|backward)_kernel|\brotary_kernel"), 2),
)  # fmt: skip
"""The first pattern that matches counts."""

INDUCTOR_KERNEL = re.compile(r"^triton_[a-z]+_fused_")
"""Inductor names a kernel after all ops that it fuses. The kernel's arguments give its traffic, not an enclosing
function."""
LOGITS_FUNCTIONS = ("LigerFusedLinearCrossEntropyFunction",)
"""Functions with input [..., width] and weight [vocabulary, width], whose kernels go over the GEMM of both."""
PARTIAL_ROTARY_FUNCTIONS = ("ApplyRotaryEmbQKV_", "ApplyRotaryEmbKV_")
"""Functions that rotate only a part of their first input."""


def compute_function_traffic(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    """Compute the traffic of one kernel of an autograd function; ``None`` for other kernels and for other ops.

    A backward pass has the inputs of its forward call; ``item_bytes`` count where the signature has no type.
    """
    function = signature.op.removesuffix("Backward")
    unknown = function != signature.op and signature.output is None
    if (
        not signature.op.isidentifier()
        or function in PARTIAL_ROTARY_FUNCTIONS
        or unknown
        or INDUCTOR_KERNEL.search(kernel)
    ):
        return None
    passes = next((passes for passes in KERNEL_PASSES if passes.kernel.search(kernel)), None)
    gone_over = (
        [] if passes is None else [tensor for index in passes.inputs for tensor in signature.get_tensors(index)[:1]]
    )
    if passes is None or len(gone_over) < len(passes.inputs):
        return None
    if signature.op in LOGITS_FUNCTIONS:
        gone_over = _infer_logits(signature)
    if not gone_over:
        return None
    numel = sum(tensor.numel for tensor in gone_over)
    added = passes.residual if signature.get_shape(1) == gone_over[0].shape else 0
    bytes_ = sum((passes.count + added) * tensor.numel * tensor.get_item_bytes(item_bytes) for tensor in gone_over)
    shape = gone_over[0].shape if len(gone_over) == 1 else (numel,)
    return build_traffic_columns(shape, flops=(passes.count + added) * numel, bytes_=bytes_)


def _infer_logits(signature: Signature) -> list[Tensor]:
    x, weight = signature.get_tensors(0)[0], signature.get_shape(1)
    return [Tensor((math.prod(x.shape[:-1]), weight[0]), x.dtype)] if weight else []
