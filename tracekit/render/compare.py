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
from tracekit.reporting.likeness import MOSTLY_PCT
from tracekit.units import digits, duration, interval, many, percent, shorten

LONGEST = 60
NO_CHANGE_PCT = 0.05
SMALL_PART = 0.002
"""Part of the step below which a family isn't worth a line."""


def screen(comparison: Comparison, top: int) -> RenderableType:
    """The comparison as text."""
    a, b = (f"{side.label}: {duration(side.step_time_us)}" for side in (comparison.a, comparison.b))
    change = f", {difference(comparison)}" if comparison.alike else ""
    return Group(
        Text(f"A  {a}", style="bold"),
        Text(f"B  {b}{change}", style="bold"),
        *_verdict(comparison),
        *(Text(line, style="yellow") for line in doubts(comparison)),
        *_different(comparison),
        Text(),
        *(_compared(comparison, top) if comparison.alike else [_shares(comparison)]),
    )


def _compared(comparison: Comparison, top: int) -> Iterator[RenderableType]:
    """What the change is made of."""
    yield _table("where the time goes", worth(comparison))
    yield from _kernels(f"kernels in both, by change ({len(comparison.matched)})", comparison.matched[:top])
    yield from _kernels(f"{only('B', 'A', comparison.a)} ({len(comparison.new)})", comparison.new[:top])
    yield from _kernels(f"{only('A', 'B', comparison.b)} ({len(comparison.vanished)})", comparison.vanished[:top])


def _shares(comparison: Comparison) -> Grid:
    """Where each step's time goes: all that can be said of two different programs."""
    table = grid(("where the time goes", "text"), *((heading, "number") for heading in ("A", "of A", "B", "of B")))
    for row in worth(comparison):
        sides = ((row.a_us, comparison.a), (row.b_us, comparison.b))
        times = (("–", "") if us is None else (duration(us), part(us, side)) for us, side in sides)
        table.add_row(row.what, *(cell for pair in times for cell in pair))
    return table


def part(us: float, side: Side) -> str:
    """How much of a side's step something takes."""
    return percent(100 * us / side.step_time_us)


def as_json(comparison: Comparison, top: int) -> str:
    """What ``tracekit compare --json`` prints."""
    body = {
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "alike": comparison.alike,
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
    """How the second step compares with the first, of two that are alike."""
    change = comparison.change_pct or 0.0
    if abs(change) < NO_CHANGE_PCT:
        return "as long"
    return f"{digits(abs(change))} % {'longer' if change > 0 else 'shorter'}"


def work_done(comparison: Comparison) -> str | None:
    """How much more the second run gets done; ``None`` where the steps do as much, or can't be compared."""
    more = comparison.more_done_pct
    if more is None:
        return None
    return "as much" if abs(more) < NO_CHANGE_PCT else f"{digits(abs(more))} % {'more' if more > 0 else 'less'}"


def _verdict(comparison: Comparison) -> Iterator[Text]:
    if not comparison.alike:
        yield Text("A and B are different programs: their steps aren't compared")
    if comparison.judged is None:
        return
    predicted, _ = comparison.judged
    place = "inside" if comparison.inside else "outside"
    span = interval(predicted.low_us or 0.0, predicted.high_us or 0.0)
    off = f"the prediction is off by {comparison.error_pct:+z.1f} %"
    yield Text(f"{off}; the measurement lies {place} its 90 % interval, {span}")


def doubts(comparison: Comparison) -> Iterator[str]:
    """What speaks against comparing the two at all, or against comparing their steps."""
    if (done := work_done(comparison)) is not None:
        a, b = map(_batch, (comparison.a, comparison.b))
        yield f"a step of A works through {a}, one of B through {b}: in the same time B gets {done} done"
    if not comparison.alike:
        yield (
            f"kernels that both have make up {percent(comparison.shared_pct)} of the kernels' time, and most GEMMs, "
            "convolutions or ops are others: neither step tells anything about the other"
        )
    elif comparison.shared_pct < MOSTLY_PCT:
        yield (
            f"kernels that both have make up {percent(comparison.shared_pct)} of the kernels' time: "
            f"are these the same program, batch and shapes?{_traced_shapes(comparison)}"
        )
    if comparison.alike and comparison.judged is None and comparison.against:
        predicted, measured = (_where(comparison, side) for side in comparison.against)
        yield (
            f"the prediction is for {predicted}, the measurement of {measured}: "
            "how far the prediction is off isn't told by it"
        )
    if comparison.judged and comparison.judged[1].gpu is None:
        yield "the GPU of the measurement isn't known: the prediction is off by this if it was the predicted one"
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
    """The side's GPU, and on how many ranks and with which batch where that differs."""
    ranks = f" on {many(side.ranks, 'rank')}" if comparison.other_ranks and side.ranks else ""
    batch = f" with {_batch(side)} a step" if comparison.more_done_pct is not None else ""
    return f"{side.gpu or 'an unknown GPU'}{ranks}{batch}"


def _batch(side: Side) -> str:
    return f"{side.batch.size:,.6g} {side.batch.unit}" if side.batch else "unknown"


def _traced_shapes(comparison: Comparison) -> str:
    if comparison.against is None:
        return ""
    return " A prediction's kernels have the shapes of the trace, also for another batch or layout"


def only(name: str, other: str, side: Side) -> str:
    """What to call the kernels that the other side doesn't have, or doesn't list."""
    return f"in {name}, not listed in {other}" if side.unlisted else f"only in {name}"


def differences(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """What the runs themselves differ in: what, in the first, in the second."""
    a, b = comparison.a, comparison.b
    facts = (
        ("GPU", a.gpu or "unknown", b.gpu or "unknown"),
        ("ranks", f"{a.ranks or 'unknown'}", f"{b.ranks or 'unknown'}"),
        ("batch of a step", _batch(a), _batch(b)),
    )
    yield from (fact for fact in facts if fact[1] != fact[2])


def _different(comparison: Comparison) -> Iterator[Text]:
    for key, a, b in (*differences(comparison), *comparison.recorded):
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
        "ranks": side.ranks,
        "kernels_unlisted": side.unlisted,
        "batch": dataclasses.asdict(side.batch) if side.batch else None,
    }


def _change(change: Change) -> dict[str, Any]:
    return dataclasses.asdict(change) | {"change_us": change.change_us}
