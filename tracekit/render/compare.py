"""A comparison on one screen, or for machines."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit import units
from tracekit.render.dump import document
from tracekit.render.grid import Grid, grid
from tracekit.reporting.comparison import Change, Comparison, Side
from tracekit.units import digits, duration, interval, many, percent, shorten

LONGEST = 60
NO_CHANGE_PCT = 0.05
MOSTLY_SHARED_PCT = 50.0
SMALL_PART = 0.002
"""Part of the step below which a family isn't worth a line."""


def screen(comparison: Comparison, top: int) -> RenderableType:
    """The comparison as text."""
    return Group(
        Text(f"A  {comparison.a.label}: {duration(comparison.a.step_time_us)}", style="bold"),
        Text(f"B  {comparison.b.label}: {duration(comparison.b.step_time_us)}, {difference(comparison)}", style="bold"),
        *_verdict(comparison),
        *(Text(line, style="yellow") for line in doubts(comparison)),
        *_different(comparison),
        Text(),
        _table("where the time goes", worth(comparison)),
        *_kernels(f"kernels in both, by change ({len(comparison.matched)})", comparison.matched[:top]),
        *_kernels(f"{only('B', 'A', comparison.a)} ({len(comparison.new)})", comparison.new[:top]),
        *_kernels(f"{only('A', 'B', comparison.b)} ({len(comparison.vanished)})", comparison.vanished[:top]),
    )


def as_json(comparison: Comparison, top: int) -> str:
    """What ``tracekit compare --json`` prints."""
    body = {
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "change_pct": comparison.change_pct,
        "more_done_pct": comparison.more_done_pct,
        "error_pct": comparison.error_pct,
        "inside_interval": comparison.inside,
        "shared_pct": comparison.shared_pct,
        "breakdown": [_change(change) for change in comparison.parts],
        "matched": [_change(change) for change in comparison.matched[:top]],
        "matched_omitted": max(len(comparison.matched) - top, 0),
        "new": [_change(change) for change in comparison.new[:top]],
        "new_omitted": max(len(comparison.new) - top, 0),
        "vanished": [_change(change) for change in comparison.vanished[:top]],
        "vanished_omitted": max(len(comparison.vanished) - top, 0),
        "recorded": [list(row) for row in comparison.recorded],
    }
    return document(body)


def difference(comparison: Comparison) -> str:
    """How the second step compares with the first."""
    change = comparison.change_pct
    if abs(change) < NO_CHANGE_PCT:
        return "as long"
    return f"{digits(abs(change))} % {'longer' if change > 0 else 'shorter'}"


def _verdict(comparison: Comparison) -> Iterator[Text]:
    if comparison.judged is None:
        return
    predicted, _ = comparison.judged
    place = "inside" if comparison.inside else "outside"
    span = interval(predicted.low_us or 0.0, predicted.high_us or 0.0)
    off = f"the prediction is off by {comparison.error_pct:+z.1f} %"
    yield Text(f"{off}; the measurement lies {place} its 90 % interval, {span}")


def doubts(comparison: Comparison) -> Iterator[str]:
    """What speaks against comparing the two at all, or against comparing their steps."""
    if (more := comparison.more_done_pct) is not None:
        a, b = (f"{side.batch.size:,.6g} {side.batch.unit}" for side in (comparison.a, comparison.b) if side.batch)
        done = "as much" if abs(more) < NO_CHANGE_PCT else f"{digits(abs(more))} % {'more' if more > 0 else 'less'}"
        yield f"a step of A works through {a}, one of B through {b}: in the same time B gets {done} done"
    if comparison.shared_pct < MOSTLY_SHARED_PCT:
        yield (
            f"kernels that both have make up {percent(comparison.shared_pct)} of the kernels' time: "
            f"are these the same program, batch and shapes?{_traced_shapes(comparison)}"
        )
    if comparison.judged is None and comparison.against:
        predicted, measured = (_where(comparison, side) for side in comparison.against)
        yield (
            f"the prediction is for {predicted}, the measurement of {measured}: "
            "how far the prediction is off isn't told by it"
        )
    if comparison.a.alone != comparison.b.alone:
        yield (
            f"{'A' if comparison.a.alone else 'B'} is one rank of several without the others: "
            "its waiting for them can't be told from communication"
        )
    for name, other, side in (("A", "B", comparison.a), ("B", "A", comparison.b)):
        if side.unlisted:
            yield (
                f"{name}'s file leaves out the kernels with least time, {side.unlisted:,} of them: "
                f"whether {other} has them can't be told. Predict anew to have them compared"
            )


def _where(comparison: Comparison, side: Side) -> str:
    """The side's GPU, and on how many ranks where that differs."""
    ranks = many(side.ranks, "rank") if comparison.other_ranks and side.ranks else ""
    return f"{side.gpu or 'an unknown GPU'}{f' on {ranks}' * bool(ranks)}"


def _traced_shapes(comparison: Comparison) -> str:
    if comparison.against is None:
        return ""
    return " A prediction's kernels have the shapes of the trace, also for another batch or layout"


def only(name: str, other: str, side: Side) -> str:
    """What to call the kernels that the other side doesn't have, or doesn't list."""
    return f"in {name}, not listed in {other}" if side.unlisted else f"only in {name}"


def _different(comparison: Comparison) -> Iterator[Text]:
    for key, a, b in comparison.recorded:
        yield Text(f"{key}: {shorten(a, LONGEST)} → {shorten(b, LONGEST)}", style="dim")


def worth(comparison: Comparison) -> list[Change]:
    """The parts of the step that are worth a line."""
    least = SMALL_PART * max(comparison.a.step_time_us, comparison.b.step_time_us)
    return [change for change in comparison.parts if max(change.a_us or 0.0, change.b_us or 0.0) >= least]


def _kernels(title: str, changes: Sequence[Change]) -> Iterator[RenderableType]:
    if changes:
        yield Text()
        yield _table(title, changes)


def _table(title: str, changes: Sequence[Change]) -> Grid:
    table = grid((title, "text"), *((heading, "number") for heading in ("A", "B", "change", "B/A")))
    for change in changes:
        table.add_row(
            shorten(change.what, LONGEST),
            "–" if change.a_us is None else duration(change.a_us),
            "–" if change.b_us is None else duration(change.b_us),
            units.change(change.change_us),
            f"{change.b_us / change.a_us:.2f}x" if change.a_us and change.b_us else "",
        )
    return table


def _side(side: Side) -> dict[str, Any]:
    return {
        "label": side.label,
        "gpu": side.gpu,
        "predicted": side.predicted,
        "step_time_us": side.step_time_us,
        "low_us": side.low_us,
        "high_us": side.high_us,
        "kernels_unlisted": side.unlisted,
        "batch": dataclasses.asdict(side.batch) if side.batch else None,
    }


def _change(change: Change) -> dict[str, Any]:
    return dataclasses.asdict(change) | {"change_us": change.change_us}
