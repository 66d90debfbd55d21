"""The diagnosis of a trace, drawn."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from textwrap import indent

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.doctor import Check, Diagnosis, Status
from tracekit.render.dump import document

MARKS = {Status.OK: ("✓", "green"), Status.WARN: ("!", "bold yellow"), Status.FAIL: ("✗", "bold red")}
MEANINGS = {
    "A": "nothing is missing",
    "B": "good, with shortcomings",
    "C": "usable; one thing costs much",
    "D": "predictions rest on little",
}


def screen(diagnosis: Diagnosis) -> RenderableType:
    """Grade, checks, what would help most, and how to record again."""
    return Group(
        _line("trace", diagnosis.source),
        *_ranks(diagnosis),
        _line("grade", f"{diagnosis.grade}: {MEANINGS[diagnosis.grade]} ({_counts(diagnosis)})"),
        Text(),
        _checks(diagnosis.checks),
        *_best(diagnosis.best),
        *_snippet(diagnosis.snippet),
        *(Text(f"warning: {warning}", style="yellow") for warning in diagnosis.warnings),
    )


def as_json(diagnosis: Diagnosis) -> str:
    """The same for machines."""
    return document(dataclasses.asdict(diagnosis))


def _line(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<7}", "bold"), text)


def _ranks(diagnosis: Diagnosis) -> Iterator[Text]:
    if diagnosis.world_size > 1:
        yield _line("rank", f"{diagnosis.rank} of {diagnosis.world_size}; {diagnosis.ranks_read} read")


def _counts(diagnosis: Diagnosis) -> str:
    counts = Counter(check.status for check in diagnosis.checks)
    return f"{counts[Status.OK]} ok, {counts[Status.WARN]} warn, {counts[Status.FAIL]} fail"


def _checks(checks: tuple[Check, ...]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in checks:
        mark, style = MARKS[check.status]
        table.add_row(Text(mark, style=style), check.title, Group(*_findings(check)))
    return table


def _findings(check: Check) -> Iterator[Text]:
    yield Text(check.evidence)
    if check.status is Status.OK:
        return
    if check.cost:
        yield Text(check.cost, style="yellow")
    if check.fix:
        yield Text(f"→ {check.fix}", style="cyan")


def _best(best: Check | None) -> Iterator[RenderableType]:
    if best is not None:
        yield Text()
        yield Text.assemble(("would help most: ", "bold"), (best.fix, "cyan"))


def _snippet(code: str) -> Iterator[RenderableType]:
    if code:
        yield Text()
        yield Text("recording that predicts best", style="bold")
        yield Text(indent(code.rstrip(), "  "))
