"""The measured step: what was read, its steps one by one, the parts that it is made of, and the replay's own error."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import polars as pl

from tracekit.analysis.critical_path import COMMUNICATION, GPU, HOST, LATENCY, UNEXPLAINED, compute_resource_shares
from tracekit.analysis.embedding_tables import EmbeddingTables, find_embedding_tables
from tracekit.analysis.idle import IdleBreakdown
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.over_time import measure_times_ns
from tracekit.arrays import list_distinct, mark_equal, select_table
from tracekit.comm import Cluster
from tracekit.format import abbreviate_names, name_place, replace_undecodable
from tracekit.hosts import find_usual_host
from tracekit.parallelism.layout import LayoutRequest
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.prediction import Prediction
from tracekit.prediction.batch import StepBatch, infer_rank_batch
from tracekit.prediction.energy import StepEnergy, estimate_step_energy, sum_kernel_energy
from tracekit.prediction.model import compute_cost, compute_cost_per_million, compute_joules_per_unit
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.replay.step_time import StepTime
from tracekit.reporting.columns import Column
from tracekit.run import MeasuredRun
from tracekit.trace import RankTrace
from tracekit.workload.steps import describe_numbers, is_whole_trace


@dataclass(frozen=True, slots=True)
class ReplayedShares:
    """What a step is made of, in the chosen steps together.

    Attributes:
        resources: Percent of the critical path by resource.
        phases: Fraction of the time in which the GPU works by phase and family of kernels.
        work_us: That time, in a mean step.
        on_other_hosts: ``resources`` with the fastest and with the slowest host of the step's interval; empty where
            hosts hardly change the step.
    """

    resources: Mapping[str, float]
    phases: Mapping[tuple[str, str], float]
    work_us: float
    on_other_hosts: tuple[Mapping[str, float], ...] = ()

    @property
    def families(self) -> dict[str, float]:
        """Fraction of the time in which the GPU works by family of kernels, largest first."""
        summed: dict[str, float] = {}
        for (_, family), fraction in self.phases.items():
            summed[family] = summed.get(family, 0.0) + fraction
        return dict(sorted(summed.items(), key=lambda part: (-part[1], part[0])))


def compute_measured_shares(run: MeasuredRun) -> ReplayedShares:
    """Compute what the measured step is made of."""
    return _compute_shares(run.program, run.measured_timeline)


def compute_target_shares(target: Prediction) -> ReplayedShares:
    """Compute what a predicted step is made of; the bubble of a pipeline belongs to no resource."""
    found = _compute_shares(target.program, target.replay_timeline())
    works = 1 - target.pipeline.bubble if target.pipeline else 1.0
    ends = (target.host.low, target.host.high) if target.same_host else ()
    others = (compute_resource_shares(target.program, target.replay_timeline(one)) for one in ends)
    resources = {kind: works * share for kind, share in found.resources.items()}
    return replace(found, resources=resources, on_other_hosts=tuple(others))


def _compute_shares(program: Program, timeline: Timeline) -> ReplayedShares:
    times_ns = measure_times_ns(program, timeline)
    whole_ns = sum(times_ns.values())
    phases = {kind: time_ns / whole_ns for kind, time_ns in times_ns.items()}
    work_us = whole_ns / 1e3 / max(program.chosen_steps.height, 1)
    return ReplayedShares(compute_resource_shares(program, timeline), phases, work_us)


IDENTIFIED_BY = {
    "slug": "name",
    "alias": "name",
    "default": "name",
    "file": "file",
    "properties": "SMs and memory",
}


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """Summary of the measured run.

    Attributes:
        trace: Where it was read from.
        gpu: Canonical name; ``None`` if it isn't known.
        gpu_name: Display name; ``None`` if it isn't known.
        resolution: How the GPU was identified, one sentence.
        rank: The measured rank; ``None`` for several, or outside a distributed job.
        ranks: Number of ranks of the job.
        gpus_per_rank: GPUs that a rank drives, of several ranks the one that drives most.
        measured: Number of ranks measured together.
        steps: Number of steps that the medians are over.
        step_numbers: Numbers of the trace's steps, as options name them; ``None`` without marks.
        steps_marked: Whether the trace marks its steps; otherwise the whole trace counts as one step.
        batches: Kind of the steps if a serving engine marked them, such as ``decode``; ``None`` for other steps.
        step_time_us: Median step time.
        mean_us: Mean step time, which throughput, dollars and hours follow.
        kernel_time_us: Part of the step in which the GPU ran anything; for several ranks the mean.
        exposed_comm_us: Part of the kernel time in which only collectives ran.
        waiting_us: Part of the exposed time in which these only waited for other ranks.
        idle_us: Rest of the step.
        kernels: Number of GPU activities in the trace.
        shapes_recorded: Whether the profiler recorded shapes.
        price: Dollars for an hour of one GPU; ``None`` if it wasn't given.
        rented: GPUs that have to be rented for all ranks, which dollars count.
        dollars_per_1000_steps: Cost on these; ``None`` without a price.
        batch: Samples or tokens that the job processes in a step; ``None`` if unknown.
        per_second: Throughput in samples or tokens per second.
        dollars_per_million: Cost of a million samples or tokens on these.
        energy: Estimated energy of the step on one GPU; ``None`` where the GPU isn't known.
        joules_per_unit: Joules for a sample or token on the GPUs of all ranks.
        host_speed: Speed of the host, as a multiple of the reference host's; ``None`` where too few ops tell it.
        host_ops: Number of distinct ops that it was measured by.
        usual_host_speed: Speed of the usual host beside that GPU; ``None`` where the GPU isn't known.
        is_captured: Whether the program was captured without a GPU, so that nothing was measured.
        is_synthetic: Whether a program made up the trace's times.
        tables: Embedding tables that a step looks up in; ``None`` where it has none.
        mfu: Percent of the step that its products take at the GPU's peak; ``None`` where the GPU isn't known.
        hfu: The same with products that are computed again.
    """

    trace: str
    gpu: str | None
    gpu_name: str | None
    resolution: str
    rank: int | None
    ranks: int
    measured: int
    steps: int
    steps_marked: bool
    batches: str | None
    step_time_us: float
    mean_us: float
    kernel_time_us: float
    exposed_comm_us: float
    waiting_us: float
    idle_us: float
    kernels: int
    shapes_recorded: bool
    gpus_per_rank: int = 1
    step_numbers: str | None = None
    price: float | None = None
    rented: int = 1
    dollars_per_1000_steps: float | None = None
    batch: StepBatch | None = None
    per_second: float | None = None
    dollars_per_million: float | None = None
    energy: StepEnergy | None = None
    joules_per_unit: float | None = None
    host_speed: float | None = None
    host_ops: int = 0
    usual_host_speed: float | None = None
    is_captured: bool = False
    is_synthetic: bool = False
    tables: EmbeddingTables | None = None
    mfu: float | None = None
    hfu: float | None = None

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return self.ranks * self.gpus_per_rank

    @property
    def busy_pct(self) -> float | None:
        """Percent of the step in which the GPU ran anything; None for a step without a time."""
        return 100 * self.kernel_time_us / self.step_time_us if self.step_time_us else None

    @property
    def label(self) -> str:
        """What its times are called beside those of targets."""
        return _label_times(is_captured=self.is_captured, is_synthetic=self.is_synthetic)


def label_times(trace: RankTrace) -> str:
    """Return what the times of a trace are called beside those of targets."""
    return _label_times(is_captured=trace.capture_facts is not None, is_synthetic=trace.is_synthetic)


def _label_times(*, is_captured: bool, is_synthetic: bool) -> str:
    return "captured" if is_captured else "synthetic" if is_synthetic else "measured"


def build_source_summary(
    run: MeasuredRun,
    price: float | None = None,
    batch: StepBatch | None = None,
    energy: StepEnergy | None = None,
    cluster: Cluster | None = None,
    gpus_per_rank: int | None = None,
) -> SourceSummary:
    """Build the summary of the measured run.

    Args:
        run: The run.
        price: Dollars for an hour of its GPU; ``None`` if it isn't known.
        batch: Samples or tokens that the job processes in a step; ``None`` to infer them from the trace.
        energy: Of the step on one GPU; ``None`` where it wasn't estimated.
        cluster: Where it was recorded; ``None`` where that is unknown.
        gpus_per_rank: GPUs that a rank drives; ``None`` to count those of the run's kernels.
    """
    step = run.measured_step
    ranks = max(run.trace.world_size, len(run.ranks))
    gpus_per_rank = gpus_per_rank or run.program.step_timer.gpus_per_rank
    gpus = ranks * gpus_per_rank
    rented = cluster.count_rented_gpus(gpus) if cluster else gpus
    batch = batch or _infer_batch(run)
    host = None if run.is_captured else run.host_speed
    per_second = batch.compute_throughput(step.mean_us) if batch else None
    first_steps = select_table(run.steps, mark_equal(run.steps["rank"], run.steps["rank"][0]))
    steps_marked = not is_whole_trace(run.steps)
    return SourceSummary(
        trace=abbreviate_names(replace_undecodable(run.trace.source), len(run.ranks) - 1),
        gpu=run.gpu.slug if run.gpu else None,
        gpu_name=run.gpu.name if run.gpu else None,
        resolution=_describe_resolution(run),
        rank=run.trace.rank if len(run.ranks) == 1 else None,
        ranks=ranks,
        measured=len(run.ranks),
        steps=step.steps,
        steps_marked=steps_marked,
        batches=" and ".join(sorted(list_distinct(run.chosen_steps["kind"]))) or None,
        step_time_us=step.step_time_us,
        mean_us=step.mean_us,
        kernel_time_us=step.kernel_time_us,
        exposed_comm_us=step.exposed_comm_us,
        waiting_us=step.waiting_us,
        idle_us=step.idle_us,
        kernels=run.kernels.height,
        shapes_recorded=run.trace.has_shapes,
        gpus_per_rank=gpus_per_rank,
        step_numbers=describe_numbers(first_steps) if steps_marked else None,
        price=price,
        rented=rented,
        dollars_per_1000_steps=compute_cost(price, rented, step.mean_us),
        batch=batch,
        per_second=per_second,
        dollars_per_million=compute_cost_per_million(price, rented, per_second),
        energy=energy,
        joules_per_unit=compute_joules_per_unit(energy, step, gpus, batch),
        host_speed=host.speed if host else None,
        host_ops=host.ops if host else 0,
        usual_host_speed=find_usual_host(run.gpu).speed if run.gpu else None,
        is_captured=run.is_captured,
        is_synthetic=run.trace.is_synthetic,
        tables=find_embedding_tables(run),
    )


def estimate_energy(run: MeasuredRun, on_source: pl.DataFrame) -> StepEnergy | None:
    """Estimate the energy of the measured step; ``None`` where its GPU isn't known.

    ``on_source`` is from :func:`tracekit.reporting.kernel_rows.predict_on_source`.
    """
    if run.gpu is None:
        return None
    step, kernels = run.measured_step, on_source.hstack([(run.kernels["dur_ns"] / 1e3).alias("time_us")])
    drawn = sum_kernel_energy(run.program, kernels, step, run.gpu)
    return estimate_step_energy(drawn, step, (step.step_time_us, step.step_time_us), run.gpu, float(run.gpu.tdp_w))


def _infer_batch(run: MeasuredRun) -> StepBatch | None:
    """Infer what the job processes in a step; the layout matters only if the batch of a rank is known."""
    of_rank = infer_rank_batch(run.program)
    layout = infer_layout_if_needed(run.program, LayoutRequest()) if of_rank else None
    return of_rank.scale(layout.dp) if of_rank and layout else None


def _describe_resolution(run: MeasuredRun) -> str:
    if run.is_captured and run.gpu:
        facts = run.trace.capture_facts
        if run.gpu.is_cpu and facts and facts.measured_by:
            return f"{run.gpu.slug}, whose ops {facts.measured_by} measured"
        attention = f", attention as {facts.attention}" if facts and facts.attention else ""
        return f"none: a captured program, with times predicted for {run.gpu.slug}{attention}"
    if run.source is None:
        recorded = run.trace.device.name if run.trace.device else ""
        told = f"{replace_undecodable(recorded)!r}, not recognised" if recorded.strip() else "not recorded"
        return f"{told} (--source-gpu names it)"
    return f"{run.source.query or 'unnamed GPU'!r} → {run.source.gpu.slug} (by its {IDENTIFIED_BY[run.source.how]})"


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step that was asked for, as recorded."""

    step: Annotated[int, Column("ProfilerStep number; 0 in a trace without steps.", "step")]
    time_us: Annotated[
        float, Column("From the end of the step before to its end; of the trace's first from its start.", "time")
    ]
    kernel_time_us: Annotated[float, Column("Time in which the GPU ran something of it.", "GPU busy")]
    exposed_comm_us: Annotated[float, Column("The part of it in which only collectives ran.", "only communicating")]
    first: Annotated[
        bool, Column("Whether it is the trace's first step, which starts with an empty queue: left out of figures.")
    ]


def build_measured_steps(run: MeasuredRun) -> tuple[MeasuredStep, ...]:
    """Build the steps that were asked for, in order."""
    steps = run.measured_steps
    times_us = ((steps[f"{part}_ns"] / 1e3).to_list() for part in ("time", "busy", "exposed"))
    return tuple(map(MeasuredStep, steps["step"].to_list(), *times_us, steps["first"].to_list()))


COLLECTIVE = "collective"

IDLE_OWNERS: Mapping[str, str] = {
    **dict.fromkeys(
        (IdleCause.LAUNCH_BOUND, IdleCause.SYNC_BOUND, IdleCause.ALLOCATOR, IdleCause.DATA_LOADING),
        HOST,
    ),
    **dict.fromkeys((IdleCause.LAUNCH_LATENCY, IdleCause.KERNEL_GAP, IdleCause.DEPENDENCY), LATENCY),
    **dict.fromkeys((IdleCause.WAITS_FOR_COMPUTE, IdleCause.WAITS_FOR_COPY, IdleCause.UNRECORDED), GPU),
    **dict.fromkeys((IdleCause.WAITS_FOR_COMMUNICATION, IdleCause.RENDEZVOUS), COMMUNICATION),
    **dict.fromkeys((IdleCause.IN_GRAPH, IdleCause.NOTHING_LAUNCHED, IdleCause.UNEXPLAINED), UNEXPLAINED),
}
"""Whose an idle GPU's time is, by cause."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of the measured step; all of them add up to it."""

    name: Annotated[str, Column("Family of kernels, or why the GPU was idle.", "part")]
    owner: Annotated[
        str, Column("Whose the time is: gpu, communication, host, latency or unexplained.", "whose it is", name_place)
    ]
    time_us: Annotated[float, Column("Time in the median step.", "time")]
    share: Annotated[float, Column("Of the step, percent.", "of the step")]


def build_step_parts(step: StepTime, families: Mapping[str, float], idle: IdleBreakdown) -> tuple[StepPart, ...]:
    """Build the parts, longest first.

    ``families`` are fractions of the time in which the GPU works; idle and waiting time is on the scale of the measured
    step.
    """
    parts = sorted(_iter_parts(step, families, idle), key=lambda part: (-part[2], part[0]))
    return tuple(StepPart(*part, share=100 * part[2] / step.step_time_us) for part in parts)


def _iter_parts(step: StepTime, families: Mapping[str, float], idle: IdleBreakdown) -> Iterator[tuple[str, str, float]]:
    works_us = step.kernel_time_us - step.waiting_us
    for family, fraction in families.items():
        yield family, COMMUNICATION if family == COLLECTIVE else GPU, fraction * works_us
    for cause, time_us, _ in idle.sum_by_cause().iter_rows():
        yield cause, IDLE_OWNERS[cause], time_us


TRAILING_PARTS = ("waiting", "idle")
UNASSIGNED_FAMILY = "other"
"""Family of the GPU's work if no chosen step is known to have launched any."""


@dataclass(frozen=True, slots=True)
class TimeBar:
    """Where the step's time goes on one GPU; the parts add up to the step.

    Attributes:
        label: ``measured`` (of a captured program ``captured``), or the target's name.
        step_time_us: Step time.
        parts: Time by family, in the order of the measured bar, largest first; then ``waiting`` for other ranks, if
            any, and ``idle``. Kernels that overlap split the time that they cover.
    """

    label: str
    step_time_us: float
    parts: tuple[tuple[str, float], ...]


def build_time_bars(
    run: MeasuredRun, targets: Sequence[Prediction], replayed: Sequence[ReplayedShares]
) -> tuple[TimeBar, ...]:
    """Build the bars of the measured step and of the targets.

    ``replayed`` says what the measured step, and then each target's, is made of.
    """
    steps = [(label_times(run.trace), run.measured_step), *((target.label, target.step) for target in targets)]
    bars = [_build_bar(label, step, shares.families) for (label, step), shares in zip(steps, replayed, strict=True)]
    order = list_parts(bars)
    return tuple(replace(bar, parts=tuple(sorted(bar.parts, key=lambda part: order.index(part[0])))) for bar in bars)


def list_parts(bars: Iterable[TimeBar]) -> list[str]:
    """List the parts that any of the bars has: in the order of the first bar, waiting and idle last."""
    return order_parts(family for bar in bars for family, _ in bar.parts)


def order_parts(parts: Iterable[str]) -> list[str]:
    """Return each part once in order of first appearance, but waiting and idle last."""
    found = dict.fromkeys(parts)
    return [
        *(family for family in found if family not in TRAILING_PARTS),
        *(family for family in TRAILING_PARTS if family in found),
    ]


def _build_bar(label: str, step: StepTime, families: Mapping[str, float]) -> TimeBar:
    works_us = step.kernel_time_us - step.waiting_us
    parts = [(family, share * works_us) for family, share in (families or {UNASSIGNED_FAMILY: 1.0}).items()]
    waiting = [("waiting", step.waiting_us)] if step.waiting_us else []
    return TimeBar(label, step.step_time_us, (*parts, *waiting, ("idle", step.idle_us)))


@dataclass(frozen=True, slots=True)
class ReplayError:
    """The median step as replayed from the measured kernels.

    Attributes:
        step_time_us: The median step as replayed.
        error_pct: Against the measured one.
        derived_wait_us: Waits that were taken out of the measured run and derived again, per step and rank.
        kept_wait_us: Waiting of collectives that is kept as measured, in the median step of a rank.
    """

    step_time_us: float
    error_pct: float
    derived_wait_us: float
    kept_wait_us: float


def build_replay_error(run: MeasuredRun) -> ReplayError:
    """Build the error of the run's self-replay."""
    found = run.self_replay
    return ReplayError(found.step_time_us, found.error_pct, found.derived_wait_us, found.kept_wait_us)
