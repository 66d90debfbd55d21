"""Predict a program's step on one target after the other: predict every kernel, then replay the graph."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.result import UNCHANGED_HALF_WIDTH
from tracekit import calibration
from tracekit.analysis.contention import MIN_OVERLAP_PCT, ContentionModel
from tracekit.arrays import Floats, Ints
from tracekit.comm import Cluster, ClusterError
from tracekit.graph.edit import remove_edges
from tracekit.hosts import find_usual_host
from tracekit.messages import Message, Value, layouts
from tracekit.parallelism.expert_parallel import compute_held_parameter_fraction
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.missing_collectives import Inserter, find_missing_collectives, insert_all
from tracekit.parallelism.pipeline_parallel import Pipeline
from tracekit.parallelism.relayout import add_measured_times, get_kernel_key, relayout_kernels
from tracekit.parallelism.stragglers import (
    RankSpread,
    StragglerEffect,
    measure_rank_spread,
    predict_stragglers,
)
from tracekit.prediction import notes
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.changed_step import ChangedStep
from tracekit.prediction.collectives import fill_collective_times, retarget_to_target
from tracekit.prediction.cost import Prices
from tracekit.prediction.energy import StepEnergy, estimate_step_energy, sum_kernel_energy
from tracekit.prediction.experience import apply_scoreboard, classify_job
from tracekit.prediction.fixed_clock import apply_clock, resolve_clock
from tracekit.prediction.insertion_cost import separate_inserted_kernels
from tracekit.prediction.intervals import KEPT_COLLECTIVE_FACTOR, compute_interval_times, number_repeats
from tracekit.prediction.kernel_times import KernelTimePredictor
from tracekit.prediction.mean_step import bound_mean_step
from tracekit.prediction.memory import MemoryNeeds, estimate_memory_needs, judge_memory_fit
from tracekit.prediction.model import Coverage, Prediction, StepOnHost, StepOnUsualHost, StepWithContention, Target
from tracekit.prediction.note_order import order_notes
from tracekit.prediction.power_cap import apply_power_cap, resolve_power_cap
from tracekit.prediction.profiler_cost import ProfilerCost
from tracekit.prediction.source_cluster import SourceCluster
from tracekit.prediction.stages import compute_batch_ratio, get_stage_layouts, scale_to_pipeline_step, split_into_stages
from tracekit.prediction.sustained_clock import ClockedKernels, SustainedClock
from tracekit.prediction.target_host import (
    MEASURED_HOST,
    SAME,
    TRACED_HOSTS,
    TYPICAL,
    UNKNOWN,
    HostTimes,
    compute_captured_host_times,
    compute_host_times,
)
from tracekit.prediction.track_record import find_known_bias
from tracekit.prediction.unknown_time import compute_work_ratio, list_unknown_times
from tracekit.program import Program
from tracekit.replay.engine import UnknownTimes, scale_unknown_time
from tracekit.replay.step_time import StepTime
from tracekit.run import MeasuredRun
from tracekit.scoreboard import Scoreboard
from tracekit.workload.step_kinds import compute_time_shares

MODELLED_METHODS = ("measured", "law", "transfer")
SCALED_METHODS = ("scaled",)
INFERRED_METHODS = ("inferred",)
MIN_HOST_EFFECT = 1.05
"""Least factor by which a slow or a fast host among the usual ones changes a step for that to be said."""
SHARPENED_HALF_WIDTH = 0.05
"""Half-width, as a logarithm, of the 90 % interval of what a captured program's ops, corrected by a trace of it, leave
open of its GPU's time: 10 of 11 programs were within 4 % (tests/validation/results/whole_jobs/sharpened_steps.md)."""
INNER_COLUMNS = ("transfer_us", "slowdown", "clock_slowdown", "demand_w")
"""Of predicted kernels, which the prediction itself doesn't show."""
KERNEL_COLUMNS = ("name", "op", "input_dims", "family", "dtype", "measured_us")


@dataclass(frozen=True)
class Predictor:
    """Predicts one program's step on targets; work that several targets have in common is done once.

    Attributes:
        run: The measured run.
        program: What is predicted: the run's program, or what edits and inserted collectives made of it.
        source: Where the run was recorded.
        layout: Layout of the trace; None if it is unknown.
        batch: What its job processes in a step; None if it is unknown.
        prices: Dollars for an hour of one GPU.
        calibrations: The calibrations in use.
        assumptions: What was assumed for inserted collectives, one clause each.
        host: Host that is predicted for, as :func:`~tracekit.prediction.target_host.parse_host` returns it.
        power_cap_w: Power limit of each target's GPUs; None for their own.
        clock_mhz: Clock of each target's GPUs; None for their own.
        scoreboard: Outcomes of earlier predictions, which intervals are fitted to.
        clock: What predicts the clock that steps keep.
    """

    run: MeasuredRun
    program: Program
    source: SourceCluster
    layout: Layout | None
    batch: StepBatch | None
    prices: Prices
    calibrations: Sequence[calibration.Calibration]
    clock: SustainedClock
    assumptions: tuple[Message, ...] = ()
    host: str | float = UNKNOWN
    power_cap_w: float | None = None
    clock_mhz: float | None = None
    scoreboard: Scoreboard = field(default_factory=Scoreboard)
    _times_cache: dict[tuple[object, ...], pl.DataFrame] = field(default_factory=dict, repr=False)
    _kernels_cache: dict[tuple[object, ...], KernelTimePredictor] = field(default_factory=dict, repr=False)
    _predictor_cache: dict[tuple[Inserter, ...], "Predictor"] = field(default_factory=dict, repr=False)

    @cached_property
    def _repeat_numbers(self) -> Ints:
        return number_repeats(self.program.kernels)

    @cached_property
    def spread(self) -> RankSpread:
        """Variation among its ranks and steps."""
        return measure_rank_spread(self.program)

    @cached_property
    def _job_kind(self) -> str:
        return classify_job(self.run.program)

    @cached_property
    def _memory_needs(self) -> MemoryNeeds:
        return estimate_memory_needs(self.program)

    @cached_property
    def _profiler_cost(self) -> ProfilerCost:
        return ProfilerCost(self.run, self.program)

    @cached_property
    def _contention_model(self) -> ContentionModel:
        return ContentionModel(self.program, self.run.gpu)

    def insert_collectives(self, inserters: tuple[Inserter, ...]) -> "Predictor":
        """Return the predictor of the program with inserted collectives.

        Args:
            inserters: The functions that insert them.

        Raises:
            LayoutError: The trace doesn't reveal what would be communicated.
        """
        if inserters not in self._predictor_cache:
            program, notes = insert_all(self.program, inserters)
            self._predictor_cache[inserters] = replace(
                self, program=program, assumptions=notes, _times_cache={}, _kernels_cache={}, _predictor_cache={}
            )
        return self._predictor_cache[inserters]

    def fits(self, target: Target) -> bool:
        """Return whether memory holds the job in the target's layout, for sure; stages count as one pass each."""
        layouts = find_layout_change(self.layout, target)
        held = compute_held_parameter_fraction(self.program, layouts)
        gpu = target.gpu.gpu
        needs = self._memory_needs
        return judge_memory_fit(self.program, self.run.gpu, gpu, layouts, needs, held_fraction=held).fits is True

    def predict(self, target: Target) -> Prediction:
        """Predict the step on one target.

        Raises:
            ClusterError: The job doesn't fit on the cluster.
            LayoutError: The job can't be laid out in this way.
        """
        layouts = find_layout_change(self.layout, target, self.program.step_timer.gpus_per_rank)
        if layouts and not self.assumptions and (adders := find_missing_collectives(self.program, *layouts)):
            grown = self.insert_collectives(adders)
            return separate_inserted_kernels(grown.predict(target), self.program)
        of_stage = get_stage_layouts(layouts)
        times = self._predict_kernels(target.gpu.gpu, of_stage)
        program = self.program
        collectives = retarget_to_target(program, self.source.cluster, target, of_stage)
        if collectives is not None:
            times = fill_collective_times(times, collectives)
            program = _remove_rendezvous(program, collectives.filter("alone")["row"].to_numpy())
        return self._replay_target(program, target, layouts, times)

    def _predict_kernels(self, gpu: Gpu, layouts: tuple[Layout, Layout] | None) -> pl.DataFrame:
        """Predict all kernels but collectives on a GPU; unknown times are null."""
        key = (gpu.slug, get_kernel_key(layouts[1]) if layouts else None)
        if key not in self._times_cache:
            kernels = self._get_kernels(gpu, layouts)
            times = kernels.predict(gpu, calibration.build_tables(self.calibrations, gpu))
            times = kernels.table.select(KERNEL_COLUMNS).hstack(times)
            if (fraction := resolve_clock(self.clock_mhz, gpu)) < 1:
                times = apply_clock(times, kernels.compute_clock_ratio(gpu, fraction), fraction, gpu)
            if self.power_cap_w is not None:
                times = apply_power_cap(times, resolve_power_cap(self.power_cap_w, gpu), gpu)
            self._times_cache[key] = times
        return self._times_cache[key]

    def _get_kernels(self, gpu: Gpu, layouts: tuple[Layout, Layout] | None) -> KernelTimePredictor:
        """Return the kernels in a layout."""
        unknown = gpu.slug if self.run.gpu is None else None
        key = (unknown, get_kernel_key(layouts[1])) if layouts else ()
        if key not in self._kernels_cache:
            source = self.run.gpu
            table = (
                relayout_kernels(self.program, source, gpu, *layouts) if layouts else add_measured_times(self.program)
            )
            by_shape = self.run.program.has_predicted_times
            half_width = SHARPENED_HALF_WIDTH if self.run.is_captured and not by_shape else 0.0
            self._kernels_cache[key] = KernelTimePredictor(table, source, by_shape=by_shape, half_width=half_width)
        return self._kernels_cache[key]

    def _replay_target(
        self, program: Program, target: Target, layouts: tuple[Layout, Layout] | None, times: pl.DataFrame
    ) -> Prediction:
        run, gpu = self.run, target.gpu.gpu
        same_gpu = run.gpu is not None and run.gpu.slug == gpu.slug
        same_ranks = layouts is None or layouts[0].world_size == layouts[1].world_size
        same_host = same_gpu and same_ranks and not self.assumptions and self.host in TRACED_HOSTS
        filled = fill_unpredicted(times, 0.0 if same_gpu and not layouts else UNCHANGED_HALF_WIDTH)
        host = self._find_host_times(program, gpu, same_host)
        clocked = self._hold_clock(program, filled, target, layouts, host)
        filled = clocked.kernels
        ends = self._list_ends(program, filled, gpu, is_same_gpu=same_gpu and not layouts)
        stepped = self._compute_step_interval(program, target, layouts, filled, ends, host)
        program = ends[0].program
        pipeline = stepped.pipeline
        more = compute_batch_ratio(layouts, pipeline)
        shared = None if same_gpu or layouts else self._predict_contention(filled["time_us"].to_numpy())
        in_flight = pipeline.max_passes_in_flight if pipeline else 1.0
        memory = judge_memory_fit(
            program,
            run.gpu,
            gpu,
            layouts,
            self._memory_needs,
            in_flight,
            compute_held_parameter_fraction(program, layouts),
        )
        usual = (
            None if same_host or layouts or run.is_captured else self._predict_on_usual_host(gpu, ends, stepped.step)
        )
        same = _predict_on_host(ends, compute_host_times(SAME, None, gpu, run.gpu)) if usual else None
        kernels = _apply_edits(program, filled.drop(*KERNEL_COLUMNS, *INNER_COLUMNS, strict=False))
        source_host = run.host_speed if not run.is_captured and (usual or self.host not in TRACED_HOSTS) else None
        ranks = target.layout.world_size if target.layout else program.trace.world_size
        gpus_per_rank = program.step_timer.gpus_per_rank
        gpus = ranks * gpus_per_rank
        price = self.prices.find(gpu, target.cluster)
        changed = ChangedStep(program, filled["time_us"].to_numpy(), host.likely, stepped.step.step_time_us)
        alone_us = stepped.step.exposed_comm_us
        written = (
            *notes.note_calibrations(self.calibrations, gpu, same_gpu and not run.program.has_predicted_times),
            *notes.write_notes(
                run, program, target, self.source, filled, same_gpu, changed, alone_us, shared, pipeline
            ),
            *(
                ()
                if same_host or pipeline or run.is_captured
                else self._profiler_cost.note(program, filled["time_us"], stepped.step)
            ),
            *notes.note_captured_program(program),
            *notes.note_power_cap(self.power_cap_w, gpu, filled),
            *notes.note_fixed_clock(self.clock_mhz, gpu, filled),
            *notes.note_sustained_clock(clocked.slowdown, clocked.longer_pct, clocked.demand_w, gpu),
            *notes.note_unknown_time(changed, changed.compute_step_us(graph=ends[1].program.graph)),
            *notes.note_other_stack(run.gpu, gpu, host, changed),
            *(
                notes.note_captured_host(self.host, host)
                if run.is_captured
                else notes.note_host(
                    self.host, host, source_host, same, usual, gpu, None if same_gpu and self.assumptions else changed
                )
            ),
            *self.assumptions,
            *([stepped.stragglers.note] if stepped.stragglers.note else []),
            *stepped.step.list_doubts(),
            notes.note_memory_fit(memory),
            *notes.note_missing_price(self.prices, price),
        )
        prediction = Prediction(
            gpu=gpu.slug,
            name=target.cluster.name if target.cluster else gpu.name,
            cluster=target.cluster.slug if target.cluster else None,
            cluster_gpus=target.cluster.gpus if target.cluster else None,
            target=target,
            step=stepped.step,
            low_us=stepped.low_us,
            high_us=stepped.high_us,
            mean_low_us=stepped.mean_low_us,
            mean_high_us=stepped.mean_high_us,
            speedup=None if run.is_captured else run.measured_step.step_time_us / stepped.step.step_time_us,
            coverage=_compute_coverage(program, filled),
            energy=self._estimate_energy(program, kernels, stepped, gpu),
            kernels=kernels,
            program=program,
            replayed_kernels=kernels,
            notes=order_notes(written, stepped.step.step_time_us),
            memory=memory,
            ranks=ranks,
            gpus_per_rank=gpus_per_rank,
            layout=target.layout,
            price=price,
            rented=target.cluster.count_rented_gpus(gpus) if target.cluster else gpus,
            pipeline=pipeline,
            batch_ratio=more,
            batch=self.batch.scale(more) if self.batch else None,
            contention=shared,
            same_host=same,
            usual_host=usual,
            host_time=host.likely,
        )
        return apply_scoreboard(prediction, gpu, run.gpu, self._job_kind, self.scoreboard)

    def _hold_clock(
        self,
        program: Program,
        kernels: pl.DataFrame,
        target: Target,
        layouts: tuple[Layout, Layout] | None,
        host: HostTimes,
    ) -> ClockedKernels:
        """Return the kernels at the clock that the step keeps; on the trace's own GPU they are measured at it."""
        source, gpu = self.run.gpu, target.gpu.gpu
        if not self.run.program.has_predicted_times and (source is None or source.slug == gpu.slug):
            return ClockedKernels(kernels)
        traced = self._get_kernels(gpu, get_stage_layouts(layouts))
        return self.clock.hold(program, kernels, gpu, traced, host.likely)

    def _compute_step_interval(
        self,
        program: Program,
        target: Target,
        layouts: tuple[Layout, Layout] | None,
        times: pl.DataFrame,
        ends: "tuple[_End, _End, _End]",
        host: HostTimes,
    ) -> "_StepInterval":
        """Compute the step and its interval from replays with the likely, low and high times."""
        host_times = (host.likely, host.low, host.high)
        lines = [end.program.replay_timeline(end.kernel_us, time) for end, time in zip(ends, host_times, strict=True)]
        pipeline, longer = split_into_stages(program, lines, target, layouts)
        step, low, high = (program.compute_median(line, factor) for line, factor in zip(lines, longer, strict=True))
        step_us, low_us, high_us = (one.step_time_us for one in (step, low, high))
        # A step that the CPU paces is shorter the longer the kernels of the one before took.
        low_us, high_us = min(low_us, step_us, high_us), max(low_us, step_us, high_us)
        late = predict_stragglers(self.program, self.spread, *layouts) if layouts else StragglerEffect()
        as_traced = program is self.run.program and not pipeline
        measured_us = times["measured_us"].to_numpy()
        # The replay's error cancels in the ratio of two replays where it is the same in both.
        cancels = as_traced and np.array_equal(ends[0].kernel_us, measured_us) and host.likely == 1
        error = 0.0 if cancels else abs(self.run.self_replay.error_pct) / 100
        low_us, high_us = late.widen_interval(step_us, low_us / (1 + error), high_us * (1 + error))
        scaled = scale_to_pipeline_step(step, step_us * late.likely_factor, pipeline, target.layout)
        of_mean = bound_mean_step((step, low, high), scaled.mean_us, (low_us, high_us))
        return _StepInterval(step, scaled, low_us, high_us, *of_mean, pipeline, late)

    def _list_ends(
        self, program: Program, times: pl.DataFrame, gpu: Gpu, *, is_same_gpu: bool
    ) -> "tuple[_End, _End, _End]":
        """List what to replay for the prediction and for both ends of its interval.

        Args:
            program: The program, with the measured times of what its trace doesn't explain.
            times: Its kernels on the target.
            gpu: The target's GPU.
            is_same_gpu: Whether that time is as measured on the target.
        """
        unknown = list_unknown_times(compute_work_ratio(program, times["time_us"].to_numpy()), is_same_gpu=is_same_gpu)
        likely, low, high = (
            _End(_scale_unknown(program, one), us)
            for one, us in zip(unknown, self._compute_interval_times(times, gpu), strict=True)
        )
        return likely, low, high

    def _estimate_energy(
        self, program: Program, kernels: pl.DataFrame, stepped: "_StepInterval", gpu: Gpu
    ) -> StepEnergy:
        """Estimate what the step draws on one GPU."""
        drawn = sum_kernel_energy(program, kernels, stepped.replayed, gpu)
        limit_w = resolve_power_cap(self.power_cap_w, gpu)
        return estimate_step_energy(drawn, stepped.step, (stepped.low_us, stepped.high_us), gpu, limit_w)

    def _compute_interval_times(self, times: pl.DataFrame, gpu: Gpu) -> tuple[Floats, Floats, Floats]:
        """Return the likely, low and high kernel times; what published jobs on the GPU missed lies within."""
        counted = self.program.is_in_chosen_steps.to_numpy()
        bias = 1.0 if self.run.is_captured else find_known_bias(self.run.gpu, gpu)
        return compute_interval_times(times, self._repeat_numbers, counted, bias)

    def _find_host_times(self, program: Program, gpu: Gpu, same_host: bool) -> HostTimes:
        """Return how much longer the CPU's own work takes there than measured."""
        if notes.has_host_speed_edit(program):
            return MEASURED_HOST
        if self.run.is_captured and self.run.gpu:
            return compute_captured_host_times(self.host, self.run.gpu, gpu)
        if same_host:
            return MEASURED_HOST
        return compute_host_times(self.host, self.run.host_speed if self.host != SAME else None, gpu, self.run.gpu)

    def _predict_on_usual_host(
        self, gpu: Gpu, ends: "tuple[_End, _End, _End]", step: StepTime
    ) -> StepOnUsualHost | None:
        """Predict the step with the usual CPU, where that changes it."""
        likely = ends[0]
        if self.host != UNKNOWN or notes.has_host_speed_edit(likely.program) or self.run.host_speed is None:
            return None
        host = compute_host_times(TYPICAL, self.run.host_speed, gpu)
        fast_us, slow_us = (likely.compute_step_us(time) for time in (host.low, host.high))
        if max(step.step_time_us / fast_us, slow_us / step.step_time_us) < MIN_HOST_EFFECT:
            return None
        host, usual = compute_host_times(TYPICAL, self.run.host_speed, gpu, self.run.gpu), find_usual_host(gpu)
        there = _predict_on_host(ends, host)
        return StepOnUsualHost(
            there.step_time_us, there.low_us, there.high_us, self.run.host_speed.speed / usual.speed, usual.machines
        )

    def _predict_contention(self, time_us: Floats) -> StepWithContention | None:
        """Predict the step with contention, where enough kernels overlap."""
        if self._contention_model.overlap < MIN_OVERLAP_PCT:
            return None
        found = self._contention_model.estimate(time_us)
        return StepWithContention(found.overlap_pct, found.uncontended.step_time_us, found.contended.step_time_us)


@dataclass(frozen=True, slots=True)
class _End:
    """What is replayed for the prediction or for an end of its interval: a program, and the time of its kernels."""

    program: Program
    kernel_us: Floats

    def compute_step_us(self, host_time: float) -> float:
        return self.program.replay_step_time_us(self.kernel_us, host_time)


def _scale_unknown(program: Program, times: UnknownTimes) -> Program:
    graph = scale_unknown_time(program.graph, times)
    return program if graph is program.graph else replace(program, graph=graph)


def _predict_on_host(ends: tuple[_End, _End, _End], host: HostTimes) -> StepOnHost:
    """Predict the step with a CPU that is some times as fast as the measured one."""
    host_times = (host.likely, host.low, host.high)
    steps_us = [end.compute_step_us(time) for end, time in zip(ends, host_times, strict=True)]
    return StepOnHost(steps_us[0], min(steps_us), max(steps_us))


@dataclass(frozen=True, slots=True)
class _StepInterval:
    """The step as replayed, as it is, the ends of its interval and the mean step's, its pipeline, its slowest rank."""

    replayed: StepTime
    step: StepTime
    low_us: float
    high_us: float
    mean_low_us: float
    mean_high_us: float
    pipeline: Pipeline | None
    stragglers: StragglerEffect


def fill_unpredicted(times: pl.DataFrame, log_half_width: float) -> pl.DataFrame:
    """Fill in the measured time, with an interval, where no time was predicted.

    Args:
        times: Predicted times, null where unknown.
        log_half_width: Half-width of the interval of these times, as a logarithm; 0 on the GPU that measured them. Else
            collectives, of which nothing scales, take from no time to ``KEPT_COLLECTIVE_FACTOR`` times as long.
    """
    ends = {"low_us": exp(-log_half_width), "time_us": 1.0, "high_us": exp(log_half_width)}
    of_collectives = {"low_us": 0.0, "time_us": 1.0, "high_us": KEPT_COLLECTIVE_FACTOR} if log_half_width else ends
    is_collective = pl.col("family") == "collective"
    factors = {
        end: pl.when(is_collective).then(of_collectives[end]).otherwise(factor).fill_null(factor)
        for end, factor in ends.items()
    }
    return times.with_columns(
        *(pl.col(end).fill_null(pl.col("measured_us") * factor) for end, factor in factors.items()),
        method=pl.when(pl.col("time_us").is_null()).then(pl.lit("kept")).otherwise("method"),
    )


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
        raise LayoutError(layouts.LINKS_UNKNOWN(layout=str(target.layout), target=target.label, suggestion=such_as))
    return old, target.layout


def _make_too_small_error(cluster: Cluster, layout: Layout, gpus_per_rank: int) -> ClusterError:
    replica = layout.world_size // layout.dp * gpus_per_rank
    most = cluster.gpus // replica * replica
    shown: dict[str, Value] = {"layout": str(layout), "cluster": cluster.slug, "gpus": cluster.gpus}
    if not most:
        return ClusterError(layouts.CLUSTER_SMALLER_THAN_REPLICA(**shown, ranks=replica))
    return ClusterError(layouts.CLUSTER_TOO_SMALL(**shown, fitting=most))


def _has_same_collectives(old: Layout, new: Layout) -> bool:
    """Return whether only the batch or its context changes, and no rank sends data that grows with it."""
    return replace(new, batch=old.batch, context=old.context) == old and old.tp == old.pp == old.ep == 1


def _remove_rendezvous(program: Program, rows: Ints) -> Program:
    """Remove the waiting for other ranks from some collectives, given by their rows."""
    if not rows.size:
        return program
    graph = program.graph
    kept_ns = graph.kept_ns.copy()
    kept_ns[rows] = 0
    meets = np.zeros(graph.src.size, dtype=np.bool_)
    meets[graph.transfer_edge[np.isin(graph.transfer_activity, rows)]] = True
    return replace(program, graph=replace(remove_edges(graph, meets), kept_ns=kept_ns))


def _apply_edits(program: Program, kernels: pl.DataFrame) -> pl.DataFrame:
    """Apply the factors of the program's what-if edits to predicted times."""
    return kernels.with_columns(pl.col("time_us", "low_us", "high_us") * pl.Series(program.kernel_factor))


def split_by_method() -> tuple[pl.Expr, ...]:
    """Return which kernels count for each share of a :class:`Coverage`, by their method."""
    ways = (MODELLED_METHODS, SCALED_METHODS, INFERRED_METHODS)
    modelled, scaled, inferred = (pl.col("method").is_in(methods) for methods in ways)
    return modelled, scaled, ~(modelled | scaled | inferred), inferred


def _compute_coverage(program: Program, kernels: pl.DataFrame) -> Coverage:
    """By measured time, over the chosen steps; over all of the trace if nothing ran in these."""
    table = pl.DataFrame({"time": program.kernels["dur_ns"], "method": kernels["method"]})
    table = table.filter(program.is_in_chosen_steps) if program.is_in_chosen_steps.any() else table
    return Coverage(*compute_time_shares(table, "time", *split_by_method()))
