"""Predict the step of a job on GPUs and clusters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tracekit import calibration, scoreboard
from tracekit.comm import ClusterError
from tracekit.errors import RequestError, TracekitError
from tracekit.messages import Message, ProgressCallback, layouts
from tracekit.messages import requests as messages
from tracekit.messages.requests import PREDICTING_TARGET
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest, apply_request
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.prediction.batch import infer_job_batch, separate_batches
from tracekit.prediction.cost import Prices
from tracekit.prediction.critical_batch import note_critical_batch
from tracekit.prediction.job import WholeJob
from tracekit.prediction.largest_batch import propose_layouts, resolve_largest_batch
from tracekit.prediction.model import PredictedStep, Prediction, Predictions, RefusedTarget, Target
from tracekit.prediction.predictor import Predictor
from tracekit.prediction.question import Question
from tracekit.prediction.settings import PredictionSettings, resolve_places, resolve_settings
from tracekit.prediction.targets import assume_usual_links, resolve_targets
from tracekit.prediction.unlike_gpus import predict_target
from tracekit.program import Program
from tracekit.run import MeasuredRun
from tracekit.whatif import apply_edits

if TYPE_CHECKING:
    from tracekit.request.options import ExportRequest


def predict(run: MeasuredRun, request: "ExportRequest", progress: ProgressCallback = lambda stage: None) -> Predictions:
    """Predict the step of a measured run on each of a request's targets.

    The step time is the median of the predicted steps. Each is its own measured time, times the ratio of what it takes
    in two replays of the same graph, with the target's kernel times and with the measured ones; so the source GPU gives
    the measurement back, and a step that was slow for a reason of its own changes nothing.

    Args:
        run: The measured run.
        request: The targets, the edits, and the layout, in which the edited program runs.
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
    change, edits, question = request.layout, request.edits, request.question
    what_if = apply_edits(run.program, edits)
    run, wanted, source = resolve_places(request, run)
    settings = resolve_settings(request, run, source, wanted)

    def make_predictor(run: MeasuredRun, program: Program) -> Predictor:
        layout = infer_layout_if_needed(program, change)
        job = WholeJob(run, program, layout, infer_job_batch(program, layout, request.samples))
        return settings.make_predictor(job, job.as_traced())

    def predict_batches(of_kind: MeasuredRun) -> tuple[Prediction, ...]:
        program = apply_edits(of_kind.program, edits).program
        return _keep_kernels(predict_targets(make_predictor(of_kind, program), wanted, change)[0])

    predictor = make_predictor(run, what_if.program)
    check_question(question, settings.prices, wanted, predictor)
    predicted, refused = predict_targets(predictor, wanted, change, progress)
    if question.critical_batch and predictor.job.batch:
        assumed = note_critical_batch(question.critical_batch, predictor.job.batch.unit)
        predicted = tuple(replace(one, notes=(*one.notes, assumed)) for one in predicted)
    make_predictor_of_run = partial(make_predictor, run)
    before = [_predict_step_times(make_predictor_of_run, edit.program, wanted, change) for edit in what_if.edits[:-1]]
    steps = [*before, _get_step_times(predicted)] if what_if.edits else []
    return Predictions(
        run,
        _keep_kernels(predicted),
        what_if=what_if if what_if.edits else None,
        step_times_after_edits=tuple(tuple(step.get(one.label) for one in predicted) for step in steps),
        prices=settings.prices,
        cluster=source.shown,
        question=question,
        batch=predictor.job.batch,
        refused=refused,
        other_batches={
            kind: predict_batches(of_kind) for kind, of_kind in separate_batches(run).items() if of_kind is not run
        },
    )


def predict_on_gpus(
    run: MeasuredRun, gpus: Sequence[str], *, calibrated: bool = True, scored: bool = True
) -> tuple[Prediction, ...]:
    """Predict the step of a measured run on GPUs alone, of which nothing else is asked.

    Args:
        run: The measured run.
        gpus: Names, in any spelling.
        calibrated: Use the calibrations stored on this machine.
        scored: Fit intervals to the outcomes kept on this machine.
    """
    layout = infer_layout_if_needed(run.program, LayoutRequest())
    job = WholeJob(run, run.program, layout, infer_job_batch(run.program, layout, None))
    settings = PredictionSettings(
        calibrations=tuple(calibration.load_all()) if calibrated else (),
        scoreboard=scoreboard.load() if scored else scoreboard.Scoreboard(),
    )
    wanted = assume_usual_links(resolve_targets(gpus), run)
    return _keep_kernels(predict_targets(settings.make_predictor(job, job), wanted, LayoutRequest())[0])


def check_question(question: Question, prices: Prices, wanted: Sequence[Target], predictor: Predictor) -> None:
    """Check that a question can be answered: targets have prices, and a step has its units.

    Raises:
        RequestError: It can't.
    """
    if question.needs_prices and not any(prices.find(one.gpu.gpu, one.cluster) is not None for one in wanted):
        raise RequestError(messages.RANK_BY_WITHOUT_PRICE(ranked_by=str(question.rank_by)))
    if question.whole_run:
        question.whole_run.count_steps(predictor.job.batch)
    if question.critical_batch and predictor.job.batch is None:
        raise RequestError(messages.CRITICAL_BATCH_WITHOUT_UNITS())


def predict_targets(
    predictor: Predictor,
    wanted: Sequence[Target],
    change: LayoutRequest,
    progress: ProgressCallback = lambda stage: None,
) -> tuple[tuple[PredictedStep, ...], tuple[RefusedTarget, ...]]:
    """Predict the step on each target in the requested layout; return the predictions, and the targets without one.

    Raises:
        ClusterError: All targets fail with it.
        LayoutError: The job can't be laid out in this way on any of them.
    """
    traced = predictor.job.layout
    layout = apply_request(traced, change) if traced else None
    predicted, refused = [], []
    for number, target in enumerate(wanted, 1):
        progress(PREDICTING_TARGET(target=target.label, number=number, targets=len(wanted)))
        try:
            laid_out = replace(target, layout=_fill_cluster(predictor, target, layout, change))
            chosen, note = resolve_largest_batch(predictor, laid_out)
            step = predict_target(predictor, chosen)
            told = [*([note] if note else []), *_propose_if_too_large(predictor, chosen, step)]
            predicted.append(replace(step, notes=(*told, *step.notes)) if told else step)
        except (ClusterError, LayoutError) as error:
            refused.append(RefusedTarget(target.label, error))
    if refused and not predicted:
        raise _merge_refusals(refused)
    return tuple(predicted), tuple(refused)


def _propose_if_too_large(predictor: Predictor, target: Target, step: PredictedStep) -> Iterator[Message]:
    """Say which layouts of a program's training would fit on a cluster, where the predicted one doesn't."""
    facts = predictor.job.program.trace.capture_facts
    if step.memory.fits is False and target.cluster is not None and facts and facts.trains and not facts.tables:
        yield propose_layouts(predictor, target)


def _fill_cluster(predictor: Predictor, target: Target, layout: Layout | None, change: LayoutRequest) -> Layout | None:
    """Return the layout on a target: a configured recommender takes all GPUs of a cluster, unless told otherwise."""
    facts = predictor.job.program.trace.capture_facts
    if (
        layout is None
        or target.cluster is None
        or not (facts and facts.tables)
        or replace(change, plan=None).has_changes
    ):
        return layout
    return replace(layout, dp=target.cluster.gpus)


def _keep_kernels(predicted: Sequence[PredictedStep]) -> tuple[Prediction, ...]:
    """Return the predictions of a job in memory, all of which have their kernels."""
    return tuple(one for one in predicted if isinstance(one, Prediction))


def _predict_step_times(
    make_predictor: Callable[[Program], Predictor], program: Program, wanted: Sequence[Target], change: LayoutRequest
) -> dict[str, float]:
    """Predict the step time by target label, where it can be predicted."""
    try:
        return _get_step_times(predict_targets(make_predictor(program), wanted, change)[0])
    except (ClusterError, LayoutError):
        return {}


def _get_step_times(predicted: Sequence[PredictedStep]) -> dict[str, float]:
    return {one.label: one.step.step_time_us for one in predicted}


def _merge_refusals(refused: Sequence[RefusedTarget]) -> TracekitError:
    """Merge the errors of several targets into one."""
    first = refused[0].error
    if len({str(one.error) for one in refused}) == 1:
        return first
    reasons = [layouts.TARGET_REFUSED(target=one.label, reason=one.error.catalogue_message) for one in refused]
    return type(first)(layouts.NO_TARGET_PREDICTED(reasons=reasons))
