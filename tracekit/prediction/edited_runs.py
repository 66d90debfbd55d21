"""Predict a run with what-if edits on other GPUs."""

from collections.abc import Callable
from dataclasses import replace

from tracekit.comm import ClusterError
from tracekit.parallelism.layout import LayoutError
from tracekit.prediction.model import Predictions
from tracekit.run import MeasuredRun
from tracekit.whatif import WhatIfResult


def predict_edited(what_if: WhatIfResult, on_targets: Callable[[MeasuredRun], Predictions]) -> Predictions:
    """Predict the edited step on other GPUs.

    Args:
        what_if: The edits; there may be none.
        on_targets: Predicts a run: :func:`tracekit.prediction.predict` with the rest of its arguments.
    """
    if not what_if.edits:
        return on_targets(what_if.original_run)
    last = on_targets(what_if.run)
    steps = [*(_predict_step_times(edit.run, on_targets) for edit in what_if.edits[:-1]), _get_step_times(last)]
    return replace(
        last,
        run=what_if.original_run.replace_source(last.run.source),
        what_if=what_if,
        step_times_after_edits=tuple(tuple(step.get(label) for label in last) for step in steps),
    )


def _predict_step_times(run: MeasuredRun, on_targets: Callable[[MeasuredRun], Predictions]) -> dict[str, float]:
    """Predict the step time by target label, where it can be predicted."""
    try:
        return _get_step_times(on_targets(run))
    except (ClusterError, LayoutError):
        return {}


def _get_step_times(predicted: Predictions) -> dict[str, float]:
    return {target.label: target.step.step_time_us for target in predicted.targets}
