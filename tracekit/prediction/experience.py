"""Fit the intervals of predictions to the outcomes of earlier ones on this machine."""

from dataclasses import replace
from functools import cache
from math import exp, log
from typing import TypeVar

from predictors import Gpu, list_gpus
from predictors.weights_file import shipped_sha256
from tracekit.format import format_interval
from tracekit.messages import predictions as told
from tracekit.parallelism.process_groups import is_training
from tracekit.prediction.model import Experience, PredictedStep
from tracekit.program import Program
from tracekit.scoreboard import Forecast, Scoreboard
from tracekit.scoreboard.interval_rule import compute_width_factor
from tracekit.scoreboard.outcome import CUSTOM_GPU
from tracekit.version import __version__

Step = TypeVar("Step", bound=PredictedStep)

BATCH_KINDS = ("prefill", "decode", "mixed")
DIGEST_CHARS = 16


def apply_scoreboard(prediction: Step, gpu: Gpu, source: Gpu | None, kind: str, board: Scoreboard) -> Step:
    """Return a prediction with its forecast, and the interval that the outcomes of such predictions support.

    Args:
        prediction: The prediction with the shipped interval.
        gpu: The target's GPU.
        source: The trace's GPU; None where it is unknown.
        kind: What :func:`classify_job` returns.
        board: The outcomes.
    """
    forecast = _make_forecast(prediction, gpu, source, kind)
    if forecast is None:
        return prediction
    outcomes = board.select(forecast.group, forecast.weights)
    known = replace(prediction, forecast=forecast, notes=(*prediction.notes, *board.warnings))
    factor = compute_width_factor([one.score for one in outcomes])
    if not outcomes or factor == 1:
        return known
    inside = sum(one.is_inside for one in outcomes)
    likely = forecast.likely_us
    low, high = (likely * exp(factor * log(end / likely)) for end in (forecast.low_us, forecast.high_us))
    mean = prediction.step.mean_us
    mean_low, mean_high = (
        mean * exp(factor * log(end / mean)) for end in (prediction.mean_low_us, prediction.mean_high_us)
    )
    write = told.INTERVAL_WIDENED if factor > 1 else told.INTERVAL_NARROWED
    shipped = [format_interval(forecast.low_us, forecast.high_us)]
    return replace(
        known,
        low_us=low,
        high_us=high,
        mean_low_us=mean_low,
        mean_high_us=mean_high,
        experience=Experience(len(outcomes), inside, factor),
        notes=(*known.notes, write(shipped=shipped, outcomes=len(outcomes), inside=inside)),
    )


def _make_forecast(prediction: PredictedStep, gpu: Gpu, source: Gpu | None, kind: str) -> Forecast | None:
    """Make what the scoreboard keeps of a prediction; None where no interval lies around a positive time."""
    low, likely, high = prediction.low_us, prediction.step.step_time_us, prediction.high_us
    if not 0 < low <= likely <= high:
        return None
    return Forecast(
        target=_name_gpu(gpu),
        gpus=prediction.ranks,
        source=_name_gpu(source) if source else None,
        kind=kind,
        low_us=low,
        likely_us=likely,
        high_us=high,
        version=__version__,
        weights=identify_weights(),
    )


@cache
def identify_weights() -> str:
    """Return what tells the weights in use from others: the beginning of their SHA-256."""
    return shipped_sha256()[:DIGEST_CHARS]


def classify_job(program: Program) -> str:
    """Return the kind of job: training, inference, or the kind of a serving engine's batches."""
    marked = program.chosen_steps["kind"].drop_nulls().unique().to_list()
    served = marked[0] if len(marked) == 1 and marked[0] in BATCH_KINDS else None
    kind = served or ("training" if is_training(program) else "inference")
    return f"captured {kind}" if program.is_captured else kind


def _name_gpu(gpu: Gpu) -> str:
    return gpu.slug if gpu.slug in list_gpus() else CUSTOM_GPU
