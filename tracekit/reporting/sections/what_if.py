"""What edits of the program or the machine would save."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracekit.prediction import Prediction
from tracekit.replay.whatif import WhatIf, step_time_us


@dataclass(frozen=True, slots=True)
class EditSaving:
    """One edit, on top of those before it; the savings add up.

    Attributes:
        text: The edit as it was written.
        description: What it did.
        touched: How many kernels, calls or edges of the graph it changed.
        saving_us: By how much it shortens the measured step; negative for one that costs.
        step_time_us: The measured step with it and those before.
        predicted_us: The same on each target, in the report's order of targets.
    """

    text: str
    description: str
    touched: int
    saving_us: float
    step_time_us: float
    predicted_us: tuple[float, ...]


def build(what_if: WhatIf | None, before: Sequence[Prediction]) -> tuple[EditSaving, ...]:
    """The edits in order.

    Args:
        what_if: The edits; ``None`` for none.
        before: Predictions without them.
    """
    return tuple(_savings(what_if, before)) if what_if else ()


def _savings(what_if: WhatIf, before: Sequence[Prediction]) -> Iterator[EditSaving]:
    kernels = [target.kernels["time_us"].to_numpy() for target in before]
    for edit in what_if.edits:
        yield EditSaving(
            text=edit.text,
            description=edit.description,
            touched=edit.touched,
            saving_us=edit.saving_us,
            step_time_us=edit.step_time_us,
            predicted_us=tuple(step_time_us(edit.run, times) for times in kernels),
        )
