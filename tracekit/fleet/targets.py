"""Predict a job of many ranks on its targets, in rounds over its ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from predictors import Gpu
from predictors.transfer import StackErrors
from tracekit import calibration, scoreboard
from tracekit.comm import ClusterError
from tracekit.fleet import job_errors, rounds
from tracekit.fleet.evidence import FleetEvidence
from tracekit.fleet.hosts import StepOnHosts
from tracekit.fleet.join import JoinedFleet, PlacedRank
from tracekit.fleet.kernel_times import TargetTimes, compute_factors, compute_ratio
from tracekit.fleet.options import FleetOptions
from tracekit.fleet.predicted_step import BOOST_CLOCK, JobOnTargets, KeptClock, build_predicted_step
from tracekit.fleet.replays import TargetReplays, list_host_replays
from tracekit.fleet.rounds import LIKELY, RankTarget, TimeSums
from tracekit.fleet.runner import FleetRunner
from tracekit.messages import fleets
from tracekit.messages.layouts import CLUSTER_TOO_SMALL
from tracekit.parallelism.layout import LayoutError
from tracekit.prediction.collectives import retarget_to_target
from tracekit.prediction.energy import compute_idle_w
from tracekit.prediction.model import PredictedStep, RefusedTarget, Target
from tracekit.prediction.predict_run import check_question, merge_refusals
from tracekit.prediction.predictor import find_layout_change
from tracekit.prediction.source_cluster import SourceCluster
from tracekit.prediction.sustained_clock import (
    average_by_gpu,
    compute_source_slowdown,
    compute_target_slowdown,
    regulates_clock,
)
from tracekit.prediction.target_host import MEASURED_HOST, UNKNOWN, compute_host_times
from tracekit.prediction.targets import resolve_prices
from tracekit.prediction.track_record import find_known_bias
from tracekit.prediction.unknown_time import list_unknown_times
from tracekit.replay.step_time import JobSteps
from tracekit.run import MeasuredRun


@dataclass
class FleetPredictor:
    """The predictions of one job.

    Attributes:
        runner: Works on the ranks.
        joined: The ranks, with their collectives.
        options: What is known of the job, and its targets.
        evidence: What all ranks tell.
    """

    runner: FleetRunner
    joined: JoinedFleet
    options: FleetOptions
    evidence: FleetEvidence
    _errors: dict[str, tuple[StackErrors, ...]] = field(default_factory=dict)

    def predict(
        self, run: MeasuredRun, steps: JobSteps, source: SourceCluster, wanted: Sequence[Target]
    ) -> tuple[JobOnTargets, tuple[PredictedStep, ...]]:
        """Predict the job on each target; those that it doesn't fit are among the warnings.

        Args:
            run: The measured job.
            steps: Its steps.
            source: Where it was recorded.
            wanted: The targets.

        Raises:
            TracekitError: As :func:`tracekit.prediction.predict`.
        """
        job = self._describe_job(run, steps, source, wanted)
        slowdown = self._compute_source_slowdown(job)
        predicted, refused = [], []
        for target in wanted:
            try:
                find_layout_change(job.facts.layout, replace(target, layout=job.facts.layout), job.gpus_per_rank)
                predicted.append(self._predict_target(job, target, slowdown))
            except (ClusterError, LayoutError) as error:
                refused.append(RefusedTarget(target.label, _explain(error)))
        if refused and not predicted:
            raise merge_refusals(refused)
        self.runner.warnings += [one.to_message() for one in refused]
        return job, tuple(predicted)

    def _describe_job(
        self, run: MeasuredRun, steps: JobSteps, source: SourceCluster, wanted: Sequence[Target]
    ) -> JobOnTargets:
        options, facts = self.options, self.evidence.facts
        prices = resolve_prices(options.prices, run.gpu, source.shown, wanted)
        check_question(options.question, prices, wanted)
        self.runner.warnings += prices.doubts
        if options.question.whole_run:
            options.question.whole_run.count_steps(facts.batch)
        calibrations = calibration.load_all() if options.calibrated else ()
        outcomes = scoreboard.load() if options.scored else scoreboard.Scoreboard()
        gpus_per_rank = self.joined.gpus_per_rank
        return JobOnTargets(run, steps, source, facts, prices, calibrations, outcomes, gpus_per_rank)

    def _compute_source_slowdown(self, job: JobOnTargets) -> tuple[float, ...]:
        """Compute by how much the clock that each GPU kept in the measured step is below the boost clock."""
        gpu = job.run.gpu
        if gpu is None or not regulates_clock(gpu):
            return (1.0,)
        times = TargetTimes(gpu, gpu, job.run.program.framework, {})
        items = [RankTarget(place, times) for place in self.joined.ranks]
        demand_ns = rounds.merge_gpus(self.runner.run_round(rounds.sum_source_demand, items, fleets.PREDICTING_RANKS))
        step_us = job.run.measured_step.step_time_us
        return tuple(compute_source_slowdown(one, step_us) for one in average_by_gpu(job.steps, demand_ns).tolist())

    def _predict_target(self, job: JobOnTargets, target: Target, source_slowdown: tuple[float, ...]) -> PredictedStep:
        run, steps, source, joined = job.run, job.steps, job.source, self.joined
        gpu = target.gpu.gpu
        common = TargetTimes(
            gpu,
            run.gpu,
            run.program.framework,
            calibration.build_tables(job.calibrations, gpu),
            source_slowdown=source_slowdown,
        )
        common = replace(common, job_errors=self._find_errors(common))
        collectives = retarget_to_target(run.program, source.cluster, target)
        times = [replace(common, collectives=_select(collectives, joined, place)) for place in joined.ranks]
        known, host = self.evidence.host, MEASURED_HOST
        if not common.is_same_gpu:
            host = compute_host_times(UNKNOWN, known, gpu, run.gpu)
        items = [RankTarget(*one, ((LIKELY, host.likely, LIKELY),)) for one in zip(joined.ranks, times, strict=True)]
        clock = BOOST_CLOCK
        if regulates_clock(gpu) and not common.is_same_gpu:
            clock = self._find_clock(run, steps, items, gpu)
            items = [one.change_times(slowdown=clock.slowdowns) for one in items]
        sums = self.runner.run_round(rounds.sum_times, items, fleets.PREDICTING_RANKS)
        repeats = pl.concat([one.repeats for one in sums])
        factors = compute_factors(repeats, find_known_bias(run.gpu, gpu))
        unknown = list_unknown_times(compute_ratio(repeats), is_same_gpu=common.is_same_gpu)
        items = [replace(one.change_times(factors=factors), unknown_times=unknown) for one in items]
        replays = TargetReplays(self.runner, joined, items, steps, run.program.step_scale)
        on_hosts = StepOnHosts(replays, host, gpu, run, None if common.is_same_gpu else known)
        replays.run(*on_hosts.list_likely_replays(is_same=common.is_same_gpu))
        steps_there = [replays.compute_median(one) for one in list_host_replays(host)]
        ends = [one.step_time_us for one in steps_there]
        cancels = all(one.keeps_measured for one in sums) and host.likely == 1
        error = 0.0 if cancels else abs(run.self_replay.error_pct) / 100
        ends_us = (min(ends) / (1 + error), max(ends) * (1 + error))
        found = on_hosts.describe(steps_there[0], self.evidence, is_same=common.is_same_gpu)
        return build_predicted_step(
            job, target, steps_there, ends_us, sums, replace(clock, kernels_us=_sum(sums)), found
        )

    def _find_errors(self, times: TargetTimes) -> tuple[StackErrors, ...] | None:
        """Find what the model misses of all ranks' kernels on their GPU; None if nothing is carried from there."""
        if times.source is None or times.is_same_gpu:
            return None
        key = times.gpu.slug if times.calibrations else ""
        if key not in self._errors:
            items = [RankTarget(place, times) for place in self.joined.ranks]
            cells = self.runner.run_round(job_errors.sort_errors, items, fleets.PREDICTING_RANKS)
            bounds = job_errors.bound_errors(cells)
            asked = [job_errors.BoundErrors(one, bounds) for one in items]
            between = pl.concat(self.runner.run_round(job_errors.select_errors, asked, fleets.PREDICTING_RANKS))
            self._errors[key] = job_errors.merge_errors(cells, bounds, between)
        return self._errors[key]

    def _find_clock(self, run: MeasuredRun, job: JobSteps, items: Sequence[RankTarget], gpu: Gpu) -> KeptClock:
        """Find the clock that the step keeps on the target."""
        (boost,) = self.runner.replay(self.joined, items)
        demand_ns = rounds.merge_gpus(self.runner.run_round(rounds.sum_demand, items, fleets.PREDICTING_RANKS))
        step_us = job.compute_median_step_us(boost.spans, run.program.step_scale)
        demands_us = average_by_gpu(job, demand_ns)
        slowdowns = tuple(max(compute_target_slowdown(one, step_us), 1.0) for one in demands_us.tolist())
        demand_w = compute_idle_w(gpu) + (gpu.tdp_w * float(demands_us.max()) / step_us if step_us else 0.0)
        return KeptClock(slowdowns, demand_w)


def _explain(error: ClusterError | LayoutError) -> ClusterError | LayoutError:
    """Return the error without options that a prediction rank by rank refuses."""
    message = error.catalogue_message
    if message.template is not CLUSTER_TOO_SMALL:
        return error
    return ClusterError(fleets.CLUSTER_TOO_SMALL_FOR_FLEET(**message.values))


def _sum(sums: Sequence[TimeSums]) -> tuple[float, float]:
    """Sum the kernels' time at both clocks."""
    boosted, held = (sum(one.clocked_us[which] for one in sums) for which in range(2))
    return boosted, held


def _select(collectives: pl.DataFrame | None, joined: JoinedFleet, place: PlacedRank) -> pl.DataFrame | None:
    """Select the collectives of one rank, numbered as its kernels."""
    if collectives is None:
        return None
    own = joined.tables.kernels.select("rank", pl.col("place").cast(pl.UInt32))
    rows = collectives.with_columns(own[collectives["row"]]).filter(pl.col("rank") == place.number)
    return rows.with_columns(row="place").drop("rank", "place")
