"""Predict a job of many ranks."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import polars as pl

from tracekit.comm import Cluster
from tracekit.engine import Engine
from tracekit.errors import EngineError, TraceError
from tracekit.fleet.decide import decide
from tracekit.fleet.evidence import describe_job, examine_rank, join_evidence, list_questions
from tracekit.fleet.job import RankedJob
from tracekit.fleet.join import JoinedFleet, join_fleet
from tracekit.fleet.model import FleetReport
from tracekit.fleet.rank_files import NO_GRAPH, remove_files
from tracekit.fleet.rank_part import RankPlace
from tracekit.fleet.read_ranks import DEFAULT_READING, ReadingOptions, read_ranks
from tracekit.fleet.runner import FleetRunner
from tracekit.fleet.stragglers import measure_links, spread_steps, tabulate_stragglers
from tracekit.fleet.summary import RankSummary
from tracekit.inference_rules import select_rules
from tracekit.ingest import Inputs
from tracekit.messages import ProgressCallback, fleets
from tracekit.messages.traces import STEP_TIME_ZERO
from tracekit.prediction.cost import Prices
from tracekit.prediction.model import PredictedStep, Target
from tracekit.prediction.part import PartOnTarget
from tracekit.prediction.predict_run import check_question, predict_targets
from tracekit.prediction.rounds import merge_steps
from tracekit.prediction.settings import resolve_places, resolve_settings
from tracekit.prediction.source_cluster import SourceCluster
from tracekit.program import Program
from tracekit.replay.step_time import JobSteps, StepScale, StepTime, StepTimes, tabulate_steps
from tracekit.reporting.sections.warnings import build_job_warnings
from tracekit.run import (
    MeasuredRun,
    RunProvenance,
    RunResults,
    SelfReplay,
    identify_run_gpu,
    note_rules_off,
    parse_named_framework,
    warn_of_waits,
)

if TYPE_CHECKING:
    from tracekit.request.options import ExportRequest


def predict_fleet(
    inputs: Inputs,
    request: "ExportRequest",
    engine: Engine,
    progress: ProgressCallback = lambda stage: None,
    reading: ReadingOptions = DEFAULT_READING,
) -> FleetReport:
    """Predict a job of many ranks.

    Args:
        inputs: As for :func:`tracekit.ingest.load`.
        request: What is known of it, and the targets, of which there may be none.
        engine: Works on the ranks.
        progress: Called with what is being done, and for how many ranks it is.
        reading: How the ranks are read and kept.

    Raises:
        TraceError: No rank can be read, or two are of one rank.
        TracekitError: As :func:`tracekit.prediction.predict_run.predict`.
    """
    store = f"{reading.store or tempfile.gettempdir()}/tracekit-ranks-{uuid4().hex}"
    runner = FleetRunner(engine, progress)
    try:
        return _predict(read_ranks(inputs, request, runner, replace(reading, store=store)), request, runner)
    finally:
        _remove_store(engine, store)


def _remove_store(engine: Engine, store: str) -> None:
    """Remove the ranks' files where the workers are; what this process reaches, if they are lost."""
    try:
        engine.run_everywhere(remove_files, store)
    except EngineError:
        remove_files(store)


def _predict(summaries: Sequence[RankSummary], request: "ExportRequest", runner: FleetRunner) -> FleetReport:
    joined = join_fleet(summaries, request.step_range, select_rules(request.rules_off))
    job, measured, wanted, source = _measure(summaries, joined, request, runner)
    targets = _predict_targets(job, request, runner, wanted, source) if wanted else None
    run, steps = job.run, job.steps
    kernels = sum(one.kernel_count for one in summaries)
    found = targets or _Targets((), Prices({}), None)
    summary, decision = decide(job, kernels, found.prices, found.cluster, found.steps, request.question)
    places = {one.label: place for place, one in enumerate(decision.targets)} if decision else {}
    return FleetReport(
        source=summary,
        decision=decision,
        trace=summaries[0].trace.source,
        gpu=summary.gpu,
        source_cluster=found.cluster,
        ranks=len(joined.ranks),
        world_size=max(len(joined.ranks), *(one.trace.world_size for one in summaries)),
        kernels=kernels,
        step=run.measured_step,
        replayed_us=run.self_replay.step_time_us,
        stragglers=tabulate_stragglers(run, measured, steps),
        links=measure_links(joined.collectives),
        steps=spread_steps(run, measured, steps),
        targets=tuple(sorted(found.steps, key=lambda one: places[one.label])),
        warnings=tuple(dict.fromkeys((*runner.warnings, *build_job_warnings(run, job.evidence.job)))),
    )


def _measure(
    summaries: Sequence[RankSummary], joined: JoinedFleet, request: "ExportRequest", runner: FleetRunner
) -> tuple[RankedJob, StepTimes, tuple[Target, ...], SourceCluster]:
    """Measure the job, and ask all ranks what they tell of it.

    Returns:
        The job, the times of its steps as recorded, its targets, and where it was recorded.
    """
    steps = JobSteps(joined.tables.steps, joined.tables.chosen_steps)
    framework = parse_named_framework(request.framework)
    places = [RankPlace(one, framework, request.accepted_tokens) for one in joined.ranks]
    unmeasured = _make_run(joined, request, framework)
    job = RankedJob(runner, joined, places, unmeasured, steps)
    timed = job.replay([PartOnTarget(place) for place in places])
    measured, replayed = (merge_steps([one.steps[which] for one in timed]) for which in range(2))
    step, again = steps.compute_median(measured), steps.compute_median(replayed)
    if step.step_time_us <= 0:
        raise TraceError(STEP_TIME_ZERO(path=summaries[0].trace.source))
    scale = StepScale(steps.measure_ns(measured.spans), steps.measure_ns(replayed.spans))
    run, wanted, source = resolve_places(request, _fill_results(unmeasured, step, again, scale))
    found = runner.run_round(examine_rank, list_questions(places, run.gpu, request), fleets.EXAMINING_RANKS)
    evidence = join_evidence(joined, steps, found, _tabulate_job_steps(steps, measured))
    kept = replace(run.self_replay, kept_wait_us=evidence.kept_us)
    run = replace(run, results=replace(run.results, self_replay=kept))
    steady = tabulate_steps(joined.tables.steps, steps, measured).drop_nulls("time_ns")
    job.learn(run, evidence, steady.join(joined.tables.chosen_steps.select("step").unique(), on="step", how="semi"))
    return job, measured, wanted, source


@dataclass(frozen=True, slots=True)
class _Targets:
    """The predictions, the prices, and the cluster of the traces; None if it is unknown."""

    steps: tuple[PredictedStep, ...]
    prices: Prices
    cluster: Cluster | None


def _predict_targets(
    job: RankedJob,
    request: "ExportRequest",
    runner: FleetRunner,
    wanted: Sequence[Target],
    source: SourceCluster,
) -> _Targets:
    """Predict the job on its targets; those that it doesn't fit are among the warnings."""
    run = job.run
    settings = resolve_settings(request, run, source, wanted)
    edited = job.edit(request.edits) if request.edits else job
    if request.edits:
        (facts,) = runner.run_round(
            describe_job, list_questions(edited.places[:1], run.gpu, request), fleets.EDITING_RANKS
        )
        edited.describe(facts)
    predictor = settings.make_predictor(edited, job)
    check_question(request.question, settings.prices, wanted, predictor)
    runner.warnings += settings.prices.doubts
    steps, refused = predict_targets(predictor, wanted, request.layout, runner.progress)
    runner.warnings += [one.to_message() for one in refused]
    return _Targets(steps, settings.prices, source.shown)


def _tabulate_job_steps(steps: JobSteps, measured: StepTimes) -> pl.DataFrame:
    """Tabulate ``step`` and ``time_ns`` of the job's steps that have times."""
    time_ns, known = steps.merge_ranks(measured.spans)
    return pl.DataFrame({"step": steps.numbers, "time_ns": time_ns}).filter(pl.Series(known))


def _make_run(joined: JoinedFleet, request: "ExportRequest", framework: tuple[str, str | None] | None) -> MeasuredRun:
    """Make the run of a job, of whose kernels only the collectives are here, before its steps are measured."""
    ranks = tuple(one.summary.trace for one in joined.ranks)
    program = Program(
        tables=joined.tables,
        graph=NO_GRAPH,
        collectives=joined.collectives,
        ranks=ranks,
        step_scale=StepScale(np.empty(0), np.empty(0)),
        kernel_factor=np.ones(joined.tables.kernels.height),
        framework=framework,
        accepted_tokens=request.accepted_tokens,
    )
    source, doubt = identify_run_gpu(request.source_gpu, ranks[0])
    off = select_rules(request.rules_off)
    notes = (*joined.notes, *warn_of_waits(joined.tables.chosen_steps))
    nothing = StepTime(0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0)
    return MeasuredRun(
        program,
        RunProvenance(len(ranks), notes, source, doubt, assumptions=note_rules_off(off)),
        RunResults(nothing, SelfReplay(0.0, 0.0, 0.0, 0.0, 0.0)),
    )


def _fill_results(run: MeasuredRun, measured: StepTime, replayed: StepTime, scale: StepScale) -> MeasuredRun:
    """Return the run with its steps as measured and replayed."""
    error_pct = 100 * (replayed.step_time_us / measured.step_time_us - 1)
    doubts = (*run.provenance.job_warnings, *measured.list_doubts())
    return replace(
        run,
        program=replace(run.program, step_scale=scale),
        provenance=replace(run.provenance, job_warnings=doubts),
        results=RunResults(measured, SelfReplay(replayed.step_time_us, replayed.span_us, error_pct, 0.0, 0.0)),
    )
