"""Compute recurrent layers of cuDNN and MIOpen, kernel by kernel: one op has all layers, directions and steps.

A layer multiplies its whole input at once, and its state step by step:

    input GEMM (all steps) -> state GEMM (step 1) -> state GEMM (step 2) -> ...
                              or one persistent kernel over all steps

A persistent kernel keeps the state's weights on the chip. Without one, kernels of one name that run once per step are
the state's GEMMs. cuDNN leaves the first step out if there is no initial state. All other GEMMs divide the rest of the
work by their time.

Pointwise kernels between the steps have no work: what cuDNN saves for the backward pass isn't documented. Those of
captured programs read the gates of a step, and write them and the state.
"""

import math
import re
from dataclasses import dataclass

from tracekit.workload.ops.memory_traffic import Columns, TrafficFormula, build_traffic_columns, sum_bytes
from tracekit.workload.ops.registry import op
from tracekit.workload.signature import Signature

STATE_AND_DIRECTION_POSITIONS = {
    "aten::_cudnn_rnn": (4, 13),
    "aten::_cudnn_rnn_backward": (4, 17),
    "aten::miopen_rnn": (3, 11),
    "aten::miopen_rnn_backward": (4, 16),
}
"""Positions of the initial state, [cells, batch, width], and of the flag for both directions, by op. Input [..., width]
and the list of weights come first."""
FLOPS_PER_ELEMENT = 20
"""FLOPs of the gates of a cell: three or four activations, and what combines them."""
CAPTURED_CELL = "recurrent_cell_elementwise_kernel"
"""Kernel of a step of a cell, in captured programs."""
PERSISTENT_KERNEL = re.compile(r"RNN_blockPersist|\bpersistRNN(?!_)")


@dataclass(frozen=True, slots=True)
class _RecurrentLayers:
    """Sizes of all layers of one call.

    Attributes:
        rows: Tokens of all sequences together.
        batch: Sequences.
        steps: Steps of each sequence; 0 if they differ.
        cells: Layers times directions.
        gates: Width of all gates of a cell together.
        width: Width of a cell's state.
        input_width: Width of the inputs of all cells together.
        read_width: The same, with inputs of both directions counted once.
    """

    rows: int
    batch: int
    steps: int
    cells: int
    gates: int
    width: int
    input_width: int
    read_width: int

    @property
    def step_counts(self) -> tuple[int, ...]:
        """Launches of a kernel that does one step of a cell, with the first step or without; empty if unknown."""
        return (self.steps * self.cells, (self.steps - 1) * self.cells) if self.steps > 2 else ()


def compute_recurrent_work(signature: Signature, kernel: str, products: str | None, item_bytes: int) -> Columns | None:
    """Compute the work of one kernel of a recurrent op; ``None`` if it isn't known.

    ``products`` are the GEMMs of the call, as ``list_recurrent_gemms`` lists them; ``None`` for a kernel that isn't a
    GEMM. ``item_bytes`` count where the signature has no type.

    Returns:
        Columns of a GEMM, and ``shares``: whether several kernels split this work.
    """
    layers = _parse_layers(signature)
    if layers is not None and kernel == CAPTURED_CELL:
        written = layers.batch * (2 * layers.gates + 3 * layers.width)
        return build_traffic_columns(
            (layers.batch, layers.width),
            flops=FLOPS_PER_ELEMENT * layers.batch * layers.width,
            bytes_=written * signature.tensors[0].get_item_bytes(item_bytes),
        )
    if layers is None or products is None:
        return None
    counts = {name: int(count) for count, name in (line.split(" ", 1) for line in products.split("\n"))}
    item = signature.tensors[0].get_item_bytes(item_bytes)
    persistent = sum(count for name, count in counts.items() if PERSISTENT_KERNEL.search(name))
    if PERSISTENT_KERNEL.search(kernel):
        return _compute_persistent(layers, persistent, item)
    backward = signature.op.endswith("_backward")
    if not persistent and counts[kernel] in layers.step_counts:
        n, k = (layers.width, layers.gates) if backward else (layers.gates, layers.width)
        return {"batch": 1, "m": layers.batch, "n": n, "k": k, "shares": False}
    told = persistent or any(count in layers.step_counts for count in counts.values())
    state = layers.cells * layers.width
    weights = layers.input_width + state if backward and _wants_weights(signature) else 0
    return _compute_remaining_gemms(layers, layers.input_width + weights + (0 if told else state), item)


def _compute_persistent(layers: _RecurrentLayers, kernels: int, item_bytes: int) -> Columns | None:
    """Compute all steps of the cells of one persistent kernel; weights are read once."""
    if layers.cells % kernels:
        return None
    cells = layers.cells // kernels
    moved = layers.gates * layers.width + layers.rows * (layers.gates + layers.width)
    sizes: Columns = {"batch": cells, "m": layers.rows, "n": layers.gates, "k": layers.width}
    return sizes | {"bytes": cells * moved * item_bytes, "shares": False}


def _compute_remaining_gemms(layers: _RecurrentLayers, depth: int, item_bytes: int) -> Columns:
    """Compute all other GEMMs as a single one, with the sum of their k."""
    moved = layers.rows * (layers.read_width + layers.cells * layers.gates) + layers.gates * layers.input_width
    sizes: Columns = {"batch": 1, "m": layers.rows, "n": layers.gates, "k": depth}
    return sizes | {"bytes": moved * item_bytes, "shares": True}


def _wants_weights(signature: Signature) -> bool:
    """Return whether the gradient of the weights is wanted, the last of four flags."""
    wanted = signature.get_value(len(signature.concrete_inputs) - 1)
    return not isinstance(wanted, list) or not wanted or bool(wanted[-1])


def _parse_layers(signature: Signature) -> _RecurrentLayers | None:
    """Parse the layers from the weights [gates, input] and [gates, width] of each cell; biases lie between these pairs.

    Projected states (``proj_size``) are left out.
    """
    state_at, both_at = STATE_AND_DIRECTION_POSITIONS[signature.op]
    x, state = signature.get_shape(0), signature.get_shape(state_at)
    matrices = [tensor.shape for tensor in signature.get_tensors(1) if len(tensor.shape) == 2]
    if not x or state is None or len(state) != 3 or len(matrices) != 2 * state[0] or 0 in (*x, *state):
        return None
    inputs = [shape[1] for shape in matrices[::2]]
    directions = 2 if signature.get_value(both_at) is True or inputs[-1] == 2 * state[2] else 1
    gates, width = matrices[1]
    return _RecurrentLayers(
        rows=math.prod(x[:-1]),
        batch=state[1],
        steps=x[0] * x[1] // state[1] if len(x) == 3 else 0,
        cells=state[0],
        gates=gates,
        width=width,
        input_width=sum(inputs),
        read_width=sum(inputs[::directions]),
    )


def _make_cell(*, state: int, written: int) -> TrafficFormula:
    """Make the formula of a cell whose GEMMs are separate ops: it reads its inputs once.

    Args:
        state: Argument that is as wide as the state.
        written: Width of all results together, as a multiple of the state's (ATen/native/cuda/RNN.cu).
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        width = signature.get_tensors(state)
        if not width:
            return None
        bytes_ = sum_bytes(signature.tensors, item_bytes) + written * width[0].compute_bytes(item_bytes)
        return build_traffic_columns(width[0].shape, flops=FLOPS_PER_ELEMENT * width[0].numel, bytes_=bytes_)

    return columns


op("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", family="elementwise")(_make_cell(state=2, written=6))
op("aten::_thnn_fused_lstm_cell_backward_impl", family="elementwise")(_make_cell(state=2, written=5))
op("aten::_thnn_fused_gru_cell_backward", family="elementwise")(_make_cell(state=0, written=7))
"""Written are the new states and all gates for the backward pass, or the gradients of gates and state."""
