"""What a run with what-if edits would take on other GPUs."""

from collections.abc import Callable
from dataclasses import replace

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
    each = [on_targets(edit.run) for edit in what_if.edits]
    last = each[-1]
    steps = [{target.label: target.step.step_time_us for target in one.targets} for one in each]
    return replace(
        last,
        run=replace(what_if.before, source=last.run.source),
        what_if=what_if,
        after_edits=tuple(tuple(step.get(label) for label in last) for step in steps),
    )
