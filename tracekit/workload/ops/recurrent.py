"""Recurrent layers of cuDNN and MIOpen: one op for all layers, directions and steps, kernel by kernel.

A layer multiplies its whole input at once and its state step by step. A persistent kernel goes over all steps and keeps
the weights of the state; where there is none, kernels of one name that run once for each step are the state's GEMMs.
cuDNN leaves the first step out where no state comes in. All other GEMMs share the rest by their time.

Pointwise kernels between the steps have no work: what cuDNN keeps for the backward pass isn't documented.
"""

import math
import re
from dataclasses import dataclass

from tracekit.workload.ops.vector import Columns, Traffic, columns_of, size_of
from tracekit.workload.signature import Signature

STATE_AND_DIRECTION = {
    "aten::_cudnn_rnn": (4, 13),
    "aten::_cudnn_rnn_backward": (4, 17),
    "aten::miopen_rnn": (3, 11),
    "aten::miopen_rnn_backward": (4, 16),
}
"""Op -> the arguments that are its initial state, [cells, batch, width], and whether it goes both ways.

Input [..., width] and the list of weights come first.
"""
FLOPS_PER_ELEMENT = 20
"""Of the gates of a cell: three or four activations, and what combines them."""
PERSISTENT = re.compile(r"RNN_blockPersist|\bpersistRNN(?!_)")


@dataclass(frozen=True, slots=True)
class _Layers:
    """All layers of one call.

    Attributes:
        rows: Tokens of all sequences together.
        batch: Sequences.
        steps: Of all sequences; 0 where they differ.
        cells: Layers times directions.
        gates: How wide all gates of a cell are together.
        width: Of a cell's state.
        inputs: How wide the inputs of all cells are together.
        read: The same, but what both directions take once.
    """

    rows: int
    batch: int
    steps: int
    cells: int
    gates: int
    width: int
    inputs: int
    read: int

    @property
    def step_counts(self) -> tuple[int, ...]:
        """How often a kernel runs that does a step of a cell, the first one or not; empty where that can't be told."""
        return (self.steps * self.cells, (self.steps - 1) * self.cells) if self.steps > 2 else ()


def work(signature: Signature, kernel: str, products: str | None, item_bytes: int) -> Columns | None:
    """What one kernel of a recurrent op does; ``None`` where that isn't known.

    Args:
        signature: The op.
        kernel: The kernel's name.
        products: GEMMs that the call ran, as :func:`tracekit.workload.places.of_recurrent` counts them;
            ``None`` for a kernel that is none.
        item_bytes: Bytes per element where the signature names no type.

    Returns:
        Columns of a GEMM, and ``shares``: whether the kernel is one of several that share it.
    """
    layers = _layers(signature)
    if layers is None or products is None:
        return None
    counts = {name: int(count) for count, name in (line.split(" ", 1) for line in products.split("\n"))}
    item = signature.tensors[0].item_bytes(item_bytes)
    persistent = sum(count for name, count in counts.items() if PERSISTENT.search(name))
    if PERSISTENT.search(kernel):
        return _persistent(layers, persistent, item)
    backward = signature.op.endswith("_backward")
    if not persistent and counts[kernel] in layers.step_counts:
        n, k = (layers.width, layers.gates) if backward else (layers.gates, layers.width)
        return {"batch": 1, "m": layers.batch, "n": n, "k": k, "shares": False}
    told = persistent or any(count in layers.step_counts for count in counts.values())
    state = layers.cells * layers.width
    weights = layers.inputs + state if backward and _wants_weights(signature) else 0
    return _rest(layers, layers.inputs + weights + (0 if told else state), item)


def _persistent(layers: _Layers, kernels: int, item_bytes: int) -> Columns | None:
    """All steps of as many cells as there are for each kernel; weights are read once."""
    if layers.cells % kernels:
        return None
    cells = layers.cells // kernels
    moved = layers.gates * layers.width + layers.rows * (layers.gates + layers.width)
    sizes: Columns = {"batch": cells, "m": layers.rows, "n": layers.gates, "k": layers.width}
    return sizes | {"bytes": cells * moved * item_bytes, "shares": False}


def _rest(layers: _Layers, depth: int, item_bytes: int) -> Columns:
    """All other GEMMs as a single one, as deep as all of them one after the other."""
    moved = layers.rows * (layers.read + layers.cells * layers.gates) + layers.gates * layers.inputs
    sizes: Columns = {"batch": 1, "m": layers.rows, "n": layers.gates, "k": depth}
    return sizes | {"bytes": moved * item_bytes, "shares": True}


def _wants_weights(signature: Signature) -> bool:
    """Whether the gradient of the weights is asked for, the last of four flags."""
    wanted = signature.value(len(signature.concrete) - 1)
    return not isinstance(wanted, list) or not wanted or bool(wanted[-1])


def _layers(signature: Signature) -> _Layers | None:
    """From the weights [gates, input] and [gates, width] of each cell, between whose pairs are biases.

    Projected states (``proj_size``) are left out.
    """
    state_at, both_at = STATE_AND_DIRECTION[signature.op]
    x, state = signature.shape(0), signature.shape(state_at)
    matrices = [tensor.shape for tensor in signature.at(1) if len(tensor.shape) == 2]
    if not x or state is None or len(state) != 3 or len(matrices) != 2 * state[0] or 0 in (*x, *state):
        return None
    inputs = [shape[1] for shape in matrices[::2]]
    directions = 2 if signature.value(both_at) is True or inputs[-1] == 2 * state[2] else 1
    gates, width = matrices[1]
    return _Layers(
        rows=math.prod(x[:-1]),
        batch=state[1],
        steps=x[0] * x[1] // state[1] if len(x) == 3 else 0,
        cells=state[0],
        gates=gates,
        width=width,
        inputs=sum(inputs),
        read=sum(inputs[::directions]),
    )


def _cell(*, state: int, written: int) -> Traffic:
    """A cell whose GEMMs are ops of their own: reads its inputs once.

    Args:
        state: The argument that is as wide as the state.
        written: How many times as wide all results are together (ATen/native/cuda/RNN.cu).
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        width = signature.at(state)
        if not width:
            return None
        bytes_ = size_of(signature.tensors, item_bytes) + written * width[0].size_bytes(item_bytes)
        return columns_of(width[0].shape, flops=FLOPS_PER_ELEMENT * width[0].numel, bytes_=bytes_)

    return columns


TRAFFIC: dict[str, Traffic] = {
    "aten::_thnn_fused_lstm_cell": _cell(state=2, written=6),
    "aten::_thnn_fused_lstm_cell_backward_impl": _cell(state=2, written=5),
    "aten::_thnn_fused_gru_cell": _cell(state=2, written=6),
    "aten::_thnn_fused_gru_cell_backward": _cell(state=0, written=7),
}
"""New states, and all gates for the backward pass; or the gradients of gates and state."""
