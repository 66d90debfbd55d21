"""Norms, activations, losses and rotations that autograd functions in Python launch without an op.

Such a kernel, of Triton or CUDA, goes a fixed number of times over the first input of its function, or over the first
two; in a backward pass, of the function's forward call. Kernels and functions are those of Liger-Kernel, Unsloth,
flash-attn, Apex, Megatron-LM and TransformerEngine.
"""

import math
import re
from dataclasses import dataclass

from tracekit.workload.ops.vector import Columns, columns_of
from tracekit.workload.signature import Signature, Tensor


@dataclass(frozen=True, slots=True)
class _Passes:
    """How often kernels of one name go over the input.

    Attributes:
        kernel: In the kernel's name.
        count: Reads and writes of as many elements as the first input has.
        residual: More of them where the second input, added to the first, has its shape.
        over: Which inputs; several are gone over one after the other.
    """

    kernel: re.Pattern[str]
    count: int
    residual: int = 0
    over: tuple[int, ...] = (0,)


PASSES = (
    _Passes(re.compile(r"(?:rms|layer)_?norm_(?:forward|fwd)|\b(?:ln|rmsnorm)_fwd_|cuApply(?:Layer|RMS)Norm"), 2, 2),
    _Passes(re.compile(r"(?:rms|layer)_?norm_(?:backward|bwd)|\b(?:ln|rmsnorm)_bwd_(?!fin)|cuComputeGradInput"), 3, 1),
    _Passes(re.compile(r"_(?:swiglu|geglu_tanh)_forward_kernel"), 3),
    _Passes(re.compile(r"_(?:swiglu|geglu_tanh)_backward_kernel"), 5),
    _Passes(re.compile(r"masked_softmax_warp_forward|_softmax_(?:single|multi)_block_forward_kernel"), 2),
    _Passes(re.compile(r"masked_softmax_warp_backward|_softmax_(?:single|multi)_block_backward_kernel"), 3),
    _Passes(re.compile(r"_cross_entropy_forward|cross_entropy_fwd_kernel"), 1),
    _Passes(re.compile(r"_cross_entropy_backward|cross_entropy_bwd_kernel|liger_cross_entropy_kernel"), 2),
    _Passes(re.compile(r"_triton_rope|_rope_embedding_QK"), 2, over=(0, 1)),
    _Passes(re.compile(r"_rope_embedding|\bfused_rope_(?:forward|backward)_kernel|\brotary_kernel"), 2),
)  # fmt: skip
"""The first that fits counts."""

INDUCTOR = re.compile(r"^triton_[a-z]+_fused_")
"""It names a kernel after all that it fuses: its own arguments tell what it goes over, no function around it."""
LOGITS = ("LigerFusedLinearCrossEntropyFunction",)
"""Input [..., width] and weight [vocabulary, width]: what they go over is the product of both."""
PARTIAL = ("ApplyRotaryEmbQKV_", "ApplyRotaryEmbKV_")
"""Rotate a part of their first input."""


def work(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    """What one such kernel moves; ``None`` if it is none of them, or its op is no function of Python's.

    Args:
        signature: The function's inputs; of a backward pass those of its forward call.
        kernel: The kernel's name.
        item_bytes: Bytes per element where the signature names no type.
    """
    function = signature.op.removesuffix("Backward")
    unknown = function != signature.op and signature.output is None
    if not signature.op.isidentifier() or function in PARTIAL or unknown or INDUCTOR.search(kernel):
        return None
    passes = next((passes for passes in PASSES if passes.kernel.search(kernel)), None)
    gone_over = [] if passes is None else [tensor for index in passes.over for tensor in signature.at(index)[:1]]
    if passes is None or len(gone_over) < len(passes.over):
        return None
    if signature.op in LOGITS:
        gone_over = _logits(signature)
    if not gone_over:
        return None
    numel = sum(tensor.numel for tensor in gone_over)
    added = passes.residual if signature.shape(1) == gone_over[0].shape else 0
    bytes_ = sum((passes.count + added) * tensor.numel * tensor.item_bytes(item_bytes) for tensor in gone_over)
    shape = gone_over[0].shape if len(gone_over) == 1 else (numel,)
    return columns_of(shape, flops=(passes.count + added) * numel, bytes_=bytes_)


def _logits(signature: Signature) -> list[Tensor]:
    x, weight = signature.at(0)[0], signature.shape(1)
    return [Tensor((math.prod(x.shape[:-1]), weight[0]), x.dtype)] if weight else []
