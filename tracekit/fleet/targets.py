"""Predict a job of many ranks on its targets, in rounds over its ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from predictors.stack_errors import StackErrors
from tracekit import calibration, scoreboard
from tracekit.comm import ClusterError
from tracekit.fleet import job_errors, rounds
from tracekit.fleet.job_facts import JobQuestion, describe_job
from tracekit.fleet.join import JoinedFleet, PlacedRank
from tracekit.fleet.kernel_times import TargetTimes, compute_factors, compute_ratio
from tracekit.fleet.options import FleetOptions
from tracekit.fleet.predicted_step import JobOnTargets, build_predicted_step
from tracekit.fleet.rounds import RankTarget
from tracekit.fleet.runner import FleetRunner
from tracekit.messages import fleets
from tracekit.parallelism.layout import LayoutError
from tracekit.prediction.batch import note_open_acceptance
from tracekit.prediction.collectives import retarget_to_target
from tracekit.prediction.model import PredictedStep, RefusedTarget, Target
from tracekit.prediction.predict_run import check_question, merge_refusals
from tracekit.prediction.predictor import find_layout_change
from tracekit.prediction.source_cluster import fill_source_gpu, identify_needed_cluster
from tracekit.prediction.sustained_clock import (
    average_by_gpu,
    compute_source_slowdown,
    compute_target_slowdown,
    regulates_clock,
)
from tracekit.prediction.target_host import MEASURED_HOST, SIMILAR_HOST, widen_for_stack
from tracekit.prediction.targets import assume_usual_links, resolve_prices, resolve_targets
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
    """

    runner: FleetRunner
    joined: JoinedFleet
    options: FleetOptions
    _errors: dict[str, tuple[StackErrors, ...]] = field(default_factory=dict)

    def predict(self, run: MeasuredRun, steps: JobSteps) -> tuple[JobOnTargets, tuple[PredictedStep, ...]]:
        """Predict the job on each target; those that it doesn't fit are among the warnings.

        Args:
            run: The measured job.
            steps: Its steps.

        Raises:
            TracekitError: As :func:`tracekit.prediction.predict`.
        """
        wanted = assume_usual_links(resolve_targets(self.options.gpus, self.options.clusters), run)
        job = self._describe_job(run, steps, wanted)
        slowdown = self._compute_source_slowdown(job)
        predicted, refused = [], []
        for target in wanted:
            try:
                find_layout_change(job.facts.layout, replace(target, layout=job.facts.layout), job.gpus_per_rank)
                predicted.append(self._predict_target(job, target, slowdown))
            except (ClusterError, LayoutError) as error:
                refused.append(RefusedTarget(target.label, error))
        if refused and not predicted:
            raise merge_refusals(refused)
        self.runner.warnings += [one.to_message() for one in refused]
        return job, tuple(predicted)

    def _describe_job(self, run: MeasuredRun, steps: JobSteps, wanted: Sequence[Target]) -> JobOnTargets:
        options = self.options
        source = identify_needed_cluster(run, options.source_cluster, options.clusters, wanted)
        run = fill_source_gpu(run, source)
        prices = resolve_prices(options.prices, run.gpu, source.shown, wanted)
        check_question(options.question, prices, wanted)
        self.runner.warnings += prices.doubts
        asked = JobQuestion(self.joined.ranks[0], run.program.framework, options.samples, options.accepted_tokens)
        (facts,) = self.runner.run_round(describe_job, [asked], fleets.PREDICTING_RANKS)
        self.runner.warnings += note_open_acceptance(facts.batch)
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
        host = MEASURED_HOST if common.is_same_gpu else widen_for_stack(SIMILAR_HOST, run.gpu, gpu)
        items = [RankTarget(*one, (host.likely,)) for one in zip(joined.ranks, times, strict=True)]
        if regulates_clock(gpu) and not common.is_same_gpu:
            items = self._hold_clock(run, steps, items)
        sums = self.runner.run_round(rounds.sum_times, items, fleets.PREDICTING_RANKS)
        repeats = pl.concat([one.repeats for one in sums])
        factors = compute_factors(repeats, find_known_bias(run.gpu, gpu))
        host_times = (host.likely, host.low, host.high)
        unknown = list_unknown_times(compute_ratio(repeats), is_same_gpu=common.is_same_gpu)
        items = [
            replace(one.change_times(factors=factors), host_times=host_times, unknown_times=unknown) for one in items
        ]
        replays = [steps.compute_median(one, run.program.step_scale) for one in self.runner.replay(joined, items)]
        ends = [one.step_time_us for one in replays]
        cancels = all(one.keeps_measured for one in sums) and host.likely == 1
        error = 0.0 if cancels else abs(run.self_replay.error_pct) / 100
        return build_predicted_step(job, target, replays, (min(ends) / (1 + error), max(ends) * (1 + error)), sums)

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

    def _hold_clock(self, run: MeasuredRun, job: JobSteps, items: Sequence[RankTarget]) -> list[RankTarget]:
        """Return the ranks at the clock that each GPU keeps on the target."""
        (boost,) = self.runner.replay(self.joined, items)
        demand_ns = rounds.merge_gpus(self.runner.run_round(rounds.sum_demand, items, fleets.PREDICTING_RANKS))
        step_us = job.compute_median_step_us(boost.spans, run.program.step_scale)
        demands_us = average_by_gpu(job, demand_ns)
        slowdown = tuple(max(compute_target_slowdown(one, step_us), 1.0) for one in demands_us.tolist())
        return [one.change_times(slowdown=slowdown) for one in items]


def _select(collectives: pl.DataFrame | None, joined: JoinedFleet, place: PlacedRank) -> pl.DataFrame | None:
    """Select the collectives of one rank, numbered as its kernels."""
    if collectives is None:
        return None
    own = joined.tables.kernels.select("rank", pl.col("place").cast(pl.UInt32))
    rows = collectives.with_columns(own[collectives["row"]]).filter(pl.col("rank") == place.number)
    return rows.with_columns(row="place").drop("rank", "place")
