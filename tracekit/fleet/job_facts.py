"""What one rank's whole trace tells of its job: its layout, its batch, its memory, and its kind."""

from dataclasses import dataclass, replace

import polars as pl

from tracekit.fleet.join import PlacedRank
from tracekit.fleet.kernel_times import make_program
from tracekit.fleet.replay import open_rank
from tracekit.fleet.summary import read_trace
from tracekit.parallelism.layout import Layout, LayoutRequest
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.prediction.batch import StepBatch, infer_job_batch
from tracekit.prediction.experience import classify_job
from tracekit.prediction.memory import MemoryNeeds, estimate_memory_needs
from tracekit.run import check_accepted_tokens


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """A rank that is asked about its job.

    Attributes:
        place: The rank.
        framework: The serving engine that ran the job, and its version.
        samples: Samples that a rank processes in a step; None to infer them.
        accepted_tokens: Tokens that each sequence gets in a step of speculative decoding; None if unknown.
    """

    place: PlacedRank
    framework: tuple[str, str | None] | None
    samples: float | None
    accepted_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a rank tells of its job.

    Attributes:
        layout: Its layout; None where it is unknown.
        batch: What all ranks process in a step; None where it is unknown.
        memory: What the rank needs.
        kind: Of :func:`tracekit.prediction.experience.classify_job`.
        shapes_recorded: Whether the profiler recorded shapes.
    """

    layout: Layout | None
    batch: StepBatch | None
    memory: MemoryNeeds
    kind: str
    shapes_recorded: bool


def describe_job(item: JobQuestion) -> JobFacts:
    """Read a rank's trace again, and describe its job."""
    rank, (trace, _) = open_rank(item.place), read_trace(item.place.summary.task)
    chosen = item.place.steps.filter(pl.col("step").is_in(item.place.chosen_steps["step"].implode()))
    if item.accepted_tokens is not None:
        check_accepted_tokens(trace, item.accepted_tokens)
    made = replace(make_program(rank, trace, item.framework), accepted_tokens=item.accepted_tokens)
    program = made.replace_tables(chosen_steps=chosen)
    layout = infer_layout_if_needed(program, LayoutRequest())
    return JobFacts(
        layout=layout,
        batch=infer_job_batch(program, layout, item.samples),
        memory=estimate_memory_needs(program),
        kind=classify_job(program),
        shapes_recorded=trace.has_shapes,
    )
