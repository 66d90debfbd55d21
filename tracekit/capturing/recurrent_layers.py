"""Run LSTM, GRU and plain recurrent layers as cuDNN's standard algorithm does, one op for all layers and steps.

PyTorch on tensors without data makes several ops for each step in time; on CUDA ``aten::_cudnn_rnn`` launches for each
layer and direction one GEMM of the whole input, then for each step a GEMM of the state and a pointwise kernel. Half
precision of one layer whose widths suit it runs in one persistent kernel (``get_algo`` and
``use_persist_common_heuristics`` in ATen/native/cudnn/RNN.cpp). cuDNN runs directions and layers side by side where it
can, and chooses other kernels for some sizes; neither is known here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import Library

from tracekit.workload.ops.recurrent import CAPTURED_CELL

MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""cuDNN's numbers of kinds of layers."""
LSTM = "lstm"
INPUT_GEMM, STATE_GEMM = "cudnn_rnn_input_gemm", "cudnn_rnn_state_gemm"
PERSISTENT = "RNN_blockPersist_{direction}p_LSTM<__half>"
MAX_PERSISTENT_WIDTH, PERSISTENT_MULTIPLE = 1024, 128
MIN_PERSISTENT_STEPS = 10
MATRICES = 2
"""Of a cell: for its input, and for its state."""
FORWARD_STATE, FORWARD_LAYERS, FORWARD_FIRST, FORWARD_BOTH, FORWARD_SIZES = 4, 9, 10, 13, 14
BACKWARD_LAYERS, BACKWARD_FIRST, BACKWARD_BOTH, BACKWARD_SIZES = 13, 14, 17, 18
"""Arguments: the initial state, how many layers, whether batches come first, whether both directions, packed sizes."""
WEIGHT_PARTS = 3
"""GEMMs of a cell in the backward pass besides those of the steps: of its input, and of both weights."""


def _make_gradients(*given: Any) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor]]:
    x, weights, state, cells = given[0], given[1], given[4], given[5]
    return (
        torch.empty_like(x),
        torch.empty_like(state),
        torch.empty_like(state) if cells is None else torch.empty_like(cells),
        [torch.empty_like(one) for one in weights],
    )


_LIBRARY = Library("aten", "IMPL", "Meta")
if not torch._C._dispatch_has_kernel_for_dispatch_key("aten::_cudnn_rnn_backward", "Meta"):
    _LIBRARY.impl("_cudnn_rnn_backward", _make_gradients)


class _RecurrentLayers(Function):
    """All layers, directions and steps of one call."""

    @staticmethod
    def forward(ctx: Any, options: tuple[Any, ...], x: Tensor, state: Tensor, cell: Any, *weights: Tensor) -> Any:
        mode, stride, layers, is_batch_first, dropout, trains, both, sizes = options
        width, keeps = weights[1].shape[1], trains and any(one.requires_grad for one in (x, state, *weights))
        found = torch.ops.aten._cudnn_rnn(
            *(x, list(weights), stride, None, state, cell, mode, width, 0, layers, is_batch_first, dropout, trains),
            *(both, sizes, None),
        )
        output, last_state, last_cell = found[:3]
        rows = x.numel() // x.shape[-1]
        kept = x.new_empty(state.shape[0], rows, weights[1].shape[0] + 2 * width) if keeps else x.new_empty(0)
        buffer = x.new_empty(0)
        ctx.options = options
        ctx.has_cell = cell is not None
        ctx.save_for_backward(x, state, *([cell] if ctx.has_cell else []), output, kept, buffer, *weights)
        return output, last_state, last_cell

    @staticmethod
    def backward(ctx: Any, of_output: Any, of_state: Any, of_cell: Any) -> Any:
        mode, stride, layers, is_batch_first, dropout, trains, both, sizes = ctx.options
        x, state, *rest = ctx.saved_tensors
        cell = rest.pop(0) if ctx.has_cell else None
        output, kept, buffer, *weights = rest
        found = torch.ops.aten._cudnn_rnn_backward(
            *(x, weights, stride, buffer, state, cell, output, of_output, of_state, of_cell if ctx.has_cell else None),
            *(mode, weights[1].shape[1], 0, layers, is_batch_first, dropout, trains, both, sizes, None, kept),
            [True] * 4,
        )
        return None, found[0], found[1], found[2] if ctx.has_cell else None, *found[3]


def make_recurrence(kind: str, cast: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """Make what runs instead of a function of ``torch._VF``.

    Args:
        kind: Its name.
        cast: Casts what autocast does.
    """

    def run(x: Tensor, *given: Any) -> tuple[Tensor, ...]:
        is_packed = isinstance(given[1], Tensor) or (kind == LSTM and isinstance(given[0], Tensor))
        sizes = given[0].tolist() if is_packed else []
        states, weights, has_biases, layers, dropout, trains, both, *first = given[1:] if is_packed else given
        state, cell = states if kind == LSTM else (states, None)
        options = (
            *(MODES[kind], 2 * MATRICES if has_biases else MATRICES, layers, bool(first and first[0]), dropout, trains),
            *(both, sizes),
        )
        given_states = (cast(state), None if cell is None else cast(cell))
        output, last, last_cell = _RecurrentLayers.apply(options, cast(x), *given_states, *map(cast, weights))
        return (output, last, last_cell) if kind == LSTM else (output, last)

    return run


def name_recurrent_kernels(given: Sequence[Any], *, backward: bool) -> tuple[str, ...]:
    """Name the kernels of a call of recurrent layers."""
    x, weights, state = given[0], given[1], given[FORWARD_STATE]
    places = (
        (BACKWARD_FIRST, BACKWARD_SIZES, BACKWARD_LAYERS, BACKWARD_BOTH)
        if backward
        else (FORWARD_FIRST, FORWARD_SIZES, FORWARD_LAYERS, FORWARD_BOTH)
    )
    is_batch_first, sizes, layers, both = (given[place] for place in places)
    steps = len(sizes) or x.shape[1 if is_batch_first else 0]
    cells = state.shape[0]
    inputs = (INPUT_GEMM,) * (cells * (WEIGHT_PARTS if backward else 1))
    width = weights[1].shape[1]
    suits = width <= MAX_PERSISTENT_WIDTH and not width % PERSISTENT_MULTIPLE and not x.shape[-1] % PERSISTENT_MULTIPLE
    is_single = layers == 1 and not both and not sizes and steps > MIN_PERSISTENT_STEPS
    if x.dtype is torch.float16 and suits and is_single:
        return (*inputs, PERSISTENT.format(direction="b" if backward else "f"))
    return (*inputs, *(STATE_GEMM, CAPTURED_CELL) * (steps * cells))
