"""Compute the work of ops that run several different GEMMs in sequence; the order of their kernels identifies them.

    backward of a linear layer (TransformerEngine, Megatron-LM):  dX = dY W  ->  dW = dY^T X
    mixture of experts (vLLM, SGLang):                            into the experts  ->  out of them

A function of ``GEMM_SEQUENCES`` returns the columns of an op's GEMMs in the order of execution.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.signature import Signature

LEAST_TOKENS_FRACTION = 0.25
"""Part of the tokens that hits as many experts, spread evenly, as all of them at least do: an assumption."""

Size = TypeVar("Size", float, pl.Expr)


def count_hit_experts(tokens: Size, experts: Size, top_k: Size) -> Size:
    """Count the experts that some tokens hit if the router chooses evenly.

    Examples:
        >>> round(count_hit_experts(16, 64, 8))
        56
    """
    hit: Size = experts * (1 - (1 - top_k / experts) ** tokens)
    return hit


@dataclass(frozen=True, slots=True)
class TokenSpread:
    """Tokens spread over experts: a GEMM for each expert that is hit.

    Attributes:
        tokens: Tokens of the batch, at least one.
        experts: Experts on the rank.
        top_k: Experts of a token, at least one.
    """

    tokens: int
    experts: int
    top_k: int

    @property
    def hit(self) -> int:
        """Experts that are hit."""
        return max(round(count_hit_experts(self.tokens, self.experts, self.top_k)), 1)

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds on the experts that are hit, as factors on ``hit``."""
        least = count_hit_experts(max(self.tokens * LEAST_TOKENS_FRACTION, 1), self.experts, self.top_k)
        most = min(self.experts, self.tokens * self.top_k)
        return min(least / self.hit, 1.0), max(most / self.hit, 1.0)

    def build_columns(self, n: int, k: int) -> Columns:
        """Build the columns of a GEMM per expert that is hit, each with a weight of n x k."""
        low, high = self.bounds
        return {
            "batch": self.hit,
            "m": math.ceil(self.tokens * self.top_k / self.hit),
            "n": n,
            "k": k,
            "work_low": low,
            "work_high": high,
            "tokens": self.tokens,
            "experts": self.experts,
            "top_k": self.top_k,
        }


SequenceFormula = Callable[[Signature, int], Sequence[Columns] | None]
Shape = tuple[int, ...]

FOUR_BIT_FRACTION = 17 / 64
"""Bytes of 4-bit weights, with one byte of scale per 32 of them, over those of 16-bit weights."""


def compute_gemm_in_sequence(signature: Signature, place: int, kernels: int) -> Columns | None:
    """Compute the work of the GEMM at ``place`` among the ``kernels`` GEMMs of a call; ``None`` if it is ambiguous.

    Places count from 0, in the order of execution. A backward pass has the inputs of its forward call, and the gradient
    as ``output``.
    """
    chain = GEMM_SEQUENCES[signature.op](signature, kernels)
    if chain is None:
        return None
    multiply_adds = {math.prod(int(columns[name] or 1) for name in ("batch", "m", "n", "k")) for columns in chain}
    # A frozen layer, or the first one, has only one gradient.
    known = kernels == len(chain) or (len(multiply_adds) == 1 and kernels < len(chain))
    return {**chain[place], "family": "gemm"} if known else None


def _build_gemm(m: int, n: int, k: int, batch: int = 1) -> Columns:
    return {"batch": batch, "m": m, "n": n, "k": k}


def build_gradient_gemms(m: int, n: int, k: int, batch: int = 1) -> list[Columns]:
    """Build the GEMMs of a layer with input [m, k] and weight [n, k]: gradient of the input, then of the weight."""
    return [_build_gemm(m, k, n, batch), _build_gemm(n, k, m, batch)]


def list_matrices(signature: Signature) -> list[Shape]:
    """List the shapes of all inputs with two axes or more."""
    return [tensor.shape for tensor in signature.tensors if len(tensor.shape) >= 2]


def find_linear_sizes(signature: Signature) -> tuple[int, int, int] | None:
    """Find m, n, k of a linear layer with the inputs [..., k] and a weight [n, k], in either order.

    Functions and their versions differ in the order of their arguments, which include vectors and workspaces. The first
    two matrices with equal last axes are meant; which of them is the weight makes no difference to the work.
    """
    shapes = list_matrices(signature)
    pairs = ((shapes[0], other) for other in shapes[1:] if other[-1] == shapes[0][-1])
    left, right = next(pairs, ((), ()))
    if 2 not in (len(left), len(right)):
        return None
    x, weight = (left, right) if len(right) == 2 else (right, left)
    return math.prod(x[:-1]), weight[0], x[-1]


def _compute_linear_backward(signature: Signature, kernels: int) -> list[Columns] | None:
    known = find_linear_sizes(signature)
    return None if known is None else build_gradient_gemms(*known)


def _compute_weight_gradient(signature: Signature, kernels: int) -> list[Columns] | None:
    """Compute the weight gradient from the weight [n, k] and the rows of the output's gradient.

    The rows of the input [..., k] don't count, as the input may be one rank's shard of it.
    """
    weight = signature.get_shape(1)
    if weight is None or len(weight) != 2 or not signature.output:
        return None
    return [_build_gemm(weight[0], weight[1], math.prod(signature.output[:-1]))]


def _find_mlp_sizes(signature: Signature) -> tuple[int, int, int, int] | None:
    """Find rows, width, and the widths of the weights [up, width] and [width, down] for the input [..., width]."""
    shapes = list_matrices(signature)
    x = shapes[0] if shapes else ()
    weights = [shape for shape in shapes[1:] if len(shape) == 2]
    up = next((i for i, shape in enumerate(weights) if shape[1] == x[-1]), None)
    if up is None:
        return None
    down = next((shape for shape in weights[up + 1 :] if shape[0] == x[-1]), None)
    return None if down is None else (math.prod(x[:-1]), x[-1], weights[up][0], down[1])


def _compute_mlp_forward(signature: Signature, kernels: int) -> list[Columns] | None:
    known = _find_mlp_sizes(signature)
    if known is None:
        return None
    rows, width, up, down = known
    return [_build_gemm(rows, up, width), _build_gemm(rows, width, down)]


def _compute_mlp_backward(signature: Signature, kernels: int) -> list[Columns] | None:
    known = _find_mlp_sizes(signature)
    if known is None:
        return None
    rows, width, up, down = known
    return [*build_gradient_gemms(rows, width, down), *build_gradient_gemms(rows, up, width)]


def _compute_grouped_linear(signature: Signature, backward: bool, kernels: int) -> list[Columns] | None:
    """Compute the GEMMs of input [..., k] and a weight [n, k] per group; rows are assumed to be spread evenly."""
    shapes = list_matrices(signature)
    weights = [shape for shape in shapes[1:] if len(shape) == 2 and shape == shapes[-1]]
    if not weights or weights[0][1] != shapes[0][-1]:
        return None
    groups = len(weights)
    m, (n, k) = math.ceil(math.prod(shapes[0][:-1]) / groups), weights[0]
    # One kernel for all groups, or one for each.
    batch = groups if kernels <= 2 else 1
    products = build_gradient_gemms(m, n, k, batch) if backward else [_build_gemm(m, n, k, batch)]
    return [columns for columns in products for _ in range(groups // batch)]


def _compute_fused_experts(signature: Signature, kernels: int) -> list[Columns] | None:
    """Compute the two GEMMs of fused experts.

    Inputs: tokens [t, width], weights [experts, up, width] and [experts, width, down], each token's experts at 4.
    The number of experts whose weights were read isn't recorded (:mod:`tracekit.workload.ops.gemm_sequences`).
    """
    tokens, chosen = signature.get_shape(0), signature.get_shape(4)
    first, second = signature.get_tensors(1), signature.get_tensors(2)
    if tokens is None or chosen is None or len(tokens) != 2 or not first or not second:
        return None
    if len(first[0].shape) != 3 or len(second[0].shape) != 3:
        return None
    experts, up, _ = first[0].shape
    whole = second[0].shape[1] == tokens[1] == first[0].shape[2]
    if not whole or not tokens[0] or not 0 < chosen[-1] <= experts:
        return None
    spread = TokenSpread(tokens[0], experts, chosen[-1])
    return [spread.build_columns(up, tokens[1]), spread.build_columns(tokens[1], second[0].shape[2])]


def _compute_moe_forward(signature: Signature, kernels: int) -> list[Columns] | None:
    """Compute the two GEMMs of ``moe_forward`` from tokens [t, width] and a score per expert.

    The inferred activation gives the number of experts per token and their width. Unless the op casts its tokens, the
    type of the stored weights isn't recorded: then the bounds include everything from 4 bits to the tokens' 16.
    """
    tokens, scored = signature.get_shape(0), signature.get_shape(1)
    if not tokens or not scored or signature.output is None or len(tokens) != 2 or tokens[0] != scored[0]:
        return None
    pairs, width = signature.output
    if not pairs or not tokens[0] or pairs % tokens[0] or pairs // tokens[0] > scored[-1]:
        return None
    spread = TokenSpread(tokens[0], scored[-1], pairs // tokens[0])
    least = spread.bounds[0] * (1.0 if signature.cast else FOUR_BIT_FRACTION)
    sizes = ((2 * width, tokens[1]), (tokens[1], width))
    return [spread.build_columns(n, k) | {"work_low": least} for n, k in sizes]


GEMM_SEQUENCES: dict[str, SequenceFormula] = {
    "_LinearBackward": _compute_linear_backward,
    "_LayerNormLinearBackward": _compute_linear_backward,
    "_LayerNormMLP": _compute_mlp_forward,
    "_LayerNormMLPBackward": _compute_mlp_backward,
    "_GroupedLinear": lambda signature, kernels: _compute_grouped_linear(signature, False, kernels),
    "_GroupedLinearBackward": lambda signature, kernels: _compute_grouped_linear(signature, True, kernels),
    "LinearWithGradAccumulationAndAsyncCommunicationBackward": _compute_weight_gradient,
    "vllm::inplace_fused_experts": _compute_fused_experts,
    "vllm::outplace_fused_experts": _compute_fused_experts,
    "sglang::inplace_fused_experts": _compute_fused_experts,
    "sglang::outplace_fused_experts": _compute_fused_experts,
    "vllm::moe_forward": _compute_moe_forward,
    "vllm::moe_forward_shared": _compute_moe_forward,
}
"""Function that computes the GEMMs of an op in order; some depend on the number of kernels that ran."""
