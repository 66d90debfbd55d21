"""What-if edits on a terminal."""

from rich.console import RenderableType
from rich.text import Text

from tracekit.render.grid import plain
from tracekit.reporting.model import Report
from tracekit.units import duration


def what_if(report: Report) -> RenderableType | None:
    """A row per edit: what it saves, the step that is left, here and on each target, and what it did."""
    if not report.what_if:
        return None
    table = plain()
    for heading in ("saves", "step", *(target.label for target in report.targets)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in report.what_if:
        told = Text.assemble((row.text, "bold"), f": {row.description}")
        table.add_row(_signed(row.saving_us), duration(row.step_time_us), *map(duration, row.predicted_us), told)
    if len(report.what_if) > 1:
        last = report.what_if[-1]
        whole = sum(row.saving_us for row in report.what_if)
        table.add_row(_signed(whole), duration(last.step_time_us), *map(duration, last.predicted_us), "all together")
    return table


def _signed(saving_us: float) -> str:
    return duration(saving_us) if saving_us >= 0 else f"−{duration(-saving_us)}"
