"""Predict the step of a measured run, with what-if edits, on GPUs and clusters."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tracekit import calibration, scoreboard
from tracekit.comm import ClusterError
from tracekit.errors import RequestError, TracekitError
from tracekit.messages import ProgressCallback, layouts
from tracekit.messages import requests as messages
from tracekit.messages.requests import PREDICTING_TARGET
from tracekit.parallelism.layout import LayoutError, LayoutRequest, apply_request
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.prediction.batch import infer_job_batch
from tracekit.prediction.batch_kinds import separate_batches
from tracekit.prediction.cost import NO_PRICES, GivenPrices, Prices
from tracekit.prediction.fixed_clock import parse_clock, parse_source_clock
from tracekit.prediction.model import Prediction, Predictions, RefusedTarget, Target
from tracekit.prediction.power_cap import parse_power_cap
from tracekit.prediction.predictor import Predictor
from tracekit.prediction.question import FASTEST, Question
from tracekit.prediction.source_cluster import fill_source_gpu, identify_needed_cluster
from tracekit.prediction.sustained_clock import SustainedClock
from tracekit.prediction.target_host import UNKNOWN, parse_host
from tracekit.prediction.targets import assume_usual_links, resolve_prices, resolve_targets
from tracekit.program import Program
from tracekit.run import MeasuredRun
from tracekit.whatif import apply_edits

UNCHANGED_LAYOUT = LayoutRequest()


def predict(
    run: MeasuredRun,
    gpus: Sequence[str],
    *,
    clusters: Sequence[str] = (),
    source_cluster: str | None = None,
    change: LayoutRequest = UNCHANGED_LAYOUT,
    edits: Sequence[str] = (),
    prices: GivenPrices = NO_PRICES,
    samples: float | None = None,
    calibrated: bool = True,
    scored: bool = True,
    host: str | float = UNKNOWN,
    power_cap: str | float | None = None,
    clock: str | float | None = None,
    source_clock: str | float | None = None,
    question: Question = FASTEST,
    progress: ProgressCallback = lambda stage: None,
) -> Predictions:
    """Predict the step of a measured run on each of some GPUs and clusters.

    The step time is the median of the predicted steps. Each is its own measured time, times the ratio of what it takes
    in two replays of the same graph, with the target's kernel times and with the measured ones; so the source GPU gives
    the measurement back, and a step that was slow for a reason of its own changes nothing.

    Args:
        run: The measured run.
        gpus: Names, in any spelling.
        clusters: Names of clusters, for whose links collectives are predicted too.
        source_cluster: Where the trace was recorded; None for the usual nodes of its GPU.
        change: The requested layout.
        edits: What-if edits of the program, applied in order before the layout.
        prices: Dollars for an hour of one GPU.
        samples: Samples that a rank processes in a measured step; None to infer them from the trace.
        calibrated: Use the calibrations stored on this machine.
        scored: Fit intervals to the outcomes kept on this machine.
        host: Host to predict for: ``unknown``, ``same``, ``typical``, or a multiple of the reference host's speed.
        power_cap: Power limit of each target's GPUs, in watts or as ``500W``; None for their own.
        clock: Clock that each target's GPUs are held at, in MHz or as ``1200MHz``; None for their own.
        source_clock: Mean clock of the trace's GPU while it was recorded; None where the trace has to tell.
        question: What is to be decided.
        progress: Called with each target as its prediction begins.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A cluster is unknown, its name wrong, or the job fits on none of them.
        LayoutError: The job can't be laid out in this way on any of them.
        CalibrationError: A calibration can't be read.
        RequestError: A price is no price, the host, the power limit or a clock none, or one too low for its GPU; or the
            trace doesn't tell what a step has of the question's units.
        WhatIfError: An edit finds nothing to change.
    """
    what_if = apply_edits(run.program, edits)
    wanted = assume_usual_links(resolve_targets(gpus, clusters), run)
    source = identify_needed_cluster(run, source_cluster, clusters, wanted)
    run = fill_source_gpu(run, source)
    calibrations = calibration.load_all() if calibrated else ()
    board = scoreboard.load() if scored else scoreboard.Scoreboard()
    dollars = resolve_prices(prices, run.gpu, source.shown, wanted)
    check_question(question, dollars, wanted)

    def make_predictor(run: MeasuredRun, program: Program) -> Predictor:
        layout = infer_layout_if_needed(program, change)
        batch = infer_job_batch(program, layout, samples)
        return Predictor(
            run,
            program,
            source,
            layout,
            batch,
            dollars,
            calibrations,
            SustainedClock(run, parse_source_clock(source_clock, run.gpu)),
            host=parse_host(host),
            power_cap_w=parse_power_cap(power_cap),
            clock_mhz=parse_clock(clock),
            scoreboard=board,
        )

    def predict_batches(of_kind: MeasuredRun) -> tuple[Prediction, ...]:
        program = apply_edits(of_kind.program, edits).program
        return _predict_targets(make_predictor(of_kind, program), wanted, change)[0]

    predictor = make_predictor(run, what_if.program)
    if question.whole_run:
        question.whole_run.count_steps(predictor.batch)
    predicted, refused = _predict_targets(predictor, wanted, change, progress)
    make_predictor_of_run = partial(make_predictor, run)
    before = [_predict_step_times(make_predictor_of_run, edit.program, wanted, change) for edit in what_if.edits[:-1]]
    steps = [*before, _get_step_times(predicted)] if what_if.edits else []
    return Predictions(
        run,
        predicted,
        what_if=what_if if what_if.edits else None,
        step_times_after_edits=tuple(tuple(step.get(one.label) for one in predicted) for step in steps),
        prices=dollars,
        cluster=source.shown,
        question=question,
        batch=predictor.batch,
        refused=refused,
        other_batches={
            kind: predict_batches(of_kind) for kind, of_kind in separate_batches(run).items() if of_kind is not run
        },
    )


def check_question(question: Question, prices: Prices, wanted: Sequence[Target]) -> None:
    """Check that a target has a price where targets are ranked by what they cost.

    Raises:
        RequestError: None has.
    """
    if question.rank_by.needs_prices and not any(prices.find(one.gpu.gpu, one.cluster) is not None for one in wanted):
        raise RequestError(messages.RANK_BY_WITHOUT_PRICE(ranked_by=question.rank_by.value))


def _predict_targets(
    predictor: Predictor,
    wanted: Sequence[Target],
    change: LayoutRequest,
    progress: ProgressCallback = lambda stage: None,
) -> tuple[tuple[Prediction, ...], tuple[RefusedTarget, ...]]:
    """Predict the step on each target in the requested layout; return the predictions, and the targets without one.

    Raises:
        ClusterError: All targets fail with it.
        LayoutError: The job can't be laid out in this way on any of them.
    """
    layout = apply_request(predictor.layout, change) if predictor.layout else None
    predicted, refused = [], []
    for number, target in enumerate(wanted, 1):
        progress(PREDICTING_TARGET(target=target.label, number=number, targets=len(wanted)))
        try:
            predicted.append(predictor.predict(replace(target, layout=layout)))
        except (ClusterError, LayoutError) as error:
            refused.append(RefusedTarget(target.label, error))
    if refused and not predicted:
        raise merge_refusals(refused)
    return tuple(predicted), tuple(refused)


def _predict_step_times(
    make_predictor: Callable[[Program], Predictor], program: Program, wanted: Sequence[Target], change: LayoutRequest
) -> dict[str, float]:
    """Predict the step time by target label, where it can be predicted."""
    try:
        return _get_step_times(_predict_targets(make_predictor(program), wanted, change)[0])
    except (ClusterError, LayoutError):
        return {}


def _get_step_times(predicted: Sequence[Prediction]) -> dict[str, float]:
    return {one.label: one.step.step_time_us for one in predicted}


def merge_refusals(refused: Sequence[RefusedTarget]) -> TracekitError:
    """Merge the errors of several targets into one."""
    first = refused[0].error
    if len({str(one.error) for one in refused}) == 1:
        return first
    reasons = [layouts.TARGET_REFUSED(target=one.label, reason=one.error.catalogue_message) for one in refused]
    return type(first)(layouts.NO_TARGET_PREDICTED(reasons=reasons))
