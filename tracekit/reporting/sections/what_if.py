"""Savings of what-if edits."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.messages import Message
from tracekit.whatif import WhatIfResult


@dataclass(frozen=True, slots=True)
class EditSaving:
    """One edit, on top of those before it; the savings add up.

    Attributes:
        text: The edit as the user wrote it.
        description: What changed.
        touched: Number of kernels, calls or edges it changed.
        saving_us: Time it saves in the measured step; negative if the step becomes longer.
        step_time_us: The measured step with this edit and those before it.
        predicted_us: The same on each target, in the report's order of targets; ``None`` if it can't be predicted.
    """

    text: str
    description: Message
    touched: int
    saving_us: float
    step_time_us: float
    predicted_us: tuple[float | None, ...]


def build_edit_savings(
    what_if: WhatIfResult | None, after_edits: Sequence[Sequence[float | None]]
) -> tuple[EditSaving, ...]:
    """Build the savings of the edits in order.

    Args:
        what_if: The edits; ``None`` for none.
        after_edits: For each edit, the steps on the targets; empty without predictions.
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
