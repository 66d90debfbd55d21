"""Predict a job's step on one target after the other: predict every kernel, then replay the graph."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit import calibration
from tracekit.arrays import Bools
from tracekit.comm import Cluster, ClusterError
from tracekit.messages import Message, Value
from tracekit.messages import layouts as layout_messages
from tracekit.models.stacks import find_stack
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.missing_collectives import Inserter, find_missing_collectives
from tracekit.parallelism.pipeline_parallel import Pipeline
from tracekit.parallelism.stragglers import StragglerEffect, predict_stragglers
from tracekit.prediction import notes
from tracekit.prediction.changed_step import ChangedStep
from tracekit.prediction.clock import (
    average_by_gpu,
    compute_source_slowdown,
    compute_target_slowdown,
    get_highest_mhz,
    regulates_clock,
    resolve_power_cap,
)
from tracekit.prediction.collectives import retarget_to_target
from tracekit.prediction.cost import Prices
from tracekit.prediction.energy import StepEnergy, compute_idle_w, estimate_step_energy
from tracekit.prediction.experience import apply_scoreboard, find_offsets
from tracekit.prediction.intervals import (
    KernelSums,
    bound_mean_step,
    combine_ends,
    combine_step_ends,
    compute_end_factors,
    divide_sums,
    list_unknown_times,
)
from tracekit.prediction.job import Job, JobReplays, ReplayedStep, list_ends
from tracekit.prediction.layout_step import (
    compute_batch_ratio,
    get_stage_layouts,
    scale_to_pipeline_step,
    separate_inserted_kernels,
)
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import Coverage, PredictedStep, Prediction, StepOnHost, Target
from tracekit.prediction.note_order import order_notes
from tracekit.prediction.part import GPU_WORK, LIKELY, LOW, NO_HOST, PartOnTarget, PartTarget, Replay
from tracekit.prediction.rounds import TimeSums, average_energies, merge_gpus, sum_demand, sum_source_demand, sum_times
from tracekit.prediction.source_cluster import SourceCluster
from tracekit.prediction.target_host import (
    CPU_HOST,
    MEASURED_HOST,
    SAME,
    TRACED_HOSTS,
    UNKNOWN,
    HostTimes,
    compute_captured_host_times,
    compute_host_times,
)
from tracekit.prediction.track_record import find_known_bias
from tracekit.replay.step_time import StepTime
from tracekit.scoreboard import Scoreboard
from tracekit.scoreboard.law_offsets import choose_factors
from tracekit.sharding.program_tables import shard_program_tables

MIN_HOST_EFFECT = 1.05
"""Least factor by which a slow or a fast host among the usual ones changes a step for that to be said."""


class SourceClock:
    """The clock that the traces' GPUs kept, which a step's power may have lowered.

    Args:
        job: The job as it was traced.
        clock_mhz: Mean clock of its GPUs, where something else than the traces tells it.
    """

    def __init__(self, job: Job, clock_mhz: float | None = None) -> None:
        self._job, self._clock_mhz = job, clock_mhz

    @cached_property
    def slowdown(self) -> tuple[float, ...]:
        """How many times as long the matrix units took in the measured step as at the boost clock, by GPU of a rank."""
        job, gpu = self._job, self._job.run.gpu
        if gpu is not None and self._clock_mhz is not None:
            return (max(get_highest_mhz(gpu) / self._clock_mhz, 1.0),)
        if gpu is None or not regulates_clock(gpu) or job.run.program.has_predicted_times:
            return (1.0,)
        target = PartTarget(gpu, gpu, {})
        demand_ns = merge_gpus(job.map(sum_source_demand, [PartOnTarget(place, target) for place in job.places]))
        step_us = job.run.measured_step.step_time_us
        return tuple(compute_source_slowdown(one, step_us) for one in average_by_gpu(job.steps, demand_ns).tolist())


@dataclass(frozen=True, slots=True)
class KeptClock:
    """The clock that a step keeps on a target.

    Attributes:
        slowdown: How many times as long the matrix units of each GPU of a rank take as at the boost clock.
        demand_w: What the step demands of the most loaded one at that clock; None where nothing is known of it.
    """

    slowdown: tuple[float, ...] = (1.0,)
    demand_w: float | None = None

    def note(self, gpu: Gpu, sums: Sequence[TimeSums]) -> Iterator[Message]:
        """Note that the step's power lowers the clock."""
        boosted_us, held_us = (sum(one.clocked_us[which] for one in sums) for which in range(2))
        longer_pct = 100 * (held_us / boosted_us - 1) if boosted_us else 0.0
        return notes.note_sustained_clock(max(self.slowdown), longer_pct, self.demand_w, gpu)


@dataclass(frozen=True)
class Predictor:
    """Predicts one job's step on targets; work that several targets have in common is done once.

    Attributes:
        job: The job.
        source: Where the run was recorded.
        prices: Dollars for an hour of one GPU.
        calibrations: The calibrations in use.
        source_clock: The clock that the traces' GPUs kept.
        host: Host that is predicted for, as :func:`~tracekit.prediction.target_host.parse_host` returns it.
        power_cap_w: Power limit of each target's GPUs; None for their own.
        clock_mhz: Clock of each target's GPUs; None for their own.
        scoreboard: Outcomes of earlier predictions, which intervals are fitted to.
    """

    job: Job
    source: SourceCluster
    prices: Prices
    calibrations: Sequence[calibration.Calibration]
    source_clock: SourceClock
    host: str | float = UNKNOWN
    power_cap_w: float | None = None
    clock_mhz: float | None = None
    scoreboard: Scoreboard = field(default_factory=Scoreboard)

    def insert_collectives(self, inserters: tuple[Inserter, ...]) -> "Predictor":
        """Return the predictor of the job with inserted collectives.

        Raises:
            LayoutError: The trace doesn't reveal what would be communicated.
        """
        return replace(self, job=self.job.insert_collectives(inserters))

    def fits(self, target: Target) -> bool:
        """Return whether memory holds the job in the target's layout, for sure; stages count as one pass each."""
        return self.judge_memory(target).fits is True

    def may_fit(self, target: Target) -> bool:
        """Return whether memory may hold the job in the target's layout; stages count as one pass each."""
        return self.judge_memory(target).fits is not False

    def judge_memory(self, target: Target) -> MemoryFit:
        """Judge whether memory holds the job in the target's layout; stages count as one pass each."""
        return self.job.judge_memory(target.gpu.gpu, find_layout_change(self.job.layout, target))

    def _shard_tables(self, target: Target) -> Target:
        """Return the target with the embedding tables that replicas of a job of one rank split."""
        old, new, cluster = self.job.layout, target.layout, target.cluster
        if old is None or new is None or new.tables or self.job.assumptions:
            return target
        facts, splits = self.job.program.trace.capture_facts, new.cp * new.tp * new.pp
        if facts is not None and facts.tables and splits > 1:
            raise LayoutError(layout_messages.TABLES_OVER_REPLICAS())
        is_alone = old.world_size > 1 or new.dp == 1 or splits * new.ep > 1
        if cluster is not None and not is_alone and new.dp <= cluster.gpus:
            new = shard_program_tables(self.job.program, cluster, new)
        if new.plan and not new.tables:
            raise LayoutError(layout_messages.PLAN_WITHOUT_TABLES())
        return replace(target, layout=new)

    def predict(self, target: Target) -> PredictedStep:
        """Predict the step on one target; of a job in memory it is a :class:`Prediction`.

        Raises:
            ClusterError: The job doesn't fit on the cluster.
            LayoutError: The job can't be laid out in this way.
        """
        job = self.job
        target = self._shard_tables(target)
        layouts = find_layout_change(job.layout, target, job.gpus_per_rank)
        if layouts and not job.assumptions and (adders := find_missing_collectives(job.program, *layouts)):
            grown = self.insert_collectives(adders).predict(target)
            assert isinstance(grown, Prediction)
            return separate_inserted_kernels(grown, job.program)
        return TargetPrediction(self, target, layouts).predict()


class TargetPrediction:
    """The prediction of a job for one target, in the order in which its steps follow one another.

    Args:
        predictor: Predicts the job.
        target: The target.
        layouts: Layouts of the trace and on the target; None where the layout stays.
    """

    def __init__(self, predictor: Predictor, target: Target, layouts: tuple[Layout, Layout] | None) -> None:
        self._predictor, self._job, self._run = predictor, predictor.job, predictor.job.run
        self._target, self._layouts, self._gpu = target, layouts, target.gpu.gpu
        source = self._run.gpu
        self._is_same_gpu = source is not None and source.slug == self._gpu.slug
        same_ranks = layouts is None or layouts[0].world_size == layouts[1].world_size
        self._is_same_host = (
            self._is_same_gpu and same_ranks and not self._job.assumptions and predictor.host in TRACED_HOSTS
        )
        self._host = self._find_host_times()

    def predict(self) -> PredictedStep:
        """Predict the step."""
        job, predictor, gpu = self._job, self._predictor, self._gpu
        of_stage = get_stage_layouts(self._layouts)
        source = None if job.program.has_predicted_times else predictor.source.cluster
        collectives = retarget_to_target(job.program, source, self._target, of_stage)
        items = self._list_parts(collectives, of_stage)
        clock = self._find_clock(items)
        items = [replace(one, slowdown=clock.slowdown) for one in items]
        sums = job.map(sum_times, items)
        repeats = _merge_repeats([one.repeats for one in sums])
        bias = 1.0 if self._run.is_captured else find_known_bias(self._run.gpu, gpu)
        unknown = list_unknown_times(_compute_work_ratio(repeats), is_same_gpu=self._is_same_gpu and not self._layouts)
        factors = _compute_factors(repeats, bias, self._get_common_half_width())
        replays = JobReplays(job, [replace(one, factors=factors, unknown_times=unknown) for one in items])
        step = replays.predict_step(self._host, self._get_stages(), self._list_prefetched_replays())
        is_moved = collectives is not None and bool(collectives["alone"].any())
        return self._describe(replays, self._compute_interval(step, sums, is_moved=is_moved), collectives, sums, clock)

    def _get_common_half_width(self) -> float:
        """Return the half-width of an error that all of the GPU's work has in common, beside those of its kernels."""
        facts = self._run.program.trace.capture_facts
        splits_experts = self._layouts is not None and self._layouts[1].expert_parallel_replicas > 1
        return find_stack(facts.stack).expert_half_width if facts and splits_experts else 0.0

    def _list_parts(
        self, collectives: pl.DataFrame | None, of_stage: tuple[Layout, Layout] | None
    ) -> list[PartOnTarget]:
        """List the parts on the target."""
        job, predictor = self._job, self._predictor
        offsets = find_offsets(predictor.scoreboard, self._gpu, self._run.gpu, job.kind)
        common = PartTarget(
            gpu=self._gpu,
            source=self._run.gpu,
            calibrations=calibration.build_tables(predictor.calibrations, self._gpu),
            layouts=of_stage,
            power_cap_w=predictor.power_cap_w,
            clock_mhz=predictor.clock_mhz,
            source_slowdown=predictor.source_clock.slowdown if self._changes_clock else (1.0,),
            law_offsets=choose_factors(offsets),
        )
        targets = [replace(common, collectives=own) for own in job.split_collectives(collectives)]
        errors = job.find_errors(targets)
        return [
            PartOnTarget(place, replace(one, job_errors=errors) if errors else one)
            for place, one in zip(job.places, targets, strict=True)
        ]

    @property
    def _changes_clock(self) -> bool:
        """Whether the kernels' times are carried from another clock; on the traces' GPU they are measured at it."""
        return self._run.program.has_predicted_times or (self._run.gpu is not None and not self._is_same_gpu)

    def _find_clock(self, items: Sequence[PartOnTarget]) -> KeptClock:
        """Find the clock that the step keeps on the target."""
        job, gpu = self._job, self._gpu
        if not self._changes_clock or not regulates_clock(gpu):
            return KeptClock()
        step_us = JobReplays(job, items).compute_step_us(Replay(host_time=self._host.likely))
        demands_us = average_by_gpu(job.steps, merge_gpus(job.map(sum_demand, items)))
        slowdown = tuple(max(compute_target_slowdown(one, step_us), 1.0) for one in demands_us.tolist())
        demand_w = compute_idle_w(gpu) + (gpu.tdp_w * float(demands_us.max()) / step_us if step_us else 0.0)
        return KeptClock(slowdown, demand_w)

    def _get_stages(self) -> tuple[Layout, Cluster] | None:
        """Return the layout and the cluster of several stages, where the trace has one."""
        if self._layouts is None or self._target.cluster is None:
            return None
        old, new = self._layouts
        return (new, self._target.cluster) if old.pp == 1 < new.pp else None

    def _list_prefetched_replays(self) -> list[Replay]:
        """List the replays that notes and a host like the trace's will ask for, so that a part is opened once."""
        if len(self._job.places) == 1 or self._is_same_gpu:
            return []
        host, gpu, source = self._host.likely, self._gpu, self._run.gpu
        wanted = [Replay(host_time=one) for one in (NO_HOST, self._host.high)] + [Replay(LIKELY, host, LOW)]
        if (bias := find_known_bias(source, gpu)) != 1:
            wanted.append(Replay(LIKELY, host, scaled=(GPU_WORK, bias)))
        if self._is_host_open:
            same = compute_host_times(SAME, None, gpu, source)
            wanted += [replace(one, measures_gpu=False) for one in list_ends(same)]
        return wanted

    def _compute_interval(self, step: ReplayedStep, sums: Sequence[TimeSums], *, is_moved: bool) -> "_StepWithInterval":
        """Compute the step and its interval.

        Args:
            step: The step with the likely, low and high times.
            sums: What each part's kernels sum up to.
            is_moved: Whether collectives have nobody left to wait for.
        """
        job, run, pipeline = self._job, self._run, step.pipeline
        step_us = step.likely.step_time_us
        low_us, high_us = combine_step_ends(step.likely, step.effects, step.shortest)
        layouts = self._layouts
        late = predict_stragglers(job.program, job.spread, *layouts) if layouts else StragglerEffect()
        # The replay's error cancels in the ratio of two replays where it is the same in both.
        as_traced = job.program is run.program and not is_moved and not pipeline
        cancels = as_traced and self._host.likely == 1 and all(one.keeps_measured for one in sums)
        error = 0.0 if cancels else abs(run.self_replay.error_pct) / 100
        ends_us = late.widen_interval(step_us, low_us / (1 + error), high_us * (1 + error))
        scaled = scale_to_pipeline_step(step.likely, step_us * late.likely_factor, pipeline, self._target.layout)
        means = bound_mean_step(step.likely, step.effects, step.shortest, scaled.mean_us, ends_us)
        return _StepWithInterval(step.likely, scaled, ends_us, means, pipeline, late)

    def _describe(
        self,
        replays: JobReplays,
        found: "_StepWithInterval",
        collectives: pl.DataFrame | None,
        sums: Sequence[TimeSums],
        clock: KeptClock,
    ) -> PredictedStep:
        """Describe the step: its energy, memory, price and notes."""
        job, run, target, gpu, step = self._job, self._run, self._target, self._gpu, found.step
        cluster, layouts = target.cluster, self._layouts
        ranks = target.layout.world_size if target.layout else run.trace.world_size
        gpus = ranks * job.gpus_per_rank
        more = compute_batch_ratio(layouts, found.pipeline)
        contention = None
        if not self._is_same_gpu and not layouts:
            contention = job.predict_contention(replays.items[0], self._host.likely)
        in_flight = found.pipeline.max_passes_in_flight if found.pipeline else 1.0
        memory = job.judge_memory(gpu, layouts, in_flight)
        price = self._predictor.prices.find(gpu, cluster)
        same = self._predict_on_same_host(replays, step)
        changed = ChangedStep(replays, self._host.likely, step.step_time_us)
        written = (
            *notes.write_notes(
                job, target, self._predictor.source, collectives, sums, changed, step, contention, found.pipeline
            ),
            *self._write_notes_of_clock(clock, sums),
            *notes.note_engine_pace(job.program, (found.ends_us[0], step.step_time_us, found.ends_us[1])),
            *self._write_notes_of_host(replays, step, changed, same, in_stages=found.pipeline is not None),
            *job.assumptions,
            *([found.stragglers.note] if found.stragglers.note else []),
            *step.list_doubts(),
            notes.note_memory_fit(memory),
            *notes.note_missing_price(self._predictor.prices, price),
        )
        predicted = PredictedStep(
            gpu=gpu.slug,
            name=cluster.name if cluster else gpu.name,
            cluster=cluster.slug if cluster else None,
            cluster_gpus=cluster.gpus if cluster else None,
            step=step,
            low_us=found.ends_us[0],
            high_us=found.ends_us[1],
            mean_low_us=found.mean_ends_us[0],
            mean_high_us=found.mean_ends_us[1],
            speedup=None if run.is_captured else run.measured_step.step_time_us / step.step_time_us,
            coverage=_compute_coverage(sums),
            energy=self._estimate_energy(found, sums),
            notes=order_notes(written, step.step_time_us),
            memory=memory,
            ranks=ranks,
            gpus_per_rank=job.gpus_per_rank,
            layout=target.layout,
            price=price,
            rented=cluster.count_rented_gpus(gpus) if cluster else gpus,
            pipeline=found.pipeline,
            batch_ratio=more,
            batch=job.batch.scale(more) if job.batch else None,
            contention=contention,
            same_host=same,
        )
        finished = job.finish(predicted, replays.items, target, self._host)
        return apply_scoreboard(finished, gpu, run.gpu, job.kind, self._predictor.scoreboard)

    def _write_notes_of_clock(self, clock: KeptClock, sums: Sequence[TimeSums]) -> Iterator[Message]:
        predictor, gpu = self._predictor, self._gpu
        keeps = self._is_same_gpu and not self._run.program.has_predicted_times
        yield from notes.note_calibrations(predictor.calibrations, gpu, keeps)
        yield from notes.note_captured_program(self._job.program)
        yield from notes.note_power_cap(predictor.power_cap_w, gpu, sums)
        yield from notes.note_fixed_clock(predictor.clock_mhz, gpu, sums)
        yield from clock.note(gpu, sums)

    def _write_notes_of_host(
        self,
        replays: JobReplays,
        step: StepTime,
        changed: ChangedStep,
        same: StepOnHost | None,
        *,
        in_stages: bool,
    ) -> Iterator[Message]:
        job, run, gpu, asked = self._job, self._run, self._gpu, self._asked_host
        if gpu.is_cpu:
            yield notes.note_cpu(gpu, run.program)
            return
        if not (self._is_same_host or in_stages or run.is_captured):
            yield from job.write_job_notes(replays, step, self._host.likely)
        yield from notes.note_unknown_time(changed, changed.compute_step_us(unknown=LOW))
        yield from notes.note_other_stack(run.gpu, gpu, self._host, changed)
        if run.is_captured:
            yield from notes.note_captured_host(self._predictor.host, self._host)
            return
        source = job.host if same or asked not in TRACED_HOSTS else None
        told = None if self._is_same_gpu and job.assumptions else changed
        yield from notes.note_host(asked, self._host, source, same, gpu, told)

    def _estimate_energy(self, found: "_StepWithInterval", sums: Sequence[TimeSums]) -> StepEnergy:
        """Estimate what the step draws on one GPU."""
        drawn = average_energies([one.energies for one in sums], self._job.steps, found.replayed, self._gpu)
        limit_w = resolve_power_cap(self._predictor.power_cap_w, self._gpu)
        return estimate_step_energy(drawn, found.step, found.ends_us, self._gpu, limit_w)

    def _find_host_times(self) -> HostTimes:
        """Return how much longer the CPU's own work takes there than measured."""
        run, host, gpu = self._run, self._predictor.host, self._gpu
        if gpu.is_cpu:
            return CPU_HOST
        if notes.has_host_speed_edit(self._job.program):
            return MEASURED_HOST
        if run.is_captured and run.gpu:
            return compute_captured_host_times(host, run.gpu, gpu)
        if self._is_same_host:
            return MEASURED_HOST
        host = self._asked_host
        return compute_host_times(host, self._job.host if host != SAME else None, gpu, run.gpu)

    @property
    def _asked_host(self) -> str | float:
        """The host that is predicted for: on the trace's own GPU an unknown one is like the trace's."""
        return SAME if self._is_same_gpu and self._predictor.host == UNKNOWN else self._predictor.host

    @property
    def _is_host_open(self) -> bool:
        """Whether the target's CPU may be any of the usual ones, and is more certain if it is like the traces'."""
        is_open = self._predictor.host == UNKNOWN and not notes.has_host_speed_edit(self._job.program)
        return is_open and not (self._is_same_gpu or self._get_stages() or self._run.is_captured)

    def _predict_on_same_host(self, replays: JobReplays, step: StepTime) -> StepOnHost | None:
        """Predict the step with a CPU like the traces', where the CPU changes it."""
        if not self._is_host_open:
            return None
        fast_us, likely_us, slow_us = (
            replays.compute_step_us(Replay(host_time=one))
            for one in (self._host.low, self._host.likely, self._host.high)
        )
        if max(likely_us / fast_us, slow_us / likely_us) < MIN_HOST_EFFECT:
            return None
        found = replays.predict_on_host(compute_host_times(SAME, None, self._gpu, self._run.gpu))
        # Of several ranks the slowest one's step, as the predicted one.
        return found.scale(step.step_time_us / likely_us)


@dataclass(frozen=True, slots=True)
class _StepWithInterval:
    """A step on the target.

    Attributes:
        replayed: As replayed; of a pipeline, one stage's.
        step: As it is, with its pipeline and the slowest rank.
        ends_us: Ends of the median step's 90 % interval.
        mean_ends_us: Ends of the mean step's.
        pipeline: The pipeline that the job becomes; None without.
        stragglers: What waiting for the slowest rank makes of it.
    """

    replayed: StepTime
    step: StepTime
    ends_us: tuple[float, float]
    mean_ends_us: tuple[float, float]
    pipeline: Pipeline | None
    stragglers: StragglerEffect


def _merge_repeats(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Merge the sums of all parts over repeats of one kernel."""
    if len(parts) == 1:
        return parts[0]
    keys = ("name", "op", "input_dims", "family", "is_collective", "chosen")
    return pl.concat(parts).group_by(keys, maintain_order=True).agg(pl.all().sum())


def _compute_factors(
    sums: pl.DataFrame, known_bias: float, common: float = 0.0
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Compute the factors on kernel times at both ends of the interval, of the GPU's work and of collectives.

    Errors of one GPU's kernels are correlated, so each end scales all kernels by one factor: the one that the interval
    of their sum allows. Collectives of one network are correlated too, and have a factor of their own.

    Args:
        sums: Of all parts.
        known_bias: Ratio of measured to predicted times of other jobs on the target, which the interval holds.
        common: Half-width, as a logarithm, of an error that all of the GPU's work has besides.
    """
    is_collective = sums["is_collective"].to_numpy()
    on_gpu = compute_end_factors(_sum_kernels(sums, ~is_collective), known_bias=known_bias)
    on_network = compute_end_factors(_sum_kernels(sums, is_collective), known_bias=1.0)
    low, high = combine_ends(1.0, [on_gpu, (exp(-common), exp(common))]) if common else on_gpu
    return (low, on_network[0]), (high, on_network[1])


def _sum_kernels(sums: pl.DataFrame, mine: Bools) -> KernelSums:
    """Sum the times of each kernel in the chosen steps, or in all of them where nothing ran in these."""
    in_steps, times = mine & sums["chosen"].to_numpy(), ("time_ps", "low_ps", "high_ps", "shared_ps")
    if sums["count"].to_numpy()[in_steps].any() or not mine.any():
        kernels, rows = sums, in_steps
    else:
        kernels = sums.filter(pl.Series(mine)).group_by("name", "op", "input_dims", "family").agg(pl.col(times).sum())
        rows = np.ones(kernels.height, dtype=np.bool_)
    likely, low, high, shared = (kernels[name].to_numpy()[rows] for name in times)
    return KernelSums(likely, low, high, shared, kernels["family"].to_numpy()[rows])


def _compute_work_ratio(sums: pl.DataFrame) -> float:
    """Compute predicted over measured time of all kernels but collectives, in the chosen steps."""
    works = ~sums["is_collective"].to_numpy()
    chosen = works & sums["chosen"].to_numpy()
    rows = chosen if chosen.any() else works
    return divide_sums(*(int(sums[name].to_numpy()[rows].sum()) for name in ("time_ps", "measured_ps")))


def _compute_coverage(sums: Sequence[TimeSums]) -> Coverage:
    """Compute the coverage of the chosen steps, or of all kernels if nothing ran in these."""
    chosen, every = np.sum(np.array([one.methods_ns for one in sums], dtype=np.int64), axis=0).tolist()
    parts = chosen if any(chosen) else every
    total = sum(parts)
    return Coverage(*(100 * float(part) / total for part in parts)) if total else Coverage(0.0, 0.0, 100.0)


def find_layout_change(old: Layout | None, target: Target, gpus_per_rank: int = 1) -> tuple[Layout, Layout] | None:
    """Return the layouts of trace and target where they differ; check that the target can hold the job."""
    if old is not None and target.cluster is not None:
        layout = target.layout or old
        if layout.world_size * gpus_per_rank > target.cluster.gpus:
            raise _make_too_small_error(target.cluster, layout, gpus_per_rank)
    if old is None or target.layout is None or old == target.layout:
        return None
    if target.cluster is None and not _has_same_collectives(old, target.layout):
        nodes = -(-target.layout.world_size // 8)
        such_as = f"{nodes}x8x{target.label}@ndr400" if nodes > 1 else f"8x{target.label}"
        raise LayoutError(
            layout_messages.LINKS_UNKNOWN(layout=str(target.layout), target=target.label, suggestion=such_as)
        )
    return old, target.layout


def _make_too_small_error(cluster: Cluster, layout: Layout, gpus_per_rank: int) -> ClusterError:
    replica = layout.world_size // layout.dp * gpus_per_rank
    most = cluster.gpus // replica * replica
    shown: dict[str, Value] = {"layout": str(layout), "cluster": cluster.slug, "gpus": cluster.gpus}
    if not most:
        return ClusterError(layout_messages.CLUSTER_SMALLER_THAN_REPLICA(**shown, ranks=replica))
    return ClusterError(layout_messages.CLUSTER_TOO_SMALL(**shown, fitting=most))


def _has_same_collectives(old: Layout, new: Layout) -> bool:
    """Return whether only the batch or its context changes, and no rank sends data that grows with it."""
    return replace(new, batch=old.batch, context=old.context) == old and old.tp == old.pp == old.ep == 1
