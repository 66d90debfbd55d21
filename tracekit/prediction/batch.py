"""Infer from a model's first layers how many samples or tokens a step processes."""

import math
from dataclasses import dataclass, replace

import polars as pl

from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.ingest.nesting import select_outermost
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.process_groups import is_training
from tracekit.program import Program
from tracekit.workload.signature import Signature
from tracekit.workload.steps import assign_steps

FIRST_LAYERS = {
    "aten::embedding": ("tokens", 0, 1),
    "aten::conv2d": ("samples", 1, 0),
    "aten::conv1d": ("samples", 1, 0),
    "aten::conv3d": ("samples", 1, 0),
}
"""For each op: the unit, the input that holds the weights, and the input that holds the batch.

The batch size is the number of elements of that input for tokens, and its first dimension for samples.
"""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The samples or tokens that one rank, or all ranks of a job together, process in a step.

    Attributes:
        size: Number of units.
        unit: 'samples' or 'tokens'; 'steps' of a replica in a sweep of a trace that reveals neither.
        passes: Calls of the first layer per rank and step, such as one for each diffusion step.
        given: Whether the caller gave the size.
        marked: Whether a serving engine's annotation gave the size.
    """

    size: float
    unit: str
    passes: int = 1
    given: bool = False
    marked: bool = False

    def scale(self, factor: float) -> "StepBatch":
        """Return a batch that is ``factor`` times as large."""
        return replace(self, size=self.size * factor)

    def compute_throughput(self, step_time_us: float) -> float:
        """Return the units processed per second by steps of this duration."""
        return self.size / step_time_us * 1e6


def infer_job_batch(program: Program, layout: Layout | None, samples: float | None = None) -> StepBatch | None:
    """Infer what all replicas of a traced job process in a step; None where it is unknown.

    Args:
        program: The program.
        layout: Layout of the job; None where it is unknown.
        samples: Samples that one rank processes, given by the caller; None to infer them from the trace.
    """
    batch = infer_rank_batch(program, samples)
    return batch.scale(layout.dp) if batch and layout else None


def infer_rank_batch(program: Program, samples: float | None = None) -> StepBatch | None:
    """Infer what one rank processes in a step (the median of several steps).

    A serving engine annotates the tokens of its batches. Otherwise the result is None where the first layer is neither
    a convolution nor an embedding with recorded shapes, and where inference replays CUDA graphs, whose ops aren't
    recorded; but a captured program may know its batch.

    Args:
        program: The program.
        samples: Samples that one rank processes, given by the caller; None to infer them from the trace.
    """
    if samples is None:
        return _infer_batch(program) or _read_captured_batch(program)
    return StepBatch(float(samples), "samples", given=True)


def _read_captured_batch(program: Program) -> StepBatch | None:
    facts = program.trace.capture_facts
    return StepBatch(float(facts.batch), "samples", given=True) if facts and facts.batch else None


def _infer_batch(program: Program) -> StepBatch | None:
    marked = program.chosen_steps.select(pl.col("tokens").median().cast(pl.Float64)).item()
    if program.chosen_steps["kind"].n_unique() > 1:
        return None  # the median of prefill and decode batches is the size of neither
    if marked is not None:
        return StepBatch(marked, "tokens", marked=True)
    ops = program.trace.ops.filter(pl.col("name").is_in(list(FIRST_LAYERS)) & pl.col("input_dims").is_not_null())
    chosen = ops.with_columns(step=assign_steps(ops["ts_ns"], program.chosen_steps)).drop_nulls("step")
    layers = select_outermost(chosen, "pid", "tid")  # autocast calls a layer again from within itself
    if layers.is_empty() or (
        not is_training(program) and program.trace.calls["name"].str.contains(GRAPH_LAUNCH_CALLS).any()
    ):
        return None
    first = layers["name"][0]
    unit, weight, data = FIRST_LAYERS[first]
    layers = layers.filter(pl.col("name") == first)
    inputs = [Signature.parse(first, dims, None, None) for dims in layers["input_dims"]]
    weights = [one.get_shape(weight) for one in inputs]
    sizes = pl.Series([_count_samples_or_tokens(one.get_shape(data), unit) for one in inputs], dtype=pl.Int64)
    calls = layers.select("step", size=sizes).filter(pl.Series([one == weights[0] for one in weights]) & (sizes > 0))
    steps = calls.group_by("step").agg(pl.col("size").sum(), passes=pl.len()).sort("size", "passes")
    if steps.is_empty():
        return None
    _, size, passes = steps.row(steps.height // 2)
    return StepBatch(float(size), unit, passes)


def _count_samples_or_tokens(shape: tuple[int, ...] | None, unit: str) -> int:
    if shape is None:
        return 0
    return math.prod(shape) if unit == "tokens" else next(iter(shape), 0)
