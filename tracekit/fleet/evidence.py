"""What one rank's whole trace tells that its job has to say: doubts about the recording, idle time, host and energy.

Each rank is read once more, when its place in the job is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from predictors import Gpu
from tracekit.analysis.contention import Overlap, join_overlaps, measure_overlap
from tracekit.analysis.idle import IdleBreakdown, attribute_idle_time
from tracekit.analysis.profiler_overhead import find_stalls_of_steps
from tracekit.analysis.waits import UnrecordedTime, join_unrecorded_time, measure_unrecorded_time
from tracekit.arrays import Floats
from tracekit.fleet.join import JoinedFleet
from tracekit.fleet.rank_part import RankPlace
from tracekit.fleet.summary import read_trace
from tracekit.hosts.fingerprint import MAX_RANKS, HostSpeed, compare_op_times, list_timed_spans
from tracekit.messages import Message
from tracekit.parallelism.layout import Layout, LayoutRequest
from tracekit.parallelism.process_groups import infer_layout_if_needed, is_training
from tracekit.prediction.batch import StepBatch, infer_job_batch, note_open_acceptance
from tracekit.prediction.energy import list_kernel_energies
from tracekit.prediction.experience import classify_job
from tracekit.prediction.memory import MemoryNeeds, estimate_memory_needs
from tracekit.prediction.rounds import merge_gpus
from tracekit.program import Program
from tracekit.replay.step_time import JobSteps
from tracekit.reporting.kernel_rows import predict_alone
from tracekit.reporting.sections.recording import RankRecord, list_rank_doubts
from tracekit.reporting.sections.warnings import JobEvidence
from tracekit.run import check_accepted_tokens
from tracekit.workload.steps import is_whole_trace

if TYPE_CHECKING:
    from tracekit.request.options import ExportRequest

ENDED_BY = ("op", "name")
"""Columns of the kernel table that name what ended idle time."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a rank tells of its job.

    Attributes:
        layout: Its layout; None where it is unknown.
        batch: What all ranks process in a step; None where it is unknown.
        memory: What the rank needs.
        kind: Of :func:`tracekit.prediction.experience.classify_job`.
        trains: Whether it has a backward pass.
        shapes_recorded: Whether the profiler recorded shapes.
    """

    layout: Layout | None
    batch: StepBatch | None
    memory: MemoryNeeds
    kind: str
    trains: bool
    shapes_recorded: bool


@dataclass(frozen=True, slots=True)
class RankQuestion:
    """A rank that is examined.

    Attributes:
        place: Where it is.
        gpu: Its GPU; None if it isn't known.
        samples: Samples that a rank processes in a step; None to infer them.
        change: The requested layout.
        tells_job: Whether it is asked about its job.
        tells_host: Whether it is asked about its host.
    """

    place: RankPlace
    gpu: Gpu | None
    samples: float | None
    change: LayoutRequest
    tells_job: bool
    tells_host: bool


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """What a rank's trace tells.

    Attributes:
        doubts: What is doubtful about its recording.
        idle: Its idle time: ``step``, ``cause``, ``waited``, ``time_ns``, and ``op`` and ``name`` of the kernels that
            ended it, null where none did (``is_ended``).
        idle_steps: Of :attr:`IdleBreakdown.steps`.
        stalled_ns: How long the GPU stood still for no recorded reason, by GPU and step.
        kept_ns: Waiting of collectives that is kept as measured, by GPU and step.
        held_ns: How long the profiler held up the CPU in the measured steps.
        held_by: Its work that did.
        unrecorded: Waits for work that isn't in its trace.
        overlap: How long its kernels overlap.
        energies: What :func:`list_kernel_energies` lists of the measured kernels, by GPU and
            step; None without a known GPU.
        spans: What tells the host's speed; None if it wasn't asked.
        facts: What it tells of its job; None if it wasn't asked.
    """

    doubts: tuple[Message, ...]
    idle: pl.DataFrame
    idle_steps: pl.DataFrame
    stalled_ns: Floats
    kept_ns: Floats
    held_ns: int
    held_by: tuple[str, ...]
    unrecorded: UnrecordedTime | None
    overlap: Overlap
    energies: tuple[Floats, ...] | None
    spans: pl.DataFrame | None
    facts: JobFacts | None


def list_questions(places: Sequence[RankPlace], gpu: Gpu | None, request: "ExportRequest") -> list[RankQuestion]:
    """List the ranks of a job to examine; the first tells of the job, the first few of their hosts."""
    return [
        RankQuestion(place, gpu, request.samples, request.layout, tells_job=number == 0, tells_host=number < MAX_RANKS)
        for number, place in enumerate(places)
    ]


def examine_rank(item: RankQuestion) -> RankEvidence:
    """Read a rank's trace again, and examine it."""
    trace, faults = read_trace(item.place.rank.summary.task)
    program = item.place.open_whole(trace)
    kernels, graph = program.kernels, program.graph
    timer, idle = program.step_timer, attribute_idle_time(program, program.measured_timeline)
    held = pl.concat(table.select("name", "dur_ns") for table in find_stalls_of_steps(program))
    model, energies = predict_alone(kernels, item.gpu), None
    if item.gpu is not None:
        measured = model.with_columns(time_us=kernels["dur_ns"] / 1e3)
        energies = tuple(timer.sum_by_gpu(one) for one in list_kernel_energies(measured, item.gpu))
    record = RankRecord(trace, faults, kernels, is_whole_trace(item.place.rank.steps), item.gpu, model)
    return RankEvidence(
        doubts=list_rank_doubts(record),
        idle=_name_idle_time(idle.segments, kernels),
        idle_steps=idle.steps,
        stalled_ns=timer.sum_by_gpu(graph.waits.stalled_ns),
        kept_ns=timer.sum_by_gpu(graph.kept_ns),
        held_ns=int(held["dur_ns"].sum()),
        held_by=tuple(held["name"].unique().sort()),
        unrecorded=measure_unrecorded_time(program),
        overlap=measure_overlap(program, item.gpu),
        energies=energies,
        spans=list_timed_spans(trace) if item.tells_host else None,
        facts=_describe_job(program, item) if item.tells_job else None,
    )


def describe_job(item: RankQuestion) -> JobFacts:
    """Describe a job by one of its ranks, with its edits."""
    return _describe_job(item.place.read_whole(), item)


def _name_idle_time(segments: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Sum the segments of idle time by what ended them."""
    ended = kernels.select(ENDED_BY)[segments["kernel"]] if segments.height else kernels.select(ENDED_BY).clear()
    named = segments.select("step", "cause", "waited", "time_ns", is_ended=pl.col("kernel").is_not_null())
    keys = ("step", "cause", "waited", "is_ended", *ENDED_BY)
    return named.hstack(ended).group_by(keys, maintain_order=True).agg(pl.col("time_ns").sum())


def _describe_job(program: Program, item: RankQuestion) -> JobFacts:
    if program.accepted_tokens is not None:
        check_accepted_tokens(program.trace, program.accepted_tokens)
    layout = infer_layout_if_needed(program, item.change)
    return JobFacts(
        layout=layout,
        batch=infer_job_batch(program, layout, item.samples),
        memory=estimate_memory_needs(program),
        kind=classify_job(program),
        trains=is_training(program),
        shapes_recorded=program.trace.has_shapes,
    )


@dataclass(frozen=True, slots=True)
class FleetEvidence:
    """What all ranks of a job tell.

    Attributes:
        ranks: The evidence of each rank, in order.
        job: For the job's warnings.
        facts: What the first rank tells of the job.
        host: How fast the hosts of the first ranks are; None where that can't be told.
        kept_us: Waiting of collectives that is kept as measured, in the median step of a mean rank.
        overlap_pct: Percent of the kernels' time in which others ran on the same GPU.
    """

    ranks: tuple[RankEvidence, ...]
    job: JobEvidence
    facts: JobFacts
    host: HostSpeed | None
    kept_us: float
    overlap_pct: float


def join_evidence(
    joined: JoinedFleet, steps: JobSteps, found: Sequence[RankEvidence], times: pl.DataFrame
) -> FleetEvidence:
    """Join the evidence of all ranks.

    Args:
        joined: The ranks.
        steps: Their steps.
        found: Their evidence.
        times: ``step`` and ``time_ns`` of the job's steps.
    """
    facts = found[0].facts
    assert facts is not None
    idle, kernels = _join_idle_time(found)
    asked = joined.tables.asked_steps["step"].implode()
    job = JobEvidence(
        doubts=tuple((place.number, one.doubts) for place, one in zip(joined.ranks, found, strict=True)),
        idle=idle,
        kernels=kernels,
        steps=times.filter(pl.col("step").is_in(asked)),
        stalled_us=steps.compute_median_sum_us(merge_gpus([one.stalled_ns for one in found])),
        held_us=sum(one.held_ns for one in found) / 1e3 / len(found),
        held_by=tuple(sorted({name for one in found for name in one.held_by})),
        unrecorded=join_unrecorded_time(
            [one.unrecorded for one in found], len(found) * joined.tables.chosen_steps["step"].n_unique()
        ),
        acceptance=tuple(note_open_acceptance(facts.batch)),
        dropped=sum(place.summary.dropped for place in joined.ranks),
    )
    host = compare_op_times(one.spans for one in found if one.spans is not None)
    kept_us = steps.compute_median_sum_us(merge_gpus([one.kept_ns for one in found]))
    overlap = join_overlaps(one.overlap for one in found)
    return FleetEvidence(tuple(found), job, facts, host, kept_us, overlap.percent)


def _join_idle_time(found: Sequence[RankEvidence]) -> tuple[IdleBreakdown, pl.DataFrame]:
    """Join the idle time of all ranks; return what ended it, too: the kernels by the numbers that the segments name."""
    segments = pl.concat(one.idle for one in found)
    kernels = segments.filter("is_ended").select(ENDED_BY).unique(maintain_order=True)
    numbered = kernels.with_columns(kernel=pl.int_range(pl.len(), dtype=pl.Int64), is_ended=True)
    joined = segments.join(numbered, on=("is_ended", *ENDED_BY), how="left", nulls_equal=True, maintain_order="left")
    columns = ("step", "cause", "kernel", "waited", "time_ns")
    return IdleBreakdown(joined.select(columns), pl.concat(one.idle_steps for one in found)), kernels
