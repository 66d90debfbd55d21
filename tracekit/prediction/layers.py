"""The repeated layers of a traced model: where each begins and ends in the forward and in the backward pass.

A model of equal layers runs the same ops on the same shapes once for each, so a pass is a beginning, a sequence that
repeats, and an end. Where in a layer the repetition begins is arbitrary, and doesn't matter to what the layers take.
"""

from dataclasses import dataclass

import numba
import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.prediction.added import ASSUMED
from tracekit.prediction.layout import LayoutError
from tracekit.replay.run import Run
from tracekit.workload.phases import BACKWARD, OPTIMIZER
from tracekit.workload.shares import share

LEAST_SHARE = 50.0
"""Percent of a forward pass's GPU time that repeated layers must take."""

FLICKER = 0.05
"""Part of a step's forward kernels below which a run of them amid backward ones is taken to belong to these."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a model, in the order of the forward pass, and the passes of all chosen steps that ran them.

    Attributes:
        count: How many layers repeat.
        per_step: Passes in a step: micro-batches whose gradients are added up.
        kernels: Computing kernels of forward and backward passes in order of launch: ``rank``, ``step``, ``row`` in the
            kernel table.
        passes: A row for each pass that is like the first: where in ``kernels`` its forward begins, its backward
            begins, and its backward ends.
        first: Whether each pass is the first of its step.
        forward: Where layers begin in a forward pass, and the last one ends, from its begin.
        backward: The same of a backward pass, which runs the last layer first.
    """

    count: int
    per_step: int
    kernels: pl.DataFrame
    passes: Ints
    first: Bools
    forward: Ints
    backward: Ints

    @property
    def rows_of_one(self) -> pl.Series:
        """Rows in the kernel table of the first pass's layers, forward."""
        start = int(self.passes[0, 0])
        return self.kernels["row"][start + int(self.forward[0]) : start + int(self.forward[-1])]


def recognise_layers(run: Run) -> Layers:
    """The repeated layers of a traced training job.

    Args:
        run: The measured run.

    Raises:
        LayoutError: There is no backward pass, nothing repeats, or what repeats is too little of the pass.
    """
    kernels = _computing(run)
    passes, first = _passes(kernels)
    if not passes.size:
        raise LayoutError(
            "the trace has no forward pass followed by a backward pass;",
            "pipeline parallelism and FSDP are predicted of training only.",
        )
    start, turn, end = (int(place) for place in passes[0])
    here = run.kernels[kernels["row"][start:end]]
    tokens = here.select(pl.struct(pl.coalesce("op", "name"), "input_dims").rank("dense")).to_series().to_numpy()
    begin, period, count = repetition(tokens[: turn - start].astype(np.int64))
    forward = begin + period * np.arange(count + 1)
    places = here[: turn - start].with_row_index("place")
    part = share(places, "dur_ns", pl.col("place").is_between(begin, forward[-1] - 1))
    if count < 2 or part < LEAST_SHARE:
        told = f"only {part:.0f} % of its forward pass are {count} layers that repeat" if count > 1 else "none repeat"
        raise LayoutError(f"the trace doesn't tell the layers: {told}.")
    alike = (passes[:, 1] - passes[:, 0] == turn - start) & (passes[:, 2] - passes[:, 1] == end - turn)
    steps = kernels.select("rank", "step").n_unique()
    return Layers(
        count=count,
        per_step=max(round(len(passes) / steps), 1),
        kernels=kernels,
        passes=passes[alike],
        first=first[alike],
        forward=forward,
        backward=_backward(tokens[turn - start :].astype(np.int64), count),
    )


def _computing(run: Run) -> pl.DataFrame:
    """Kernels of the chosen steps' forward and backward passes that compute, in order of launch."""
    rank = "rank" if "rank" in run.kernels.columns else pl.lit(0).alias("rank")
    table = run.kernels.select(
        rank, "step", "phase", "family", "work_from", row=pl.int_range(pl.len()), at=pl.coalesce("call", "ts_ns")
    )
    computing = (pl.col("family") != "collective") & run.in_steps
    recorded = pl.col("work_from").ne_missing(ASSUMED)
    table = table.filter(computing & recorded & (pl.col("phase") != OPTIMIZER)).sort("rank", "step", "at", "row")
    back = pl.col("phase") == BACKWARD
    runs = table.with_columns(
        run=pl.struct("rank", "step", "phase").rle_id(), of_step=(~back).sum().over("rank", "step")
    )
    short = ~back & (pl.len().over("run") < FLICKER * pl.col("of_step"))
    within = back.cum_sum().over("rank", "step").gt(0) & back.cum_sum(reverse=True).over("rank", "step").gt(0)
    return runs.select("rank", "step", "row", back=back | (short & within))


def _passes(kernels: pl.DataFrame) -> tuple[Ints, Bools]:
    """Where passes begin, turn and end: forward kernels that backward ones follow; and which are their step's first."""
    runs = (
        kernels.with_row_index("place")
        .group_by(pl.struct("rank", "step", "back").rle_id().alias("run"), maintain_order=True)
        .agg(pl.first("rank", "step", "back"), start=pl.first("place"), end=pl.last("place") + 1)
    )
    follows = pl.col("back").shift(-1).over("rank", "step") & ~pl.col("back")
    turned = runs.with_columns(stop=pl.col("end").shift(-1)).filter(follows)
    first = turned.select(pl.int_range(pl.len()).over("rank", "step") == 0).to_series().to_numpy()
    return turned.select("start", "end", "stop").to_numpy().astype(np.int64), first


def _backward(tokens: Ints, count: int) -> Ints:
    """Where the backward pass of each layer begins; the outermost may run a little more or less than the others."""
    begin, period, found = repetition(tokens)
    if found < 2 or abs(found - count) > 1:
        raise LayoutError(
            f"{count} layers repeat in the forward pass, {found} in the backward pass: they can't be paired."
        )
    return np.minimum(begin + period * np.arange(count + 1), tokens.size)


def repetition(tokens: Ints) -> tuple[int, int, int]:
    """The sequence that repeats and covers most: where it begins, how long it is, how often it comes (1: nothing does).

    Args:
        tokens: A number for each different element.
    """
    begin, period, count = _repetition(tokens)
    return int(begin), int(period), int(count)


@numba.njit(cache=True)
def _repetition(tokens: Ints) -> tuple[int, int, int]:  # pragma: no cover - compiled
    best = (0, tokens.size, 1)
    covered = 0
    for period in range(1, tokens.size // 2 + 1):
        run = 0
        for place in range(tokens.size - period):
            run = run + 1 if tokens[place] == tokens[place + period] else 0
            count = run // period + 1
            if count > 1 and count * period > covered:
                covered = count * period
                best = (place - run + 1, period, count)
    return best
