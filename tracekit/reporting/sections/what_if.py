"""What edits of the program or the machine would save."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.replay.whatif import WhatIf


@dataclass(frozen=True, slots=True)
class EditSaving:
    """One edit, on top of those before it; the savings add up.

    Attributes:
        text: The edit as it was written.
        description: What it did.
        touched: How many kernels, calls or edges of the graph it changed.
        saving_us: By how much it shortens the measured step; negative for one that costs.
        step_time_us: The measured step with it and those before.
        predicted_us: The same on each target, in the report's order of targets; ``None`` where it can't be predicted.
    """

    text: str
    description: str
    touched: int
    saving_us: float
    step_time_us: float
    predicted_us: tuple[float | None, ...]


def build(what_if: WhatIf | None, after_edits: Sequence[Sequence[float | None]]) -> tuple[EditSaving, ...]:
    """The edits in order.

    Args:
        what_if: The edits; ``None`` for none.
        after_edits: For each of them the steps on the targets; empty without predictions.
    """
    if what_if is None:
        return ()
    predicted = after_edits or [()] * len(what_if.edits)
    return tuple(
        EditSaving(
            text=edit.text,
            description=edit.description,
            touched=edit.touched,
            saving_us=edit.saving_us,
            step_time_us=edit.step_time_us,
            predicted_us=tuple(steps),
        )
        for edit, steps in zip(what_if.edits, predicted, strict=True)
    )
