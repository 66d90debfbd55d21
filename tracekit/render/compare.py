"""Render a comparison of two runs as text, Markdown or JSON."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit import format
from tracekit.escape import to_markdown
from tracekit.format import format_duration, format_interval, format_number, format_percent, format_quantity, shorten
from tracekit.messages import Message
from tracekit.messages import reports as told
from tracekit.render.json import dump_document
from tracekit.render.markdown import format_table
from tracekit.render.screen import ColumnKind, Grid, make_grid
from tracekit.reporting.comparison import MIN_SHARED_PCT, Comparison, ComparisonSide, TimeChange

MAX_NAME_CHARS = 60
UNCHANGED_TOLERANCE_PCT = 0.05
SHARE_COLUMNS: tuple[tuple[str, ColumnKind], ...] = (
    ("where the time goes", "text"),
    ("A", "figure"),
    ("of A", "number"),
    ("B", "figure"),
    ("of B", "number"),
)
MIN_STEP_FRACTION = 0.002
"""Fraction of the longer step below which a part of the step gets no line."""


def render_comparison(comparison: Comparison, top: int) -> RenderableType:
    """Render the comparison as text."""
    a, b = (f"{side.label}: {format_duration(side.step_time_us)}" for side in (comparison.a, comparison.b))
    return Group(
        Text(f"A  {a}", style="bold"),
        Text(f"B  {b}{_append_change(comparison)}", style="bold"),
        *_render_verdict(comparison),
        *(Text(str(line), style="yellow") for line in find_comparison_warnings(comparison)),
        *_render_differences(comparison),
        Text(),
        *(_render_changes(comparison, top) if comparison.alike else [_render_shares(comparison)]),
    )


def _render_changes(comparison: Comparison, top: int) -> Iterator[RenderableType]:
    """Yield the tables of what changed: families, matched kernels, new and vanished kernels."""
    for number, (title, changes) in enumerate(_group_changes(comparison, top)):
        if number:
            yield Text()
        yield _make_change_table(title, changes)


def _group_changes(comparison: Comparison, top: int) -> Iterator[tuple[str, Sequence[TimeChange]]]:
    """Yield the groups of what changed that hold something, with their titles."""
    matched, new, vanished = comparison.matched, comparison.new, comparison.vanished
    groups = (
        ("where the time goes", select_large_changes(comparison)),
        (f"kernels in both, by change ({len(matched)})", matched[:top]),
        (f"{name_unmatched_kernels('B', 'A', comparison.a)} ({len(new)})", new[:top]),
        (f"{name_unmatched_kernels('A', 'B', comparison.b)} ({len(vanished)})", vanished[:top]),
    )
    yield from (group for group in groups if group[1])


def _render_shares(comparison: Comparison) -> Grid:
    """Render where each step's time goes: the only statement possible about two different programs."""
    table = make_grid(*SHARE_COLUMNS)
    for row in _format_shares(comparison):
        table.add_row(*row)
    return table


def _format_shares(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    for row in select_large_changes(comparison):
        sides = ((row.a_us, comparison.a), (row.b_us, comparison.b))
        times = (("–", "") if us is None else (format_duration(us), format_step_share(us, side)) for us, side in sides)
        yield (row.what, *(cell for pair in times for cell in pair))


def format_step_share(us: float, side: ComparisonSide) -> str:
    """Format a time as a percentage of a side's step."""
    return format_percent(100 * us / side.step_time_us)


def as_json(comparison: Comparison, top: int) -> str:
    """Return the JSON that ``tracekit compare --json`` prints."""
    body = {
        "a": _serialize_side(comparison.a),
        "b": _serialize_side(comparison.b),
        "alike": comparison.alike,
        "change_pct": comparison.change_pct,
        "more_done_pct": comparison.more_done_pct,
        "error_pct": comparison.error_pct,
        "inside_interval": comparison.is_inside,
        "shared_pct": comparison.shared_pct,
        "warnings": [*find_comparison_warnings(comparison)],
        "breakdown": [_serialize_change(change) for change in comparison.parts],
        "matched": [_serialize_change(change) for change in comparison.matched[:top]],
        "matched_omitted": max(len(comparison.matched) - top, 0),
        "new": [_serialize_change(change) for change in comparison.new[:top]],
        "new_omitted": max(len(comparison.new) - top, 0),
        "vanished": [_serialize_change(change) for change in comparison.vanished[:top]],
        "vanished_omitted": max(len(comparison.vanished) - top, 0),
        "recorded": comparison.recorded,
    }
    return dump_document(body)


def describe_step_change(comparison: Comparison) -> str:
    """Describe how the second step time compares with the first, for two runs of the same program."""
    change = comparison.change_pct or 0.0
    if abs(change) < UNCHANGED_TOLERANCE_PCT:
        return "as long"
    return f"{format_number(abs(change))} % {'longer' if change > 0 else 'shorter'}"


def _append_change(comparison: Comparison) -> str:
    """Describe how B's step compares, behind its time; nothing of two different programs."""
    return f", {describe_step_change(comparison)}" if comparison.alike else ""


def describe_work_change(comparison: Comparison) -> Message | None:
    """Describe how much more work the second run does in the same time.

    Returns:
        ``None`` where both steps do the same work, or where the work can't be compared.
    """
    more = comparison.more_done_pct
    if more is None:
        return None
    if abs(more) < UNCHANGED_TOLERANCE_PCT:
        return told.DONE_AS_MUCH()
    return told.DONE_MORE(more_pct=more) if more > 0 else told.DONE_LESS(less_pct=-more)


def _render_verdict(comparison: Comparison) -> Iterator[Text]:
    if not comparison.alike:
        yield Text("A and B are different programs: their steps aren't compared")
    if comparison.scored_pair is None:
        return
    predicted, _ = comparison.scored_pair
    place = "inside" if comparison.is_inside else "outside"
    span = format_interval(predicted.low_us or 0.0, predicted.high_us or 0.0, predicted.step_time_us)
    off = f"the prediction is off by {comparison.error_pct:+z.1f} %"
    yield Text(f"{off}; the measurement lies {place} its 90 % interval, {span}")


def find_comparison_warnings(comparison: Comparison) -> Iterator[Message]:
    """Yield reasons against comparing the two runs or their steps."""
    if (done := describe_work_change(comparison)) is not None:
        batches = {"batch_a": _format_batch(comparison.a), "batch_b": _format_batch(comparison.b)}
        yield told.STEPS_OF_OTHER_BATCHES(**batches, done=done)
    if not comparison.alike:
        yield told.PROGRAMS_DIFFER(shared_pct=comparison.shared_pct)
    elif comparison.shared_pct < MIN_SHARED_PCT:
        measured = comparison.prediction_and_measurement is None
        doubt = told.FEW_KERNELS_SHARED if measured else told.FEW_PREDICTED_KERNELS_SHARED
        yield doubt(shared_pct=comparison.shared_pct)
    if comparison.alike and comparison.scored_pair is None and comparison.prediction_and_measurement:
        sides = (_describe_side(comparison, side) for side in comparison.prediction_and_measurement)
        yield told.PREDICTION_NOT_OF_MEASUREMENT(**dict(zip(("predicted", "measured"), sides, strict=True)))
    if comparison.scored_pair and comparison.scored_pair[1].gpu is None:
        yield told.MEASURED_GPU_UNKNOWN()
    if comparison.a.alone != comparison.b.alone:
        yield told.RANK_WITHOUT_OTHERS(side="A" if comparison.a.alone else "B")
    for name, other, side in (("A", "B", comparison.a), ("B", "A", comparison.b)):
        if side.unlisted:
            yield told.KERNELS_UNLISTED(side=name, other=other, kernels=side.unlisted)


def _describe_side(comparison: Comparison, side: ComparisonSide) -> str:
    """Describe a side's GPU, and its ranks and batch where they differ from the other side's."""
    ranks = f" on {format_quantity(side.ranks, 'rank')}" if comparison.has_other_ranks and side.ranks else ""
    batch = f" with {_format_batch(side)} a step" if comparison.more_done_pct is not None else ""
    return f"{side.gpu or 'an unknown GPU'}{ranks}{batch}"


def _format_batch(side: ComparisonSide) -> str:
    return f"{side.batch.size:,.6g} {side.batch.unit}" if side.batch else "unknown"


def name_unmatched_kernels(name: str, other: str, side: ComparisonSide) -> str:
    """Name the group of kernels that the other side doesn't have or doesn't list."""
    return f"in {name}, not listed in {other}" if side.unlisted else f"only in {name}"


def list_run_differences(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield facts that differ between the runs: (name, value of A, value of B)."""
    a, b = comparison.a, comparison.b
    facts = (
        ("GPU", a.gpu or "unknown", b.gpu or "unknown"),
        ("ranks", f"{a.ranks or 'unknown'}", f"{b.ranks or 'unknown'}"),
        ("batch of a step", _format_batch(a), _format_batch(b)),
    )
    yield from (fact for fact in facts if fact[1] != fact[2])


def _render_differences(comparison: Comparison) -> Iterator[Text]:
    for key, a, b in (*list_run_differences(comparison), *comparison.recorded):
        yield Text(f"{key}: {shorten(a, MAX_NAME_CHARS)} → {shorten(b, MAX_NAME_CHARS)}", style="dim")


def select_large_changes(comparison: Comparison) -> list[TimeChange]:
    """Select the changes large enough for a line."""
    least = MIN_STEP_FRACTION * max(comparison.a.step_time_us, comparison.b.step_time_us)
    return [change for change in comparison.parts if max(change.a_us or 0.0, change.b_us or 0.0) >= least]


def _make_change_table(title: str, changes: Sequence[TimeChange]) -> Grid:
    table = make_grid((title, "text"), ("A", "figure"), ("B", "figure"), ("change", "number"), ("B/A", "number"))
    for row in _format_changes(changes):
        table.add_row(*row)
    return table


def _format_changes(changes: Sequence[TimeChange]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each change: what, its time in A and in B, the difference, the ratio."""
    for change in changes:
        yield (
            shorten(change.what, MAX_NAME_CHARS),
            "–" if change.a_us is None else format_duration(change.a_us),
            "–" if change.b_us is None else format_duration(change.b_us),
            format.format_change(change.change_us),
            f"{change.b_us / change.a_us:.2f}x" if change.a_us and change.b_us else "",
        )


def as_markdown(comparison: Comparison, top: int) -> str:
    """Return the comparison for a merge request or the summary of a CI job."""
    return "\n".join(_generate_markdown(comparison, top)) + "\n"


def _generate_markdown(comparison: Comparison, top: int) -> Iterator[str]:
    a, b = comparison.a, comparison.b
    yield from (f"# {to_markdown(f'{b.label}: {format_duration(b.step_time_us)}{_append_change(comparison)}')}", "")
    yield to_markdown(f"A is {a.label}, {format_duration(a.step_time_us)}; B is {b.label}.")
    for line in _render_verdict(comparison):
        yield from ("", to_markdown(line.plain))
    doubts = [warning.render(escape=to_markdown) for warning in find_comparison_warnings(comparison)]
    differences = [to_markdown(line.plain) for line in _render_differences(comparison)]
    if doubts or differences:
        yield from ("", *(f"- {line}" for line in (*doubts, *differences)))
    if not comparison.alike:
        headings = [heading for heading, _ in SHARE_COLUMNS]
        yield from ("", *format_table(headings, [*_format_shares(comparison)]))
        return
    for title, changes in _group_changes(comparison, top):
        rows = [*_format_changes(changes)]
        yield from ("", *format_table((title, "A", "B", "change", "B/A"), rows))


def _serialize_side(side: ComparisonSide) -> dict[str, Any]:
    return {
        "label": side.label,
        "gpu": side.gpu,
        "predicted": side.is_prediction,
        "step_time_us": side.step_time_us,
        "low_us": side.low_us,
        "high_us": side.high_us,
        "ranks": side.ranks,
        "kernels_unlisted": side.unlisted,
        "batch": side.batch,
    }


def _serialize_change(change: TimeChange) -> dict[str, Any]:
    return dataclasses.asdict(change) | {"change_us": change.change_us}
