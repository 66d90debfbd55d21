"""Render the scoreboard as text, JSON and Markdown."""

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from tracekit.format import format_interval
from tracekit.messages import predictions as told
from tracekit.render.json import dump_document
from tracekit.render.markdown import format_table
from tracekit.render.screen import Screen, make_grid
from tracekit.scoreboard.outcome import Outcome
from tracekit.scoreboard.summary import GroupSummary
from tracekit.version import __version__

HEADINGS = ("GPU", "kind", "outcomes", "inside", "median error", "worst", "interval")
OUTCOME_HEADINGS = ("GPU", "GPUs", "traced on", "kind", "predicted", "measured", "error", "tracekit", "weights", "date")
EXPLANATION = (
    "Inside: of the 90 % interval. Errors: of the predicted step, + too slow. Interval: what later ones are widened or "
    "narrowed to, as a power; --no-scoreboard leaves that out."
)


def render_scoreboard(rows: Sequence[GroupSummary], file: Path) -> Screen:
    """Render how predictions came out, by GPU and kind of job, and where the outcomes lie."""
    if not rows:
        return Screen(tables=[Text(told.SCOREBOARD_EMPTY().render())], notes=[str(file)])
    table = make_grid(*((heading, "word" if place < 2 else "number") for place, heading in enumerate(HEADINGS)))
    for row in rows:
        table.add_row(*_format_row(row))
    return Screen(tables=[table], notes=[EXPLANATION, str(file)])


def serialize_scoreboard(rows: Sequence[GroupSummary], outcomes: Sequence[Outcome]) -> str:
    """Return the scoreboard as JSON: the summary of each group, and all outcomes."""
    return dump_document({"groups": rows, "outcomes": outcomes})


def render_markdown(rows: Sequence[GroupSummary], outcomes: Sequence[Outcome]) -> str:
    """Return the scoreboard as Markdown that can be pasted into an issue."""
    lines = [
        f"Outcomes of predictions, tracekit {__version__}. {EXPLANATION}",
        "",
        *format_table(HEADINGS, [_format_row(row) for row in rows]),
        "",
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
        f"{one.likely_us:.0f} µs ({format_interval(one.low_us, one.high_us)})",
        f"{one.measured_us:.0f} µs",
        f"{one.error_pct:+.1f} %",
        one.version,
        one.weights,
        one.date,
    )
