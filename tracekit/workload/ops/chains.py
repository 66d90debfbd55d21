"""Ops that run several different GEMMs one after the other, which their kernels' order tells apart.

Backward passes of linear layers (TransformerEngine, Megatron-LM): the gradient of the input, then that of the weight.
Mixtures of experts (vLLM, SGLang): into the experts, then out of them.
"""

import math
from collections.abc import Callable, Sequence

from tracekit.workload.ops.vector import Columns
from tracekit.workload.signature import Signature

Chain = Callable[[Signature, int], Sequence[Columns] | None]
Shape = tuple[int, ...]

FOUR_BITS_OF_16 = 17 / 64
"""Bytes of 4-bit weights, with a byte of scale for every 32 of them, over those of 16-bit ones."""


def product(signature: Signature, place: int, kernels: int) -> Columns | None:
    """The work of the GEMM at ``place`` among ``kernels`` ones that a call ran; ``None`` if it isn't clear.

    Args:
        signature: The call; of a backward pass with the inputs of its forward call and the gradient as ``output``.
        place: From 0, in the order in which they ran.
        kernels: GEMMs that ran.
    """
    chain = CHAINS[signature.op](signature, kernels)
    if chain is None:
        return None
    alike = len({_multiply_adds(columns) for columns in chain}) == 1
    # A layer that is frozen, or the first one, has one gradient only.
    known = kernels == len(chain) or (alike and kernels < len(chain))
    return {**chain[place], "family": "gemm"} if known else None


def _multiply_adds(columns: Columns) -> int:
    return math.prod(int(columns[name] or 1) for name in ("batch", "m", "n", "k"))


def _product(m: int, n: int, k: int, batch: int = 1) -> Columns:
    return {"batch": batch, "m": m, "n": n, "k": k}


def gradients(m: int, n: int, k: int, batch: int = 1) -> list[Columns]:
    """Of a layer with input [m, k] and weight [n, k]: of the input, then of the weight."""
    return [_product(m, k, n, batch), _product(n, k, m, batch)]


def matrices(signature: Signature) -> list[Shape]:
    """Shapes of all inputs with two axes or more."""
    return [tensor.shape for tensor in signature.tensors if len(tensor.shape) >= 2]


def layer(signature: Signature) -> tuple[int, int, int] | None:
    """m, n, k of a linear layer among whose inputs are [..., k] and a weight [n, k], in either order.

    Functions and their versions differ in the order of their arguments, and have vectors and workspaces among them; the
    first two matrices that are equally deep are meant, and which is which makes no difference to the work.
    """
    shapes = matrices(signature)
    pairs = ((shapes[0], other) for other in shapes[1:] if other[-1] == shapes[0][-1])
    left, right = next(pairs, ((), ()))
    if 2 not in (len(left), len(right)):
        return None
    x, weight = (left, right) if len(right) == 2 else (right, left)
    return math.prod(x[:-1]), weight[0], x[-1]


def _layer_backward(signature: Signature, kernels: int) -> list[Columns] | None:
    known = layer(signature)
    return None if known is None else gradients(*known)


def _weight_gradient(signature: Signature, kernels: int) -> list[Columns] | None:
    """Input [..., k] and weight [n, k]; the rows of the gradient count, as the input may be one rank's part of it."""
    weight = signature.shape(1)
    if weight is None or len(weight) != 2 or not signature.output:
        return None
    return [_product(weight[0], weight[1], math.prod(signature.output[:-1]))]


def _feed_forward(signature: Signature) -> tuple[int, int, int, int] | None:
    """Rows, width, and how wide both weights [up, width] and [width, down] are, of input [..., width]."""
    shapes = matrices(signature)
    x = shapes[0] if shapes else ()
    weights = [shape for shape in shapes[1:] if len(shape) == 2]
    up = next((i for i, shape in enumerate(weights) if shape[1] == x[-1]), None)
    if up is None:
        return None
    down = next((shape for shape in weights[up + 1 :] if shape[0] == x[-1]), None)
    return None if down is None else (math.prod(x[:-1]), x[-1], weights[up][0], down[1])


def _feed_forward_forward(signature: Signature, kernels: int) -> list[Columns] | None:
    known = _feed_forward(signature)
    if known is None:
        return None
    rows, width, up, down = known
    return [_product(rows, up, width), _product(rows, width, down)]


def _feed_forward_backward(signature: Signature, kernels: int) -> list[Columns] | None:
    known = _feed_forward(signature)
    if known is None:
        return None
    rows, width, up, down = known
    return [*gradients(rows, width, down), *gradients(rows, up, width)]


def _grouped(signature: Signature, backward: bool, kernels: int) -> list[Columns] | None:
    """Input [..., k] and a weight [n, k] for each group, to which its rows are taken to be spread evenly."""
    shapes = matrices(signature)
    weights = [shape for shape in shapes[1:] if len(shape) == 2 and shape == shapes[-1]]
    if not weights or weights[0][1] != shapes[0][-1]:
        return None
    groups = len(weights)
    m, (n, k) = math.ceil(math.prod(shapes[0][:-1]) / groups), weights[0]
    # One kernel for all groups, or one for each.
    batch = groups if kernels <= 2 else 1
    products = gradients(m, n, k, batch) if backward else [_product(m, n, k, batch)]
    return [columns for columns in products for _ in range(groups // batch)]


def _experts(signature: Signature, kernels: int) -> list[Columns] | None:
    """Tokens [t, width], weights [experts, up, width] and [experts, width, down], experts of each token at 4.

    Tokens are taken to be spread evenly. How many experts' weights were read isn't recorded: at least those that one
    token visits, at most all.
    """
    tokens, chosen = signature.shape(0), signature.shape(4)
    first, second = signature.at(1), signature.at(2)
    if tokens is None or chosen is None or len(tokens) != 2 or not first or not second:
        return None
    if len(first[0].shape) != 3 or len(second[0].shape) != 3:
        return None
    experts, up, _ = first[0].shape
    pairs = math.prod(chosen)
    visited = min(experts, pairs)
    whole = second[0].shape[1] == tokens[1] == first[0].shape[2]
    if not whole or visited == 0:
        return None
    rows, bracket = math.ceil(pairs / visited), {"work_low": chosen[-1] / visited, "work_high": 1.0}
    down = second[0].shape[2]
    return [
        _product(rows, up, tokens[1], visited) | bracket,
        _product(rows, tokens[1], down, visited) | bracket,
    ]


def _experts_of_engine(signature: Signature, kernels: int) -> list[Columns] | None:
    """Tokens [t, width] and a score for each expert; the activation tells how many each visits, and how wide they are.

    What the weights are stored in isn't recorded either: from 4 bits to the tokens' 16 is in the bracket.
    """
    tokens, scored = signature.shape(0), signature.shape(1)
    if not tokens or not scored or signature.output is None or len(tokens) != 2 or tokens[0] != scored[0]:
        return None
    pairs, width = signature.output
    visited = min(scored[-1], pairs)
    if visited == 0 or tokens[0] == 0 or pairs % tokens[0]:
        return None
    rows = math.ceil(pairs / visited)
    bracket = {"work_low": pairs // tokens[0] / visited * FOUR_BITS_OF_16, "work_high": 1.0}
    return [
        _product(rows, 2 * width, tokens[1], visited) | bracket,
        _product(rows, tokens[1], width, visited) | bracket,
    ]


CHAINS: dict[str, Chain] = {
    "_LinearBackward": _layer_backward,
    "_LayerNormLinearBackward": _layer_backward,
    "_LayerNormMLP": _feed_forward_forward,
    "_LayerNormMLPBackward": _feed_forward_backward,
    "_GroupedLinear": lambda signature, kernels: _grouped(signature, False, kernels),
    "_GroupedLinearBackward": lambda signature, kernels: _grouped(signature, True, kernels),
    "LinearWithGradAccumulationAndAsyncCommunicationBackward": _weight_gradient,
    "vllm::inplace_fused_experts": _experts,
    "vllm::outplace_fused_experts": _experts,
    "sglang::inplace_fused_experts": _experts,
    "sglang::outplace_fused_experts": _experts,
    "vllm::moe_forward": _experts_of_engine,
    "vllm::moe_forward_shared": _experts_of_engine,
}
"""Op -> its GEMMs in order; the number of kernels that ran tells some how they are cut."""
