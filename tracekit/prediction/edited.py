"""What a run with what-if edits would take on other GPUs, beside what it would without."""

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
    before = on_targets(what_if.before)
    if not what_if.edits:
        return before
    after = on_targets(what_if.run)
    unedited = tuple(target for target in before.targets if target.label in set(after))
    return replace(before, targets=after.targets, what_if=what_if, unedited=unedited, refused=after.refused)
