"""Render the diagnosis of a trace."""

from collections import Counter
from collections.abc import Iterator
from textwrap import indent

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.doctor import Check, Diagnosis, Status
from tracekit.render.json import dump_document
from tracekit.render.screen import make_facts_table
from tracekit.reporting.plain import to_builtins

STATUS_MARKS = {Status.OK: ("✓", "green"), Status.WARN: ("!", "bold yellow"), Status.FAIL: ("✗", "bold red")}
GRADE_MEANINGS = {
    "A": "nothing is missing",
    "B": "good, with shortcomings",
    "C": "usable; what is missing costs much",
    "D": "predictions rest on little",
}


def render_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    """Render the grade, the checks, the most useful fix, and how to record a better trace."""
    return Group(
        make_facts_table(
            ("trace", diagnosis.source),
            *_describe_ranks(diagnosis),
            ("grade", f"{diagnosis.grade}: {GRADE_MEANINGS[diagnosis.grade]} ({_count_statuses(diagnosis)})"),
            label_chars=len("grade") + 1,
        ),
        Text(),
        _render_checks(diagnosis.checks),
        *_render_best_fix(diagnosis.best),
        *_render_snippet(diagnosis.snippet),
        *(Text(f"warning: {warning}", style="yellow") for warning in diagnosis.warnings),
    )


def as_json(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as JSON."""
    return dump_document(to_builtins(diagnosis))


def _describe_ranks(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    if diagnosis.world_size > 1:
        several = diagnosis.ranks_examined
        checked = f"all {several} that were read are checked" if several > 1 else f"{diagnosis.rank} is checked"
        yield ("ranks", f"{checked}; {diagnosis.ranks_read} of {diagnosis.world_size} read")


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
    yield Text(check.evidence.render_text())
    if check.status is Status.OK:
        return
    if check.cost:
        yield Text(str(check.cost), style="yellow")
    if check.fix:
        yield Text(f"→ {check.fix}", style="cyan")


def _render_best_fix(best: Check | None) -> Iterator[RenderableType]:
    if best is not None:
        yield Text()
        yield Text.assemble(("would help most: ", "bold"), (str(best.fix), "cyan"))


def _render_snippet(code: str) -> Iterator[RenderableType]:
    if code:
        yield Text()
        yield Text("recording that predicts best", style="bold")
        yield Text(indent(code.rstrip(), "  "))
