"""Find the repeated layers of a model in its passes: by its modules, or else by the kernels that repeat."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.compiled import compile_lazily
from tracekit.messages import layouts
from tracekit.parallelism.inserted import WORK_FROM_ASSUMED
from tracekit.parallelism.layout import LayoutError
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD, OPTIMIZER
from tracekit.workload.step_kinds import compute_time_share

MIN_LAYERS_PCT = 50.0
"""Percent of a forward pass's GPU time that repeated layers must take."""

MIN_FORWARD_RUN_FRACTION = 0.05
"""Fraction of a step's forward kernels; a shorter run of forward kernels amid backward ones counts as backward."""


@dataclass(frozen=True, slots=True)
class RepeatedLayers:
    """The layers of a model in the order of the forward pass, and the passes of all chosen steps.

    Attributes:
        count: Number of repeated layers.
        passes_per_step: Passes in a step: micro-batches of gradient accumulation.
        kernels: Computing kernels of forward and backward passes in order of launch: ``rank``, ``step``, and ``row`` in
            the kernel table.
        passes: One row for each pass that has the layers of the first one, shape (passes, 3): positions in ``kernels``
            where its forward begins, its backward begins, and its backward ends.
        is_first_pass: Whether each pass is the first of its step.
        forward_starts: Positions at which the layers begin in each forward pass, relative to its begin, and where the
            last one ends; shape (passes, count + 1).
        backward_starts: The same for a backward pass, which runs the last layer first.
    """

    count: int
    passes_per_step: int
    kernels: pl.DataFrame
    passes: Ints
    is_first_pass: Bools
    forward_starts: Ints
    backward_starts: Ints

    @property
    def first_pass_rows(self) -> pl.Series:
        """Kernel-table rows of the layers in the first forward pass."""
        start = int(self.passes[0, 0])
        return self.kernels["row"][start + int(self.forward_starts[0, 0]) : start + int(self.forward_starts[0, -1])]


def find_repeated_layers(program: Program) -> RepeatedLayers:
    """Find the repeated layers of a traced training job.

    Raises:
        LayoutError: There is no backward pass, nothing repeats, or the repeated part of the pass is too small.
    """
    kernels = _select_computing_kernels(program)
    passes, first = _find_passes(kernels)
    if not passes.size:
        raise LayoutError(layouts.NO_TRAINING())
    starts = _find_starts(program, kernels, passes)
    alike = np.array([one is not None for one in starts])
    forward, backward = (np.array(each) for each in zip(*(one for one in starts if one), strict=True))
    steps = kernels.select("rank", "step").n_unique()
    return RepeatedLayers(
        count=forward.shape[1] - 1,
        passes_per_step=max(round(len(passes) / steps), 1),
        kernels=kernels,
        passes=passes[alike],
        is_first_pass=first[alike],
        forward_starts=forward,
        backward_starts=backward,
    )


def _find_starts(program: Program, kernels: pl.DataFrame, passes: Ints) -> "list[tuple[Ints, Ints] | None]":
    """Find where the layers begin in each pass, forward and backward; None in a pass of other layers than the first.

    Passes of a step differ: the first makes gradients, those that follow add to them.

    Raises:
        LayoutError: The first pass has no layers.
    """

    def find(start: int, turn: int, end: int) -> tuple[Ints, Ints]:
        here = program.kernels[kernels["row"][start:end]]
        by_module = find_module_layers(here, turn - start) if program.trace.capture_facts else None
        return by_module or _find_layers_by_kernels(here, turn - start)

    lengths = np.diff(passes, axis=1)
    first = find(*passes[0].tolist())
    known: dict[tuple[int, ...], tuple[Ints, Ints] | None] = {tuple(lengths[0].tolist()): first}
    for place, length in enumerate(map(tuple, lengths.tolist())):
        if length in known:
            continue
        known[length] = None
        if length[0] == lengths[0, 0]:
            with suppress(LayoutError):
                found = find(*passes[place].tolist())
                known[length] = found if np.array_equal(found[0], first[0]) else None
    return [known[tuple(length)] for length in lengths.tolist()]


LAYER_MODULE = r"^(.*?[^.]+)_(\d+)(?:\.|$)"
"""Path of the outermost module that its parent has several times, without its number; and the number."""
CONTAINER_MODULE = r"(^|\.)(Sequential|ModuleList|ModuleDict)$"
"""Stages of a vision model, say, which aren't alike."""
MIN_MODULE_LAYERS = 3
"""Two modules of a class may be an encoder and a decoder."""


def find_module_layers(kernels: pl.DataFrame, turn: int) -> tuple[Ints, Ints] | None:
    """Find the layers of a pass by the modules that launched its kernels; None where these don't tell.

    Kernels that torch.compile fuses differ from layer to layer, and recomputation adds to some layers only, so that no
    sequence of kernels repeats; the modules stay. A kernel between those of two layers belongs to the first of them.

    Args:
        kernels: Rows of the kernel table: a forward pass, and its backward pass.
        turn: Place where the backward pass begins.

    Returns:
        ``forward_starts`` and ``backward_starts`` of :class:`RepeatedLayers`.
    """
    groups = kernels.select(
        "dur_ns",
        parent=pl.col("module").str.extract(LAYER_MODULE, 1),
        number=pl.col("module").str.extract(LAYER_MODULE, 2).cast(pl.Int64),
        place=pl.int_range(pl.len()),
        back=pl.int_range(pl.len()) >= turn,
    )
    known = groups.drop_nulls("parent").filter(~pl.col("parent").str.contains(CONTAINER_MODULE))
    if known.is_empty():
        return None
    longest = known.group_by("parent").agg(pl.col("dur_ns").sum()).sort("dur_ns", "parent")["parent"][-1]
    layers = known.filter(parent=longest).group_by("back", "number").agg(start=pl.col("place").min())
    starts = [layers.filter(back=back).sort("start") for back in (False, True)]
    order = [each["number"].to_numpy() for each in starts]
    if len(order[0]) < MIN_MODULE_LAYERS or not np.array_equal(order[0], order[1][::-1]):
        return None
    ends = [int(known.filter(parent=longest, back=back)["place"][-1]) + 1 for back in (False, True)]
    forward, backward = (
        np.append(each["start"].to_numpy(), end).astype(np.int64) for each, end in zip(starts, ends, strict=True)
    )
    inside = groups.select("dur_ns", "place")[:turn]
    part = compute_time_share(inside, "dur_ns", pl.col("place").is_between(forward[0], forward[-1] - 1))
    return (forward, backward - turn) if part >= MIN_LAYERS_PCT else None


def _find_layers_by_kernels(here: pl.DataFrame, turn: int) -> tuple[Ints, Ints]:
    """Find the layers of a pass by the kernels that repeat; arguments and result as for :func:`find_module_layers`.

    Raises:
        LayoutError: Nothing repeats, or the repeated part of the pass is too small.
    """
    tokens = here.select(pl.struct(pl.coalesce("op", "name"), "input_dims").rank("dense")).to_series().to_numpy()
    begin, period, count = find_repetition(tokens[:turn].astype(np.int64))
    forward = begin + period * np.arange(count + 1)
    places = here[:turn].with_row_index("place")
    part = compute_time_share(places, "dur_ns", pl.col("place").is_between(begin, forward[-1] - 1))
    if count < 2 or part < MIN_LAYERS_PCT:
        if count < 2:
            raise LayoutError(layouts.LAYERS_UNREPEATED())
        raise LayoutError(layouts.LAYERS_MIXED(time_pct=part, layers=count))
    return forward, _find_backward_starts(tokens[turn:].astype(np.int64), count)


def _select_computing_kernels(program: Program) -> pl.DataFrame:
    """Select the computing kernels of the chosen steps' forward and backward passes, in order of launch."""
    table = program.kernels.select(
        "rank", "step", "phase", "family", "work_from", row=pl.int_range(pl.len()), at=pl.coalesce("call", "ts_ns")
    )
    computing = (pl.col("family") != "collective") & program.is_in_chosen_steps
    recorded = pl.col("work_from").ne_missing(WORK_FROM_ASSUMED)
    table = table.filter(computing & recorded & (pl.col("phase") != OPTIMIZER)).sort("rank", "step", "at", "row")
    back = pl.col("phase") == BACKWARD
    runs = table.with_columns(
        run=pl.struct("rank", "step", "phase").rle_id(), of_step=(~back).sum().over("rank", "step")
    )
    short = ~back & (pl.len().over("run") < MIN_FORWARD_RUN_FRACTION * pl.col("of_step"))
    within = back.cum_sum().over("rank", "step").gt(0) & back.cum_sum(reverse=True).over("rank", "step").gt(0)
    return runs.select("rank", "step", "row", back=back | (short & within))


def _find_passes(kernels: pl.DataFrame) -> tuple[Ints, Bools]:
    """Find where passes begin, turn and end, and which are the first of their step.

    A pass is a run of forward kernels followed by a run of backward kernels.
    """
    runs = (
        kernels.with_row_index("place")
        .group_by(pl.struct("rank", "step", "back").rle_id().alias("run"), maintain_order=True)
        .agg(pl.first("rank", "step", "back"), start=pl.first("place"), end=pl.last("place") + 1)
    )
    follows = pl.col("back").shift(-1).over("rank", "step") & ~pl.col("back")
    turned = runs.with_columns(stop=pl.col("end").shift(-1)).filter(follows)
    first = turned.select(pl.int_range(pl.len()).over("rank", "step") == 0).to_series().to_numpy()
    return turned.select("start", "end", "stop").to_numpy().astype(np.int64), first


def _find_backward_starts(tokens: Ints, count: int) -> Ints:
    """Find where the backward pass of each layer begins.

    The outermost layers may have a few kernels more or fewer than the others, so the count may differ by one.
    """
    begin, period, found = find_repetition(tokens)
    if found < 2 or abs(found - count) > 1:
        raise LayoutError(layouts.LAYERS_UNPAIRED(forward=count, backward=found))
    return np.minimum(begin + period * np.arange(count + 1), tokens.size)


def find_repetition(tokens: Ints) -> tuple[int, int, int]:
    """Find the repeated sequence that covers most elements: its begin, its length, its count (1: no repetition).

    Example: ``[7, 1, 2, 1, 2, 1, 2, 9]`` gives ``(1, 2, 3)``.

    Args:
        tokens: An integer for each distinct element.
    """
    best = np.array([0, tokens.size, 1])
    _find_longest_repetition(tokens.size, tokens, best)
    begin, period, count = best.tolist()
    return begin, period, count


@compile_lazily
def _find_longest_repetition(size: int, tokens: Ints, best: Ints) -> int:  # pragma: no cover - compiled
    covered = 0
    for period in range(1, size // 2 + 1):
        run = 0
        for place in range(size - period):
            run = run + 1 if tokens[place] == tokens[place + period] else 0
            count = run // period + 1
            if count > 1 and count * period > covered:
                covered = count * period
                best[0] = place - run + 1
                best[1] = period
                best[2] = count
    return covered
