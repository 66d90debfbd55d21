"""The memory of a captured program in another layout: what ranks keep of activations, and what each stage needs."""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Floats
from tracekit.messages import layouts as messages
from tracekit.models.captured import CaptureFacts, LayerMemory
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.pipeline_schedules import BACKWARD, FORWARD, WEIGHT_GRADIENT, build_tasks
from tracekit.parallelism.tensor_parallel import measure_gathered_bytes, measure_split_fraction
from tracekit.program import Program


def bound_activation_parts(program: Program, facts: CaptureFacts, old: Layout, new: Layout) -> tuple[float, float]:
    """Bound the part of a step's activations that a rank of another layout keeps for each of its sequences.

    Tensor parallelism splits heads and what lies between a block's products; with sequence parallelism all between
    blocks, too, but for the inputs of blocks where ranks keep what they gather (PyTorch; Megatron-LM gathers again).

    Args:
        program: The program.
        facts: What is known of it.
        old: The trace's layout.
        new: Another one.
    """
    split = old.tp / new.tp
    ends = min(split, 1.0), max(split, 1.0)
    if split == 1 or old.tp > 1 or not facts.activations:
        return ends
    try:
        part = measure_split_fraction(program, new.sequence_parallel)
    except LayoutError:
        return ends
    kept = 1 - part + part * split
    whole = sum(size for size, _ in facts.activations)
    gathered = measure_gathered_bytes(program) / facts.micro_batches / whole if new.sequence_parallel else 0.0
    return kept, min(kept + (1 - split) * gathered, 1.0)


@dataclass(frozen=True)
class StageNeeds:
    """What the ranks of each stage hold, by stage.

    Attributes:
        state_bytes: Parameters, gradients and optimizer state.
        peak_bytes: The most of all tensors at once.
        passes: The most passes of chunks whose activations are held at once.
    """

    state_bytes: Floats
    peak_bytes: Floats
    passes: Floats

    @property
    def fullest(self) -> int:
        """The stage that needs most."""
        return int(self.peak_bytes.argmax())


def compute_stage_needs(
    facts: CaptureFacts, layers: LayerMemory, layouts: tuple[Layout, Layout], part: float, *, most: bool
) -> StageNeeds:
    """Compute what the ranks of each stage hold.

    Each stage holds its layers' parameters, gradients and states, and what its layers keep for the passes that it has
    begun and not ended. With 3 stages by 1F1B these are 3, 2 and 1::

        stage 0 | F0 F1 F2 B0 F3 B1 B2 B3
        stage 1 | F0 F1 B0 F2 B1 F3 B2 B3
        stage 2 | F0 B0 F1 B1 F2 B2 F3 B3

    Args:
        facts: What is known of the program.
        layers: Its layers.
        layouts: Layouts of the trace and on the target.
        part: Part of the activations of a pass that a rank keeps.
        most: Whether FSDP's shards count beside the whole parameters and gradients.

    Raises:
        LayoutError: There are fewer layers than stages.
    """
    old, new = layouts
    split, ranks = old.tp / new.tp, new.fsdp_ranks / old.fsdp_ranks
    updated = old.optimizer_ranks / new.optimizer_ranks
    edges = _split_layers(layers, new)
    chunk_parameters, kept, extra = _sum_chunks(layers, edges)
    activations = part * new.batch / old.batch * old.cp / new.cp
    peaks, passes = _schedule_activations(new, facts.micro_batches, kept * activations, extra * activations)
    parameters = split * chunk_parameters.reshape(new.chunks, new.pp).sum(axis=0)
    shards = 1 / ranks if most and ranks > 1 else 0.0
    trained = 1 - facts.frozen_bytes / max(facts.parameter_bytes, 1)
    buckets = trained * parameters if old.data_ranks == 1 < new.data_ranks and new.optimizer_ranks == 1 else 0.0
    per_parameter = facts.state_bytes / max(facts.parameter_bytes, 1)
    update = parameters / max(facts.parameter_bytes, 1) * facts.peaks[-1][2] * updated
    state = parameters * ((1 + trained) * (1 + shards) + per_parameter * updated)
    other = facts.held_bytes - facts.parameter_bytes - facts.state_bytes
    return StageNeeds(state, state + buckets + other + np.maximum(peaks, update), passes)


def _split_layers(layers: LayerMemory, layout: Layout) -> list[int]:
    """Split the layers into chunks; return the first layer of each, and their number.

    Chunks inside take the remaining layers first, as they have no embedding and no head; then the first one.
    """
    chunks, count = layout.pp * layout.chunks, len(layers.kept_bytes)
    least, left = divmod(count, chunks)
    if not least:
        raise LayoutError(messages.LAYERS_INDIVISIBLE(layers=count, stages=layout.pp, chunks=layout.chunks))
    each = np.full(chunks, least)
    each[[*range(1, chunks - 1), 0, chunks - 1][:left]] += 1
    return [0, *each.cumsum().tolist()]


def _sum_chunks(layers: LayerMemory, edges: list[int]) -> tuple[Floats, Floats, Floats]:
    """Return parameters, what is kept, and the most beside it, of each chunk; the last has the head and the loss."""
    begin = np.array(edges[:-1])
    parameters, kept = (
        np.add.reduceat(np.array(sizes, np.float64), begin) for sizes in (layers.parameter_bytes, layers.kept_bytes)
    )
    extra = np.maximum.reduceat(np.array(layers.extra_bytes, np.float64), begin)
    parameters[0] += layers.first_parameter_bytes
    parameters[-1] += layers.last_parameter_bytes
    kept[0] += layers.first_kept_bytes
    extra[-1] = max(extra[-1], layers.last_extra_bytes)
    return parameters, kept, extra


def _schedule_activations(layout: Layout, passes: int, kept: Floats, extra: Floats) -> tuple[Floats, Floats]:
    """Return the most activations of each stage, and the most passes of chunks that they are of.

    Args:
        layout: The layout.
        passes: Passes in a step of the trace.
        kept: What each chunk keeps for its backward pass.
        extra: The most that its passes hold beside that.
    """
    # From twice as many micro-batches as stages on, no more are held at once.
    micro_batches = min(layout.micro_batches or passes * layout.pp, 2 * layout.pp)
    tasks = build_tasks(layout.pp, layout.chunks, micro_batches, layout.zero_bubble)
    kind, chunk = tasks[..., 0], tasks[..., 1]
    ends = kind == (WEIGHT_GRADIENT if layout.zero_bubble else BACKWARD)
    change = np.where(kind == FORWARD, 1, 0) - np.where(ends, 1, 0)
    held = (change * kept[chunk]).cumsum(axis=1)
    during = held + np.where(ends, kept[chunk], 0.0) + extra[chunk]
    return during.max(axis=1), change.cumsum(axis=1).max(axis=1).astype(np.float64)
