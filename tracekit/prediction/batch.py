"""How many samples or tokens a step works through, where its first layers tell."""

import math
from dataclasses import dataclass, replace

import polars as pl

from tracekit.errors import TracekitError
from tracekit.ingest.captured import LAUNCHES_GRAPH
from tracekit.ingest.nesting import outermost
from tracekit.prediction.layout import Layout, trains
from tracekit.replay.run import Run
from tracekit.workload.signature import Signature
from tracekit.workload.steps import assign

FIRST_LAYERS = {
    "aten::embedding": ("tokens", 0, 1),
    "aten::conv2d": ("samples", 1, 0),
    "aten::conv1d": ("samples", 1, 0),
    "aten::conv3d": ("samples", 1, 0),
}
"""What they count, which input is the weights and which the batch: its elements (tokens) or first axis (samples)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one rank, or all of a job together, work through in a step.

    Attributes:
        size: How much.
        unit: Of what: 'samples' or 'tokens'; 'steps' of a replica in a sweep of a trace that tells neither.
        passes: Times that a rank calls the first layer in a step, such as for every step of diffusion.
        given: Whether the caller says so, and not the trace.
        marked: Whether a serving engine's mark says so, and not the first layer.
    """

    size: float
    unit: str
    passes: int = 1
    given: bool = False
    marked: bool = False

    def times(self, factor: float) -> "Batch":
        """One so many times as large."""
        return replace(self, size=self.size * factor)

    def per_second(self, step_time_us: float) -> float:
        """How much is done in a second of such steps."""
        return self.size / step_time_us * 1e6


def batch_of_job(run: Run, layout: Layout | None, samples: float | None = None) -> Batch | None:
    """What all replicas of a traced job work through in a step; None where that can't be told.

    Args:
        run: The measured run.
        layout: Of the job; None where that can't be told.
        samples: What one rank works through, by the caller; None for what the trace tells.

    Raises:
        TracekitError: ``samples`` is no number of them.
    """
    batch = batch_of_rank(run, samples)
    return batch.times(layout.dp) if batch and layout else None


def batch_of_rank(run: Run, samples: float | None = None) -> Batch | None:
    """The batch of a rank's traced step, of several the median.

    Of an engine's batches what it marks them with. Else None where the first layer is neither a convolution nor an
    embedding with shapes, and where an inference replays CUDA graphs: nothing tells the tokens of those passes.

    Args:
        run: The measured run.
        samples: What the caller says it is; None for what the trace tells.

    Raises:
        TracekitError: ``samples`` is no number of them.
    """
    if samples is None:
        return _recognise(run)
    if not 0 < samples < math.inf:
        raise TracekitError(f"a rank can't work through {samples:g} samples in a step.")
    return Batch(float(samples), "samples", given=True)


def _recognise(run: Run) -> Batch | None:
    marked = run.chosen.select(pl.col("tokens").median().cast(pl.Float64)).item()
    if marked is not None:
        return Batch(marked, "tokens", marked=True)
    ops = run.trace.ops.filter(pl.col("name").is_in(list(FIRST_LAYERS)) & pl.col("input_dims").is_not_null())
    chosen = ops.with_columns(step=assign(ops["ts_ns"], run.chosen)).drop_nulls("step")
    layers = outermost(chosen, "pid", "tid")  # autocast calls a layer anew from within itself
    if layers.is_empty() or (not trains(run) and run.trace.calls["name"].str.contains(LAUNCHES_GRAPH).any()):
        return None
    first = layers["name"][0]
    unit, weight, data = FIRST_LAYERS[first]
    layers = layers.filter(pl.col("name") == first)
    inputs = [Signature.parse(first, dims, None, None) for dims in layers["input_dims"]]
    weights = [one.shape(weight) for one in inputs]
    sizes = pl.Series([_size(one.shape(data), unit) for one in inputs], dtype=pl.Int64)
    calls = layers.select("step", size=sizes).filter(pl.Series([one == weights[0] for one in weights]) & (sizes > 0))
    steps = calls.group_by("step").agg(pl.col("size").sum(), passes=pl.len()).sort("size", "passes")
    if steps.is_empty():
        return None
    _, size, passes = steps.row(steps.height // 2)
    return Batch(float(size), unit, passes)


def _size(shape: tuple[int, ...] | None, unit: str) -> int:
    if shape is None:
        return 0
    return math.prod(shape) if unit == "tokens" else next(iter(shape), 0)
