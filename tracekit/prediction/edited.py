"""What a run with what-if edits would take on other GPUs."""

from collections.abc import Callable
from dataclasses import replace

from tracekit.comm import ClusterError
from tracekit.prediction.layout import LayoutError
from tracekit.prediction.model import Predictions
from tracekit.replay.run import Run
from tracekit.replay.whatif import WhatIf


def predict_edited(what_if: WhatIf, on_targets: Callable[[Run], Predictions]) -> Predictions:
    """The edited step on other GPUs.

    Args:
        what_if: The edits, which may be none.
        on_targets: Predicts a run: :func:`tracekit.prediction.predict` with the rest of its arguments.
    """
    if not what_if.edits:
        return on_targets(what_if.before)
    last = on_targets(what_if.run)
    steps = [*(_steps(edit.run, on_targets) for edit in what_if.edits[:-1]), _by_label(last)]
    return replace(
        last,
        run=replace(what_if.before, source=last.run.source),
        what_if=what_if,
        after_edits=tuple(tuple(step.get(label) for label in last) for step in steps),
    )


def _steps(run: Run, on_targets: Callable[[Run], Predictions]) -> dict[str, float]:
    """The step wherever it can be predicted, by the target's label."""
    try:
        return _by_label(on_targets(run))
    except (ClusterError, LayoutError):
        return {}


def _by_label(predicted: Predictions) -> dict[str, float]:
    return {target.label: target.step.step_time_us for target in predicted.targets}
