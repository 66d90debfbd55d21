"""Render the diagnosis of a trace."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from textwrap import indent

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.doctor import Check, Diagnosis, Status
from tracekit.render.dump import dump_document

STATUS_MARKS = {Status.OK: ("✓", "green"), Status.WARN: ("!", "bold yellow"), Status.FAIL: ("✗", "bold red")}
GRADE_MEANINGS = {
    "A": "nothing is missing",
    "B": "good, with shortcomings",
    "C": "usable; one thing costs much",
    "D": "predictions rest on little",
}


def render_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    """Render the grade, the checks, the most useful fix, and how to record a better trace."""
    return Group(
        _render_line("trace", diagnosis.source),
        *_render_ranks(diagnosis),
        _render_line("grade", f"{diagnosis.grade}: {GRADE_MEANINGS[diagnosis.grade]} ({_count_statuses(diagnosis)})"),
        Text(),
        _render_checks(diagnosis.checks),
        *_render_best_fix(diagnosis.best),
        *_render_snippet(diagnosis.snippet),
        *(Text(f"warning: {warning}", style="yellow") for warning in diagnosis.warnings),
    )


def as_json(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as JSON."""
    return dump_document(dataclasses.asdict(diagnosis))


def _render_line(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<7}", "bold"), text)


def _render_ranks(diagnosis: Diagnosis) -> Iterator[Text]:
    if diagnosis.world_size > 1:
        yield _render_line("rank", f"{diagnosis.rank} of {diagnosis.world_size}; {diagnosis.ranks_read} read")


def _count_statuses(diagnosis: Diagnosis) -> str:
    counts = Counter(check.status for check in diagnosis.checks)
    return f"{counts[Status.OK]} ok, {counts[Status.WARN]} warn, {counts[Status.FAIL]} fail"


def _render_checks(checks: tuple[Check, ...]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in checks:
        mark, style = STATUS_MARKS[check.status]
        table.add_row(Text(mark, style=style), check.title, Group(*_render_check_details(check)))
    return table


def _render_check_details(check: Check) -> Iterator[Text]:
    yield Text(check.evidence)
    if check.status is Status.OK:
        return
    if check.cost:
        yield Text(check.cost, style="yellow")
    if check.fix:
        yield Text(f"→ {check.fix}", style="cyan")


def _render_best_fix(best: Check | None) -> Iterator[RenderableType]:
    if best is not None:
        yield Text()
        yield Text.assemble(("would help most: ", "bold"), (best.fix, "cyan"))


def _render_snippet(code: str) -> Iterator[RenderableType]:
    if code:
        yield Text()
        yield Text("recording that predicts best", style="bold")
        yield Text(indent(code.rstrip(), "  "))
