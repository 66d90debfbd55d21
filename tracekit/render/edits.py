"""What-if edits in rows: what each saves, and the step that is left, here and on each target."""

from collections.abc import Iterator
from dataclasses import dataclass

from tracekit.reporting.model import Report
from tracekit.units import duration


@dataclass(frozen=True, slots=True)
class Row:
    """An edit, or all of them.

    Attributes:
        figures: What it saves, and the steps with it and those before it, as :func:`headings` names them.
        text: The edit as it was written; empty for all of them.
        told: What it did.
    """

    figures: tuple[str, ...]
    text: str
    told: str


def headings(report: Report) -> tuple[str, ...]:
    """What the figures of each row are."""
    return ("saves", "step", *(target.label for target in report.targets))


def rows(report: Report) -> Iterator[Row]:
    """The edits in order, and several of them together."""
    for edit in report.what_if:
        steps = tuple(_step(step_us) for step_us in (edit.step_time_us, *edit.predicted_us))
        yield Row((_signed(edit.saving_us), *steps), edit.text, edit.description)
    if len(report.what_if) > 1:
        yield Row((_signed(sum(edit.saving_us for edit in report.what_if)), *steps), "", "all together")


def _step(step_us: float | None) -> str:
    return "–" if step_us is None else duration(step_us)


def _signed(saving_us: float) -> str:
    return duration(saving_us) if saving_us >= 0 else f"−{duration(-saving_us)}"
