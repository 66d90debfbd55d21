"""Predict a job of many ranks."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import numpy as np
import polars as pl

from tracekit.engine import Engine
from tracekit.errors import TraceError
from tracekit.fleet.decide import decide
from tracekit.fleet.evidence import examine_rank, join_evidence, list_questions
from tracekit.fleet.join import JoinedFleet, join_fleet
from tracekit.fleet.links import measure_links
from tracekit.fleet.model import FleetReport
from tracekit.fleet.options import FleetOptions
from tracekit.fleet.rank_files import NO_GRAPH, remove_files
from tracekit.fleet.rank_tables import spread_steps, tabulate_stragglers
from tracekit.fleet.read_ranks import read_ranks
from tracekit.fleet.rounds import RankTarget
from tracekit.fleet.runner import FleetRunner
from tracekit.fleet.summary import RankSummary
from tracekit.fleet.targets import FleetPredictor
from tracekit.ingest import Inputs
from tracekit.messages import ProgressCallback, fleets
from tracekit.messages.requests import RULES_OFF
from tracekit.messages.traces import STEP_TIME_ZERO
from tracekit.prediction.source_cluster import fill_source_gpu, identify_needed_cluster
from tracekit.prediction.targets import assume_usual_links, resolve_targets
from tracekit.program import Program
from tracekit.replay.step_time import JobSteps, StepScale, StepTime, StepTimes
from tracekit.reporting.sections.warnings import build_job_warnings
from tracekit.run import MeasuredRun, RunProvenance, RunResults, SelfReplay, identify_run_gpu


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
    runner = FleetRunner(engine, progress)
    try:
        return _predict(read_ranks(inputs, options, runner, store), options, runner)
    finally:
        engine.run_everywhere(remove_files, store)


def _predict(summaries: Sequence[RankSummary], options: FleetOptions, runner: FleetRunner) -> FleetReport:
    joined = join_fleet(summaries, options.steps, options.without)
    steps = JobSteps(joined.tables.steps, joined.tables.chosen_steps)
    measured, replayed = runner.replay(joined, [RankTarget(place) for place in joined.ranks])
    step = steps.compute_median(measured)
    if step.step_time_us <= 0:
        raise TraceError(STEP_TIME_ZERO(path=summaries[0].trace.source))
    scale = StepScale(steps.measure_ns(measured.spans), steps.measure_ns(replayed.spans))
    run = _make_run(joined, options, (step, steps.compute_median(replayed)), scale)
    wanted = resolve_targets(options.gpus, options.clusters) if options.has_targets else ()
    wanted = assume_usual_links(wanted, run)
    source = identify_needed_cluster(run, options.source_cluster, options.clusters, wanted)
    run = fill_source_gpu(run, source)
    questions = list_questions(joined, run.gpu, options)
    found = runner.run_round(examine_rank, questions, fleets.EXAMINING_RANKS)
    evidence = join_evidence(joined, steps, found, _tabulate_job_steps(steps, measured))
    run = _keep_waits(run, evidence.kept_us)
    predictor = FleetPredictor(runner, joined, options, evidence)
    job, targets = predictor.predict(run, steps, source, wanted) if options.has_targets else (None, ())
    kernels = sum(one.kernel_count for one in summaries)
    counts = (kernels, joined.gpus_per_rank)
    summary, decision = decide(run, counts, evidence, job, targets, options.question)
    places = {one.label: place for place, one in enumerate(decision.targets)} if decision else {}
    return FleetReport(
        source=summary,
        decision=decision,
        trace=summaries[0].trace.source,
        gpu=summary.gpu,
        source_cluster=source.shown if job else None,
        ranks=len(joined.ranks),
        world_size=max(len(joined.ranks), *(one.trace.world_size for one in summaries)),
        kernels=kernels,
        step=step,
        replayed_us=run.self_replay.step_time_us,
        stragglers=tabulate_stragglers(run, measured, steps),
        links=measure_links(joined.collectives),
        steps=spread_steps(run, measured, steps),
        targets=tuple(sorted(targets, key=lambda one: places[one.label])),
        warnings=tuple(dict.fromkeys((*runner.warnings, *build_job_warnings(run, evidence.job)))),
    )


def _tabulate_job_steps(steps: JobSteps, measured: StepTimes) -> pl.DataFrame:
    """Tabulate ``step`` and ``time_ns`` of the job's steps that have times."""
    time_ns, known = steps.merge_ranks(measured.spans)
    return pl.DataFrame({"step": steps.numbers, "time_ns": time_ns}).filter(pl.Series(known))


def _keep_waits(run: MeasuredRun, kept_us: float) -> MeasuredRun:
    """Return the run with the waiting of its collectives that is kept as measured."""
    replayed = replace(run.self_replay, kept_wait_us=kept_us)
    return replace(run, results=replace(run.results, self_replay=replayed))


def _make_run(
    joined: JoinedFleet, options: FleetOptions, steps: tuple[StepTime, StepTime], scale: StepScale
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
        framework=options.serving_engine,
    )
    source, doubt = identify_run_gpu(options.source_gpu, ranks[0])
    error_pct = 100 * (replayed.step_time_us / measured.step_time_us - 1)
    return MeasuredRun(
        program,
        RunProvenance(
            len(ranks),
            (*joined.notes, *measured.list_doubts()),
            source,
            doubt,
            assumptions=(RULES_OFF(rules=sorted(options.without)),) if options.without else (),
        ),
        RunResults(measured, SelfReplay(replayed.step_time_us, replayed.span_us, error_pct, 0.0, 0.0)),
    )
