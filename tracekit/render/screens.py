"""Screens and JSON of the commands that answer about traces: doctor, scoreboard, redact and explain."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import exp, expm1
from pathlib import Path
from textwrap import indent

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from tracekit.doctor import Check, Diagnosis, Status
from tracekit.escape import to_line
from tracekit.format import format_interval
from tracekit.messages import predictions as told
from tracekit.packaged import Explanation, Page
from tracekit.redact import RedactionSummary
from tracekit.render.json import dump_document
from tracekit.render.markdown import format_table
from tracekit.render.screen import Screen, make_facts_table, make_grid
from tracekit.reporting.plain import to_builtins
from tracekit.scoreboard.law_offsets import LawSummary
from tracekit.scoreboard.outcome import Outcome
from tracekit.scoreboard.summary import GroupSummary
from tracekit.version import __version__

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


HEADINGS = ("GPU", "kind", "outcomes", "inside", "median error", "worst", "interval")
OUTCOME_HEADINGS = ("GPU", "GPUs", "traced on", "kind", "predicted", "measured", "error", "tracekit", "weights", "date")
EXPLANATION = (
    "Inside: of the 90 % interval. Errors: of the predicted step, + too slow. Interval: what later ones are widened or "
    "narrowed to, as a power; --no-scoreboard leaves that out."
)


LAW_HEADINGS = ("GPU", "from", "law", "jobs", "factor", "off before", "off after", "used")
LAW_EXPLANATION = (
    "Laws: what kept jobs tell of kernels of a family, and a job's mean error without and with what the others tell; "
    "used where no job is worse for it."
)


def render_scoreboard(rows: Sequence[GroupSummary], file: Path, laws: Sequence[LawSummary] = ()) -> Screen:
    """Render how predictions came out, by GPU and kind of job, what they tell of laws, and where the outcomes lie."""
    if not rows:
        return Screen(tables=[Text(told.SCOREBOARD_EMPTY().render())], notes=[str(file)])
    table = make_grid(*((heading, "word" if place < 2 else "number") for place, heading in enumerate(HEADINGS)))
    for row in rows:
        table.add_row(*_format_row(row))
    if not laws:
        return Screen(tables=[table], notes=[EXPLANATION, str(file)])
    offsets = make_grid(*((heading, "word" if place < 3 else "number") for place, heading in enumerate(LAW_HEADINGS)))
    for law in laws:
        offsets.add_row(*_format_law(law))
    return Screen(tables=[table, offsets], notes=[EXPLANATION, LAW_EXPLANATION, str(file)])


def serialize_scoreboard(
    rows: Sequence[GroupSummary], outcomes: Sequence[Outcome], laws: Sequence[LawSummary] = ()
) -> str:
    """Return the scoreboard as JSON: the summary of each group, what is told of laws, and all outcomes."""
    return dump_document({"groups": rows, "laws": laws, "outcomes": outcomes})


def _format_law(row: LawSummary) -> tuple[str, ...]:
    law = row.law
    errors = (f"{100 * expm1(error):.1f} %" for error in (law.error_before, law.error_after))
    used = "yes" if law.helps else "no"
    return (row.target, row.source or "unknown", law.family, str(law.jobs), f"{exp(law.offset):.3f}", *errors, used)


def render_markdown(rows: Sequence[GroupSummary], outcomes: Sequence[Outcome], laws: Sequence[LawSummary] = ()) -> str:
    """Return the scoreboard as Markdown that can be pasted into an issue."""
    lines = [
        f"Outcomes of predictions, tracekit {__version__}. {EXPLANATION}",
        "",
        *format_table(HEADINGS, [_format_row(row) for row in rows]),
        "",
        *((LAW_EXPLANATION, "", *format_table(LAW_HEADINGS, [*map(_format_law, laws)]), "") if laws else ()),
        *format_table(OUTCOME_HEADINGS, [_format_outcome(one) for one in outcomes]),
    ]
    return "\n".join(lines) + "\n"


def _format_row(row: GroupSummary) -> tuple[str, ...]:
    where = ", traced there" if row.is_same_gpu else ""
    several = ", several GPUs" if row.is_on_several else ""
    return (
        row.target,
        f"{row.kind}{several}{where}",
        str(row.outcomes),
        str(row.inside),
        f"{row.median_error_pct:+.1f} %",
        f"{row.worst_error_pct:+.1f} %",
        f"{row.factor:.2f}",
    )


def _format_outcome(one: Outcome) -> tuple[str, ...]:
    return (
        one.target,
        str(one.gpus),
        one.source or "–",
        one.kind,
        f"{one.likely_us:.0f} µs ({format_interval(one.low_us, one.high_us, one.likely_us)})",
        f"{one.measured_us:.0f} µs",
        f"{one.error_pct:+.1f} %",
        one.version,
        one.weights,
        one.date,
    )


def render_removed(what: RedactionSummary, path: str) -> Screen:
    """Render the removed items with their counts, and the path of the redacted copy."""
    lines = (*(f"removed {line}" for line in _describe_removed(what)), f"Wrote {path}")
    hint = "Names of ops, kernels and annotations are kept otherwise: look through them before you share it."
    return Screen(tables=[Text(to_line(line)) for line in lines], notes=[hint])


def _describe_removed(what: RedactionSummary) -> Iterator[str]:
    if what.metadata:
        yield f"metadata: {', '.join(what.metadata)}"
    if what.events:
        yield f"stack events: {what.events:,}"
    for name, count in what.arguments.most_common():
        yield f"arguments {name!r}: {count:,}"
    for kind, count in what.texts.most_common():
        yield f"texts with {kind}: {count:,}"


def render_pages(pages: Sequence[Page]) -> RenderableType:
    """Render the list of pages."""
    label_chars = max((len(page.name) for page in pages), default=0)
    return make_facts_table(*((page.name, page.title) for page in pages), label_chars=label_chars)


def render_explanation(found: Explanation) -> RenderableType:
    """Render what is known of a message, or a page."""
    if found.page is not None:
        return Markdown(found.page.text)
    template = found.template
    assert template is not None
    facts = [(str(template.severity), _show_fields(template.text)), ("what to try", _show_fields(template.hint))]
    return Group(
        Text(template.code, style="bold"),
        make_facts_table(*((name, text) for name, text in facts if text), label_chars=len("what to try")),
        *(Text(f"{title}: {text}") for title, text in found.mentions),
        Text("Words in braces stand for figures and names; tracekit explain lists all pages.", style="dim"),
    )


def _show_fields(text: str) -> str:
    """Return a template's text, options named as on the command line, and fields without their formats."""
    return re.sub(r"\{(\w+)[^}]*\}", r"{\1}", re.sub(r"\{(--[\w-]+)\}", r"\1", text))


def serialize_pages(pages: Sequence[Page]) -> str:
    """Return the list of pages as JSON."""
    return dump_document({"pages": [{"name": one.name, "folder": one.folder, "title": one.title} for one in pages]})


def serialize_explanation(found: Explanation) -> str:
    """Return what is known of a message, or a page, as JSON."""
    template, page = found.template, found.page
    message = template and {
        "code": template.code,
        "severity": template.severity,
        "text": template.text,
        "hint": template.hint,
        "mentions": [{"page": title, "text": text} for title, text in found.mentions],
    }
    return dump_document({"message": message or None, "page": page and {"name": page.name, "text": page.text}})
