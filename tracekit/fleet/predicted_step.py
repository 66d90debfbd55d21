"""Tell what the job's step on a target means: its energy, memory, price and notes, as for a trace in one piece."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit.calibration import Calibration
from tracekit.fleet.evidence import JobFacts
from tracekit.fleet.hosts import HostSteps
from tracekit.fleet.rounds import TimeSums, merge_gpus
from tracekit.messages import Message
from tracekit.messages import predictions as told
from tracekit.prediction import notes
from tracekit.prediction.cost import Prices
from tracekit.prediction.energy import StepEnergy, average_kernel_energy, estimate_step_energy
from tracekit.prediction.experience import apply_scoreboard
from tracekit.prediction.mean_step import bound_mean_step
from tracekit.prediction.memory import judge_memory_fit
from tracekit.prediction.model import Coverage, PredictedStep, Target
from tracekit.prediction.note_order import order_notes
from tracekit.prediction.source_cluster import SourceCluster
from tracekit.prediction.stages import scale_to_pipeline_step
from tracekit.replay.step_time import JobSteps, StepTime
from tracekit.run import MeasuredRun
from tracekit.scoreboard import Scoreboard


@dataclass(frozen=True, slots=True)
class JobOnTargets:
    """What all targets of a job have in common.

    Attributes:
        run: The measured run, of whose kernels only the collectives are here.
        steps: Its steps.
        source: Where it was recorded.
        facts: What a rank tells of it.
        prices: Dollars for an hour of one GPU.
        calibrations: The calibrations in use.
        scoreboard: Outcomes of earlier predictions.
        gpus_per_rank: GPUs that each rank drives.
    """

    run: MeasuredRun
    steps: JobSteps
    source: SourceCluster
    facts: JobFacts
    prices: Prices
    calibrations: Sequence[Calibration]
    scoreboard: Scoreboard
    gpus_per_rank: int = 1

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.facts.layout.world_size if self.facts.layout else self.run.trace.world_size


@dataclass(frozen=True, slots=True)
class KeptClock:
    """The clock that a step keeps.

    Attributes:
        slowdowns: How many times as long the matrix units of each GPU of a rank take as at the boost clock.
        demand_w: What the step demands of the most loaded one at that clock; None where nothing is known of it.
        kernels_us: Time of all kernels at the boost clock, and at the one kept.
    """

    slowdowns: tuple[float, ...] = (1.0,)
    demand_w: float | None = None
    kernels_us: tuple[float, float] = (0.0, 0.0)

    def note(self, gpu: Gpu) -> Iterator[Message]:
        """Note that the step's power lowers the clock of a GPU."""
        boosted_us, held_us = self.kernels_us
        longer_pct = 100 * (held_us / boosted_us - 1) if boosted_us else 0.0
        return notes.note_sustained_clock(max(self.slowdowns), longer_pct, self.demand_w, gpu)


BOOST_CLOCK = KeptClock()


def build_predicted_step(
    job: JobOnTargets,
    target: Target,
    replays: Sequence[StepTime],
    ends_us: tuple[float, float],
    sums: Sequence[TimeSums],
    clock: KeptClock,
    hosts: HostSteps,
) -> PredictedStep:
    """Build the prediction for one target.

    Args:
        job: The job.
        target: The target.
        replays: The step with the likely, low and high kernel times.
        ends_us: Ends of its interval.
        sums: What each rank's kernels sum up to.
        clock: The clock that the step keeps.
        hosts: The step with other hosts.
    """
    run, gpu, cluster, replayed = job.run, target.gpu.gpu, target.cluster, replays[0]
    step = scale_to_pipeline_step(replayed, replayed.step_time_us, None, None)
    price = job.prices.find(gpu, cluster)
    memory = judge_memory_fit(run.program, run.gpu, gpu, known=job.facts.memory)
    coverage = _compute_coverage(sums)
    mean_low_us, mean_high_us = bound_mean_step(replays, step.mean_us, ends_us)
    gpus = job.ranks * job.gpus_per_rank
    written = (
        *_write_notes(job, target, step, sums),
        *clock.note(gpu),
        *hosts.notes,
        *step.list_doubts(),
        notes.note_memory_fit(memory),
        *notes.note_missing_price(job.prices, price),
    )
    found = PredictedStep(
        gpu=gpu.slug,
        name=cluster.name if cluster else gpu.name,
        cluster=cluster.slug if cluster else None,
        cluster_gpus=cluster.gpus if cluster else None,
        step=step,
        low_us=ends_us[0],
        high_us=ends_us[1],
        mean_low_us=mean_low_us,
        mean_high_us=mean_high_us,
        speedup=run.measured_step.step_time_us / step.step_time_us,
        coverage=coverage,
        energy=_estimate_energy(job, gpu, (replayed, step), ends_us, sums),
        notes=order_notes(written, step.step_time_us),
        memory=memory,
        ranks=job.ranks,
        gpus_per_rank=job.gpus_per_rank,
        rented=cluster.count_rented_gpus(gpus) if cluster else gpus,
        layout=job.facts.layout,
        price=price,
        batch=job.facts.batch,
        same_host=hosts.same,
        usual_host=hosts.usual,
    )
    return apply_scoreboard(found, gpu, run.gpu, job.facts.kind, job.scoreboard)


def _estimate_energy(
    job: JobOnTargets,
    gpu: Gpu,
    steps: tuple[StepTime, StepTime],
    ends_us: tuple[float, float],
    sums: Sequence[TimeSums],
) -> StepEnergy:
    each = (merge_gpus(one) for one in zip(*(one.energies for one in sums), strict=True))
    drawn_mj, total_us, unknown_us = map(job.steps.compute_median_sum_us, each)
    replayed, step = steps
    drawn = average_kernel_energy(drawn_mj, total_us, unknown_us, replayed, gpu)
    return estimate_step_energy(drawn, step, ends_us, gpu, float(gpu.tdp_w))


def _compute_coverage(sums: Sequence[TimeSums]) -> Coverage:
    """Compute the coverage of the chosen steps, or of all kernels if nothing ran in these."""
    parts = _sum_methods_ns(sums)
    total = sum(parts)
    return Coverage(*(100 * float(part) / total for part in parts)) if total else Coverage(0.0, 0.0, 100.0)


def _sum_methods_ns(sums: Sequence[TimeSums]) -> list[int]:
    chosen, every = np.sum(np.array([one.methods_ns for one in sums], dtype=np.int64), axis=0).tolist()
    found: list[int] = chosen if any(chosen) else every
    return found


def _write_notes(job: JobOnTargets, target: Target, step: StepTime, sums: Sequence[TimeSums]) -> Iterator[Message]:
    """Yield the notes that need neither single kernels nor further replays."""
    run, gpu = job.run, target.gpu.gpu
    is_same = run.gpu is not None and run.gpu.slug == gpu.slug
    yield from notes.note_calibrations(job.calibrations, gpu, is_same)
    if job.facts.layout and job.ranks > 1:
        yield told.JOB_LAYOUT(layout=str(job.facts.layout))
    yield from notes.note_gpus(run.gpu, target)
    chosen = run.kernels.filter(run.is_in_chosen_steps)
    spent_ns = int(chosen.filter(pl.col("family") == "collective")["dur_ns"].sum())
    if target.cluster is not None:
        yield from notes.note_cluster(target.cluster, job.ranks, job.source if spent_ns else None)
    elif spent_ns and not is_same:
        part = 100 * spent_ns / sum(_sum_methods_ns(sums))
        yield from notes.note_links(target, job.source, part, step.exposed_comm_us)
