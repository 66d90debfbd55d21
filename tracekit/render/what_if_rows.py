"""Table rows of what-if edits: the saving of each, and the resulting step time here and on each target."""

from collections.abc import Iterator
from dataclasses import dataclass

from tracekit.format import format_duration
from tracekit.reporting.model import Report


@dataclass(frozen=True, slots=True)
class EditRow:
    """Table row of one what-if edit, or of all of them together.

    Attributes:
        figures: The saving, then the step times with this edit and all earlier ones; :func:`list_headings` names them.
        text: The edit as the user wrote it; empty for the sum row.
        description: Effect of the edit.
    """

    figures: tuple[str, ...]
    text: str
    description: str


def list_headings(report: Report) -> tuple[str, ...]:
    """Return the headings of the figures in each row."""
    return ("saves", "step", *(target.label for target in report.targets))


def build_edit_rows(report: Report) -> Iterator[EditRow]:
    """Yield one row per edit in order, and a sum row if there are several."""
    for edit in report.what_if:
        steps = tuple(_format_step(step_us) for step_us in (edit.step_time_us, *edit.predicted_us))
        yield EditRow((_format_saving(edit.saving_us), *steps), edit.text, str(edit.description))
    if len(report.what_if) > 1:
        yield EditRow((_format_saving(sum(edit.saving_us for edit in report.what_if)), *steps), "", "all together")


def _format_step(step_us: float | None) -> str:
    return "–" if step_us is None else format_duration(step_us)


def _format_saving(saving_us: float) -> str:
    return format_duration(saving_us) if saving_us >= 0 else f"−{format_duration(-saving_us)}"
