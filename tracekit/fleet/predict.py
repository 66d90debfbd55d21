"""Predict a job of many ranks, in rounds over its ranks."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TypeVar
from uuid import uuid4

import numpy as np
import polars as pl

from predictors import Resolution, resolve_gpu
from predictors.kernel_identity import parse_framework
from predictors.stack_errors import StackErrors
from tracekit import calibration, scoreboard
from tracekit.analysis.stragglers import find_stragglers
from tracekit.arrays import Floats
from tracekit.comm import ClusterError
from tracekit.engine import Engine
from tracekit.errors import TraceError
from tracekit.fleet import job_errors, rounds
from tracekit.fleet.decide import decide
from tracekit.fleet.job_facts import JobQuestion, describe_job
from tracekit.fleet.join import JoinedFleet, PlacedRank, find_repeats, join_fleet
from tracekit.fleet.kernel_times import TargetTimes, compute_factors
from tracekit.fleet.links import measure_links
from tracekit.fleet.model import FleetReport
from tracekit.fleet.predicted_step import JobOnTargets, build_predicted_step
from tracekit.fleet.rank_files import NO_GRAPH, remove_files
from tracekit.fleet.rounds import RankTarget
from tracekit.fleet.summary import RankSummary, RankTask, UnreadableRank, summarize_rank
from tracekit.index_distribution import IndexPattern
from tracekit.ingest import Inputs
from tracekit.ingest import memory as sizes
from tracekit.ingest import ranks as places
from tracekit.ingest.source import ExpandedInputs, TraceSource, expand_inputs
from tracekit.messages import Message, ProgressCallback, Template, fleets
from tracekit.messages.steps import STEP_TIME_ZERO
from tracekit.model_config import read_model_config
from tracekit.parallelism.layout import LayoutError
from tracekit.prediction.collectives import retarget_collectives
from tracekit.prediction.cost import NO_PRICES, GivenPrices
from tracekit.prediction.model import PredictedStep, RefusedTarget, Target
from tracekit.prediction.predict_run import check_question, merge_refusals
from tracekit.prediction.predictor import find_layout_change
from tracekit.prediction.question import FASTEST, Question
from tracekit.prediction.source_cluster import SourceCluster, fill_source_gpu, identify_source_cluster
from tracekit.prediction.sustained_clock import compute_source_slowdown, compute_target_slowdown, regulates_clock
from tracekit.prediction.target_host import MEASURED_HOST, SIMILAR_HOST
from tracekit.prediction.targets import resolve_prices, resolve_targets
from tracekit.prediction.track_record import find_known_bias
from tracekit.program import Program
from tracekit.replay.compressed import CompressedJob
from tracekit.replay.step_scale import StepScale
from tracekit.replay.step_time import JobSteps, StepTime, StepTimes
from tracekit.rules import NO_RULES, RuleNames
from tracekit.run import MeasuredRun, RunProvenance, RunResults, SelfReplay, identify_run_gpu

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_NAMED = 5
"""Unreadable ranks that are named; of further ones the number is."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """What is known of a job of many ranks, and where it is predicted.

    Attributes:
        gpus: Names of target GPUs.
        clusters: Names of target clusters.
        source_gpu: The GPU of the traces, if they don't name it or name it wrongly.
        source_cluster: Where they were recorded; None for the usual nodes of their GPU.
        steps: The steps to measure, ``"7"`` or ``"7:9"``; all by default.
        without: Inference rules that are off.
        model_config: The ``config.json`` of the model that a serving engine ran.
        framework: The serving engine that ran it.
        indices: How rows of embedding tables are looked up.
        prices: Dollars for an hour of one GPU.
        samples: Samples that a rank processes in a measured step; None to infer them from the trace.
        question: What is to be decided between the targets.
        calibrated: Use the calibrations stored on this machine.
        scored: Fit intervals to the outcomes kept on this machine.
        cache: Use the cache of decoded traces.
        memory: Memory limit of one rank's tables, such as ``"2G"``.
        store: Folder that all workers reach, for the ranks' tables; each worker's own disk by default.
    """

    gpus: Sequence[str] = ()
    clusters: Sequence[str] = ()
    source_gpu: str | None = None
    source_cluster: str | None = None
    steps: str | None = None
    without: RuleNames = NO_RULES
    model_config: str | None = None
    framework: str | None = None
    indices: IndexPattern | None = None
    prices: GivenPrices = NO_PRICES
    samples: float | None = None
    question: Question = FASTEST
    calibrated: bool = True
    scored: bool = True
    cache: bool = False
    memory: str | int | None = None
    store: str | None = None


def predict_fleet(
    inputs: Inputs, options: FleetOptions, engine: Engine, progress: ProgressCallback = lambda stage: None
) -> FleetReport:
    """Predict a job of many ranks.

    Args:
        inputs: As for :func:`tracekit.ingest.load`.
        options: What is known of it, and the targets, of which there may be none.
        engine: Works on the ranks.
        progress: Called with what is being done, and for how many ranks it is.

    Raises:
        TraceError: No rank can be read, or two are of one rank.
        TracekitError: As :func:`tracekit.prediction.predict`.
    """
    store = f"{options.store or tempfile.gettempdir()}/tracekit-ranks-{uuid4().hex}"
    fleet = _Fleet(options, engine, progress)
    try:
        return fleet.predict(inputs, store)
    finally:
        engine.run_everywhere(remove_files, store)


@dataclass
class _Fleet:
    """One prediction of one job."""

    options: FleetOptions
    engine: Engine
    progress: ProgressCallback
    warnings: list[Message] = field(default_factory=list)
    _errors: dict[str, tuple[StackErrors, ...]] = field(default_factory=dict)

    def predict(self, inputs: Inputs, store: str) -> FleetReport:
        summaries = self._summarize(inputs, store)
        joined = join_fleet(summaries, self.options.steps, self.options.without)
        self.warnings += joined.notes
        source, doubt = identify_run_gpu(self.options.source_gpu, summaries[0].trace)
        self.warnings += [doubt] if doubt else []
        job = JobSteps(joined.tables.steps, joined.tables.chosen_steps)
        measured, replayed = self._replay(joined, [RankTarget(place) for place in joined.ranks])
        step = job.compute_median(measured)
        if step.step_time_us <= 0:
            raise TraceError(STEP_TIME_ZERO(path=summaries[0].trace.source))
        self.warnings += step.list_doubts()
        scale = StepScale(job.measure_ns(measured.spans), job.measure_ns(replayed.spans))
        run = _make_run(joined, source, (step, job.compute_median(replayed)), scale, _parse_framework(self.options))
        on_targets: JobOnTargets | None = None
        targets: tuple[PredictedStep, ...] = ()
        if self.options.gpus or self.options.clusters:
            demand_ns = self._sum_source_demand(joined, source)
            on_targets, targets = self._predict_targets(joined, run, job, demand_ns)
        kernels = sum(one.kernel_count for one in summaries)
        summary, decision = decide(run, kernels, on_targets, targets, self.options.question)
        places = {one.label: place for place, one in enumerate(decision.targets)} if decision else {}
        return FleetReport(
            source=summary,
            decision=decision,
            trace=summaries[0].trace.source,
            gpu=summary.gpu,
            source_cluster=on_targets.source.cluster if on_targets else None,
            ranks=len(joined.ranks),
            world_size=max(len(joined.ranks), *(one.trace.world_size for one in summaries)),
            kernels=kernels,
            step=step,
            replayed_us=run.self_replay.step_time_us,
            stragglers=_tabulate_stragglers(run, measured, job),
            links=measure_links(joined.collectives),
            steps=_spread_steps(run, measured, job),
            targets=tuple(sorted(targets, key=lambda one: places[one.label])),
            warnings=tuple(dict.fromkeys(self.warnings)),
        )

    def _run_round(self, function: Callable[[Item], Result], items: Sequence[Item], stage: Template) -> list[Result]:
        self.progress(stage(done=0, ranks=len(items)))
        return self.engine.map(function, items, lambda done: self.progress(stage(done=done, ranks=len(items))))

    def _summarize(self, inputs: Inputs, store: str) -> list[RankSummary]:
        given = expand_inputs(inputs)
        model = read_model_config(self.options.model_config) if self.options.model_config else None
        gpu = resolve_gpu(self.options.source_gpu).gpu if self.options.source_gpu else None
        memory_bytes = self.engine.share_memory(sizes.parse_memory_size(self.options.memory))
        tasks = [
            RankTask(
                source=source,
                given=_select_companions(given, source),
                folder=f"{store}/{place}",
                without=self.options.without,
                model=model,
                indices=self.options.indices,
                gpu=gpu,
                cache=self.options.cache,
                memory_bytes=memory_bytes,
            )
            for place, source in enumerate(given.traces)
        ]
        found = self._run_round(summarize_rank, tasks, fleets.READING_RANKS)
        summaries = [one for one in found if isinstance(one, RankSummary)]
        unreadable = [one for one in found if isinstance(one, UnreadableRank)]
        if not summaries:
            raise unreadable[0].error
        if unreadable:
            self.warnings.append(_name_unreadable(unreadable, len(found)))
        again = [one.task for one in find_repeats(summaries)]
        if again:
            by_source = {one.task.source.name: one for one in summaries}
            repeated = self._run_round(summarize_rank, again, fleets.READING_RANKS)
            by_source |= {one.task.source.name: one for one in repeated if isinstance(one, RankSummary)}
            summaries = list(by_source.values())
        trace = places.combine_ranks([one.trace for one in summaries])
        self.warnings += [
            *given.doubts,
            *trace.warnings,
            *(fault for one in summaries[:1] for fault in one.time_faults),
        ]
        order = {rank.source: place for place, rank in enumerate(trace.ranks)}
        return sorted(summaries, key=lambda one: order[one.trace.source])

    def _replay(self, joined: JoinedFleet, items: Sequence[RankTarget]) -> list[StepTimes]:
        """Replay the job; return the times of all steps in each replay, as recorded first if they are measured."""
        compressed = self._run_round(rounds.compress, items, fleets.LINKING_RANKS)
        waits, arrivals = ([getattr(one, name) for one in joined.ranks] for name in ("rendezvous", "arrivals"))
        job = CompressedJob(compressed, waits, arrivals, joined.rendezvous)
        if job.dropped:
            self.warnings.append(fleets.RENDEZVOUS_DROPPED(collectives=job.dropped))
        met = [job.replay(which) for which in range(len(compressed[0].lag_ns))]
        bound = [rounds.BoundRank(item, tuple(one[own] for one in met)) for item, own in zip(items, waits, strict=True)]
        each = self._run_round(rounds.time_steps, bound, fleets.REPLAYING_RANKS)
        return [rounds.merge_steps(list(one)) for one in zip(*each, strict=True)]

    def _sum_source_demand(self, joined: JoinedFleet, source: Resolution | None) -> Floats | None:
        """Sum over each step what the kernels demanded of the board; None where its clock isn't regulated."""
        if source is None or not regulates_clock(source.gpu) or not (self.options.gpus or self.options.clusters):
            return None
        times = TargetTimes(source.gpu, source.gpu, _parse_framework(self.options), {})
        items = [RankTarget(place, times) for place in joined.ranks]
        return np.concatenate(self._run_round(rounds.sum_source_demand, items, fleets.PREDICTING_RANKS))

    def _predict_targets(
        self, joined: JoinedFleet, run: MeasuredRun, steps: JobSteps, demand_ns: Floats | None
    ) -> tuple[JobOnTargets, tuple[PredictedStep, ...]]:
        options, wanted = self.options, resolve_targets(self.options.gpus, self.options.clusters)
        known = bool(options.clusters) or options.source_cluster is not None
        source = identify_source_cluster(run, options.source_cluster) if known else SourceCluster(None)
        run = fill_source_gpu(run, source)
        prices = resolve_prices(options.prices, run.gpu, source.cluster, wanted)
        check_question(options.question, prices, wanted)
        self.warnings += prices.doubts
        asked = JobQuestion(joined.ranks[0], run.program.framework, options.samples)
        (facts,) = self._run_round(describe_job, [asked], fleets.PREDICTING_RANKS)
        job = JobOnTargets(
            run,
            steps,
            source,
            facts,
            prices,
            calibration.load_all() if options.calibrated else (),
            scoreboard.load() if options.scored else scoreboard.Scoreboard(),
        )
        if options.question.whole_run:
            options.question.whole_run.count_steps(facts.batch)
        slowdown = 1.0
        if demand_ns is not None:
            demand_us = steps.compute_median_sum_us(demand_ns)
            slowdown = compute_source_slowdown(demand_us, run.measured_step.step_time_us)
        predicted, refused = [], []
        for target in wanted:
            try:
                find_layout_change(facts.layout, replace(target, layout=facts.layout))
                predicted.append(self._predict_target(joined, job, target, slowdown))
            except (ClusterError, LayoutError) as error:
                refused.append(RefusedTarget(target.label, error))
        if refused and not predicted:
            raise merge_refusals(refused)
        self.warnings += [one.to_message() for one in refused]
        return job, tuple(predicted)

    def _predict_target(
        self, joined: JoinedFleet, job: JobOnTargets, target: Target, source_slowdown: float
    ) -> PredictedStep:
        run, steps, source = job.run, job.steps, job.source
        gpu = target.gpu.gpu
        common = TargetTimes(
            gpu,
            run.gpu,
            run.program.framework,
            calibration.build_tables(job.calibrations, gpu),
            source_slowdown=source_slowdown,
        )
        common = replace(common, job_errors=self._find_errors(joined, common))
        cluster = target.cluster
        collectives = retarget_collectives(run.program, source.cluster, cluster) if cluster else None
        times = [replace(common, collectives=_select(collectives, joined, place)) for place in joined.ranks]
        host = MEASURED_HOST if common.is_same_gpu else SIMILAR_HOST
        items = [RankTarget(*one, (host.likely,)) for one in zip(joined.ranks, times, strict=True)]
        if regulates_clock(gpu) and not common.is_same_gpu:
            items = self._hold_clock(joined, run, steps, items)
        sums = self._run_round(rounds.sum_times, items, fleets.PREDICTING_RANKS)
        factors = compute_factors(pl.concat([one.repeats for one in sums]), find_known_bias(run.gpu, gpu))
        items = [
            replace(one.change_times(factors=factors), host_times=(host.likely, host.low, host.high)) for one in items
        ]
        step, low, high = (steps.compute_median(one, run.program.step_scale) for one in self._replay(joined, items))
        ends = [one.step_time_us for one in (step, low, high)]
        cancels = all(one.keeps_measured for one in sums) and host.likely == 1
        error = 0.0 if cancels else abs(run.self_replay.error_pct) / 100
        return build_predicted_step(job, target, step, (min(ends) / (1 + error), max(ends) * (1 + error)), sums)

    def _find_errors(self, joined: JoinedFleet, times: TargetTimes) -> tuple[StackErrors, ...] | None:
        """Find what the model misses of all ranks' kernels on their GPU; None if nothing is carried from there."""
        if times.source is None or times.is_same_gpu:
            return None
        key = times.gpu.slug if times.calibrations else ""
        if key not in self._errors:
            items = [RankTarget(place, times) for place in joined.ranks]
            cells = self._run_round(job_errors.sort_errors, items, fleets.PREDICTING_RANKS)
            bounds = job_errors.bound_errors(cells)
            asked = [job_errors.BoundErrors(one, bounds) for one in items]
            between = pl.concat(self._run_round(job_errors.select_errors, asked, fleets.PREDICTING_RANKS))
            self._errors[key] = job_errors.merge_errors(cells, bounds, between)
        return self._errors[key]

    def _hold_clock(
        self, joined: JoinedFleet, run: MeasuredRun, job: JobSteps, items: Sequence[RankTarget]
    ) -> list[RankTarget]:
        """Return the ranks at the clock that the step keeps on the target."""
        (boost,) = self._replay(joined, items)
        demand = np.concatenate(self._run_round(rounds.sum_demand, items, fleets.PREDICTING_RANKS))
        step_us = job.compute_median_step_us(boost.spans, run.program.step_scale)
        slowdown = max(compute_target_slowdown(job.compute_median_sum_us(demand), step_us), 1.0)
        return [one.change_times(slowdown=slowdown) for one in items]


def _make_run(
    joined: JoinedFleet,
    source: Resolution | None,
    steps: tuple[StepTime, StepTime],
    scale: StepScale,
    framework: tuple[str, str | None] | None,
) -> MeasuredRun:
    """Make the run of a job, of whose kernels only the collectives are here; ``steps`` as measured and replayed."""
    measured, replayed = steps
    ranks = tuple(one.summary.trace for one in joined.ranks)
    program = Program(
        tables=joined.tables,
        graph=NO_GRAPH,
        collectives=joined.collectives,
        ranks=ranks,
        step_scale=scale,
        kernel_factor=np.ones(joined.tables.kernels.height),
        framework=framework,
    )
    error_pct = 100 * (replayed.step_time_us / measured.step_time_us - 1)
    return MeasuredRun(
        program,
        RunProvenance(len(ranks), (), source, None),
        RunResults(measured, SelfReplay(replayed.step_time_us, replayed.span_us, error_pct, 0.0, 0.0)),
    )


def _select_companions(given: ExpandedInputs, source: TraceSource) -> ExpandedInputs:
    """Select what was given beside the traces that may be of one of them, so that tasks stay small."""
    rank = places.parse_rank_from_name(source.name)
    told = [(one, places.parse_rank_from_name(one.name)) for one in given.execution_traces]
    own = [one for one, other in told if rank is None or other in (rank, None)]
    return given._replace(traces=[], execution_traces=own, others=[])


def _parse_framework(options: FleetOptions) -> tuple[str, str | None] | None:
    return parse_framework(options.framework) if options.framework else None


def _select(collectives: pl.DataFrame | None, joined: JoinedFleet, place: PlacedRank) -> pl.DataFrame | None:
    """Select the collectives of one rank, numbered as its kernels."""
    if collectives is None:
        return None
    own = joined.tables.kernels.select("rank", pl.col("place").cast(pl.UInt32))
    rows = collectives.with_columns(own[collectives["row"]]).filter(pl.col("rank") == place.number)
    return rows.with_columns(row="place").drop("rank", "place")


def _name_unreadable(unreadable: Sequence[UnreadableRank], files: int) -> Message:
    names = [PurePath(one.source).name for one in unreadable]
    shown = (*names[:MAX_NAMED], *([f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else ()))
    return fleets.RANKS_UNREADABLE(
        ranks=len(unreadable), files=files, names=shown, reason=unreadable[0].error.catalogue_message
    )


def _tabulate_stragglers(run: MeasuredRun, steps: StepTimes, job: JobSteps) -> pl.DataFrame:
    """Tabulate the ranks as :func:`find_stragglers` does, with how long each is busy without waiting."""
    table = find_stragglers(run.program)
    own = pl.DataFrame(
        {
            "rank": run.program.steps["rank"],
            "busy_us": (steps.busy_ns - steps.waiting_ns) / 1e3,
            "chosen": job.is_chosen,
        }
    )
    busy = own.filter("chosen").group_by("rank").agg(pl.col("busy_us").mean())
    return table.drop("busy_us").join(busy, on="rank", how="left", maintain_order="left")


def _spread_steps(run: MeasuredRun, steps: StepTimes, job: JobSteps) -> pl.DataFrame:
    """Tabulate each step: quantiles over the ranks of the time without waiting for others, and the slowest rank."""
    spans = steps.spans
    own_us = (spans.end_ns - spans.previous_end_ns - steps.waiting_ns) / 1e3
    table = run.program.steps.select("rank", "step").with_columns(
        own_us=own_us, known=spans.has_duration, chosen=job.is_chosen
    )
    own = pl.col("own_us")
    return (
        table.filter("known", "chosen")
        .group_by("step", maintain_order=True)
        .agg(
            least_us=own.min(),
            median_us=own.median(),
            p95_us=own.quantile(0.95),
            most_us=own.max(),
            slowest=pl.col("rank").get(own.arg_max()),
        )
    )
