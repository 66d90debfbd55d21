"""Predict a job of many ranks."""

import tempfile
from collections.abc import Sequence
from uuid import uuid4

import numpy as np

from predictors import Resolution
from tracekit.engine import Engine
from tracekit.errors import TraceError
from tracekit.fleet.decide import decide
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
from tracekit.messages import ProgressCallback
from tracekit.messages.steps import STEP_TIME_ZERO
from tracekit.program import Program
from tracekit.replay.step_scale import StepScale
from tracekit.replay.step_time import JobSteps, StepTime
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
    source, doubt = identify_run_gpu(options.source_gpu, summaries[0].trace)
    runner.warnings += [*joined.notes, *([doubt] if doubt else [])]
    steps = JobSteps(joined.tables.steps, joined.tables.chosen_steps)
    measured, replayed = runner.replay(joined, [RankTarget(place) for place in joined.ranks])
    step = steps.compute_median(measured)
    if step.step_time_us <= 0:
        raise TraceError(STEP_TIME_ZERO(path=summaries[0].trace.source))
    runner.warnings += step.list_doubts()
    scale = StepScale(steps.measure_ns(measured.spans), steps.measure_ns(replayed.spans))
    run = _make_run(joined, source, (step, steps.compute_median(replayed)), scale, options.serving_engine)
    job, targets = FleetPredictor(runner, joined, options).predict(run, steps) if options.has_targets else (None, ())
    kernels = sum(one.kernel_count for one in summaries)
    summary, decision = decide(run, (kernels, joined.gpus_per_rank), job, targets, options.question)
    places = {one.label: place for place, one in enumerate(decision.targets)} if decision else {}
    return FleetReport(
        source=summary,
        decision=decision,
        trace=summaries[0].trace.source,
        gpu=summary.gpu,
        source_cluster=job.source.shown if job else None,
        ranks=len(joined.ranks),
        world_size=max(len(joined.ranks), *(one.trace.world_size for one in summaries)),
        kernels=kernels,
        step=step,
        replayed_us=run.self_replay.step_time_us,
        stragglers=tabulate_stragglers(run, measured, steps),
        links=measure_links(joined.collectives),
        steps=spread_steps(run, measured, steps),
        targets=tuple(sorted(targets, key=lambda one: places[one.label])),
        warnings=tuple(dict.fromkeys(runner.warnings)),
    )


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
