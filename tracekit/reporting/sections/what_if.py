"""Savings of what-if edits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tracekit.messages import Message
from tracekit.reporting.columns import Column
from tracekit.whatif import WhatIfResult


@dataclass(frozen=True, slots=True)
class EditSaving:
    """One edit, on top of those before it; the savings add up.

    Attributes:
        predicted_us: The same on each target, in the report's order of targets; ``None`` if it can't be predicted.
    """

    text: Annotated[str, Column("The edit as it was written.", "edit")]
    description: Annotated[Message, Column("What it did.")]
    touched: Annotated[int, Column("How many kernels, calls or edges of the graph it changed.")]
    saving_us: Annotated[
        float, Column("By how much it shortens the measured step; negative for one that costs.", "saves")
    ]
    step_time_us: Annotated[float, Column("The measured step with it and those before it.", "step")]
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
