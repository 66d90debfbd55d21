"""Fit the intervals of predictions to the outcomes of earlier ones on this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import exp, expm1, log
from statistics import mean
from typing import TypeVar

from predictors import Gpu, list_gpus
from predictors.weights_file import shipped_sha256
from tracekit.format import format_interval
from tracekit.messages import Message
from tracekit.messages import predictions as told
from tracekit.parallelism.process_groups import is_training
from tracekit.prediction.model import Experience, PredictedStep
from tracekit.program import Program
from tracekit.scoreboard import Forecast, Scoreboard
from tracekit.scoreboard.interval_rule import compute_width_factor
from tracekit.scoreboard.law_offsets import CAPTURED, LawOffset, choose_factors, find_law_offsets
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
    offsets = find_offsets(board, gpu, source, kind)
    noted = (*prediction.notes, *_note_offsets(offsets, gpu), *board.warnings)
    known = replace(prediction, forecast=forecast, notes=noted)
    factor = compute_width_factor([one.score for one in outcomes])
    law_offsets = choose_factors(offsets)
    if not outcomes or factor == 1:
        return replace(known, experience=Experience(len(outcomes), 0, 1.0, law_offsets)) if offsets else known
    inside = sum(one.is_inside for one in outcomes)
    likely = forecast.likely_us
    low, high = (likely * exp(factor * log(end / likely)) for end in (forecast.low_us, forecast.high_us))
    mean = prediction.step.mean_us
    mean_low, mean_high = (
        mean * exp(factor * log(end / mean)) for end in (prediction.mean_low_us, prediction.mean_high_us)
    )
    write = told.INTERVAL_WIDENED if factor > 1 else told.INTERVAL_NARROWED
    shipped = [format_interval(forecast.low_us, forecast.high_us, likely)]
    return replace(
        known,
        low_us=low,
        high_us=high,
        mean_low_us=mean_low,
        mean_high_us=mean_high,
        experience=Experience(len(outcomes), inside, factor, law_offsets),
        notes=(*known.notes, write(shipped=shipped, outcomes=len(outcomes), inside=inside)),
    )


def find_offsets(board: Scoreboard, gpu: Gpu, source: Gpu | None, kind: str) -> tuple[LawOffset, ...]:
    """Find the offsets of a GPU's laws that outcomes tell, of those that help.

    There are none on the traced GPU, where nothing is predicted, and from a GPU that isn't known.

    Args:
        board: The outcomes.
        gpu: The target's GPU.
        source: The trace's GPU; None where it is unknown.
        kind: What :func:`classify_job` returns.
    """
    is_captured = kind.startswith(CAPTURED)
    if not board.outcomes or (not is_captured and (source is None or source.slug == gpu.slug)):
        return ()
    from_gpu = _name_gpu(source) if source else None
    found = find_law_offsets(board.outcomes, _name_gpu(gpu), from_gpu, kind, identify_weights())
    return tuple(one for one in found if one.helps)


def _note_offsets(offsets: Sequence[LawOffset], gpu: Gpu) -> Iterator[Message]:
    """Say which laws outcomes move, and what they were off before and after."""
    if offsets:
        yield told.LAW_OFFSETS(
            families=[f"{one.family} (x{exp(one.offset):.2f})" for one in offsets],
            jobs=max(one.jobs for one in offsets),
            gpu=gpu.slug,
            before_pct=100 * expm1(mean(one.error_before for one in offsets)),
            after_pct=100 * expm1(mean(one.error_after for one in offsets)),
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
