"""Chart of the answer: what the work costs over the time that it takes, or without prices the times alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log10

from tracekit.format import format_dollars, format_duration, format_interval
from tracekit.render.charts.model import Axis, Chart, Label, Series
from tracekit.render.charts.ticks import choose_ticks
from tracekit.render.colours import FAMILY_COLOURS
from tracekit.reporting.model import Report
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.figure import Figure

TARGET_COLOUR = FAMILY_COLOURS["gemm"]
HERE_COLOUR = FAMILY_COLOURS["collective"]
MAX_LINEAR_RATIO = 3.0
"""Ratio of the largest to the smallest value above which an axis is logarithmic: small ones would be slivers."""
MARGIN_FRACTION = 0.05
"""Fraction of an axis left free at each end."""
LEADER_FRACTION = 0.2
"""Fraction of the height left free for the lines from labels to points."""
MARKER_PX = 9.0
ROW_PX = 24.0
AXES_PX = 80.0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the work is done: its name, its time in milliseconds, and what it costs."""

    name: str
    work_ms: Figure
    dollars: Figure | None
    is_measured: bool = False


def build_answer_chart(report: Report) -> Chart:
    """Build the chart of cost over time, or without prices that of the times, with 90 % intervals."""
    places = list(_list_places(report))
    priced = [place for place in places if place.dollars]
    if report.decision and any(not place.is_measured for place in priced):
        return _build_cost_chart(report.decision, priced, report.source.label)
    return _build_interval_chart(places, report.source.label)


def _list_places(report: Report) -> Iterator[_Place]:
    """Yield the trace's own GPU and the targets, best first."""
    decision, here_ms = report.decision, report.source.step_time_us / 1e3
    dollars = decision.here.dollars if decision else None
    costs = None if dollars is None else Figure.from_exact(dollars)
    if report.has_baseline:
        yield _Place(report.source.label, Figure.from_exact(here_ms), costs, is_measured=True)
    ratios = {one.label: one.batch_ratio for one in report.targets}
    for target in decision.targets if decision else ():
        yield _Place(target.label, target.step_us.scale(1e-3 / ratios.get(target.label, 1.0)), target.dollars)


def _build_cost_chart(decision: Decision, places: Iterable[_Place], here: str) -> Chart:
    """Build the chart of dollars over time: intervals are slanted lines, as the cost is the time times a price."""
    placed = sorted(places, key=lambda place: place.work_ms.likely)
    unit = f"dollars for {decision.amount:,} {decision.unit}"
    times, costs = [place.work_ms for place in placed], [place.dollars for place in placed if place.dollars]
    spans = (
        _build_span(place, (cost.low, cost.high))
        for place, cost in zip(placed, costs, strict=True)
        if not place.is_measured
    )
    points = [(time.likely, cost.likely) for time, cost in zip(times, costs, strict=True)]
    title = _name_time_axis(here)
    return Chart(
        name="answer",
        title=f"Cost over time, with 90 % intervals: {unit} over {title}",
        x=_fit_axis(title, times, MARGIN_FRACTION),
        y=_fit_axis(unit, costs, LEADER_FRACTION),
        series=(*spans, *_build_markers(placed, points, here)),
        labels=tuple(Label(place.name, x, y) for place, (x, y) in zip(placed, points, strict=True)),
        height_px=440,
    )


def _build_interval_chart(places: Sequence[_Place], here: str) -> Chart:
    """Build the chart of the times: one row for the measured step and for each target."""
    spans = (_build_span(place, (row, row)) for row, place in enumerate(places) if not place.is_measured)
    points = [(place.work_ms.likely, float(row)) for row, place in enumerate(places)]
    return Chart(
        name="answer",
        title=f"Times with 90 % intervals: {_name_time_axis(here)}",
        x=_fit_axis(_name_time_axis(here), [place.work_ms for place in places], MARGIN_FRACTION),
        y=Axis("", limits=(-0.6, len(places) - 0.4)),
        series=(*spans, *_build_markers(places, points, here)),
        categories=tuple(place.name for place in places),
        is_horizontal=True,
        height_px=AXES_PX + ROW_PX * len(places),
    )


def _name_time_axis(here: str) -> str:
    return f"ms for the work of a {here} step"


def _build_span(place: _Place, y: tuple[float, float]) -> Series:
    """Build the line of a place's interval between two vertical positions."""
    return Series(
        name=f"{place.name}, interval",
        kind="lines",
        x=(place.work_ms.low, place.work_ms.high),
        y=y,
        colour=TARGET_COLOUR,
        width_px=3,
        is_in_legend=False,
    )


def _build_markers(places: Sequence[_Place], points: Sequence[tuple[float, float]], here: str) -> Iterator[Series]:
    for name, colour, is_measured in (("predicted", TARGET_COLOUR, False), (here, HERE_COLOUR, True)):
        chosen = [(place, at) for place, at in zip(places, points, strict=True) if place.is_measured is is_measured]
        if chosen:
            yield Series(
                name=name,
                kind="points",
                x=tuple(x for _, (x, _) in chosen),
                y=tuple(y for _, (_, y) in chosen),
                texts=tuple(_describe_place(place) for place, _ in chosen),
                colour=colour,
                sizes_px=(MARKER_PX,) * len(chosen),
                marker="diamond" if is_measured else "circle",
            )


def _describe_place(place: _Place) -> str:
    time, dollars = place.work_ms.scale(1e3), place.dollars
    shown = f"{place.name}: {format_duration(time.likely)}"
    if not place.is_measured:
        shown += f" ({format_interval(time.low, time.high)})"
    return shown if dollars is None else f"{shown}, ${format_dollars(dollars.likely)}"


def _fit_axis(title: str, values: Sequence[Figure], above: float) -> Axis:
    """Return an axis that holds all intervals, logarithmic where the largest value would squash the others."""
    low, high = min(value.low for value in values), max(value.high for value in values)
    if not high > MAX_LINEAR_RATIO * low > 0:
        low = max(low - MARGIN_FRACTION * (high - low), 0.0)
        return Axis(title, limits=(low, high + (above * (high - low) or 1.0)))
    first, last = log10(low), log10(high)
    limits = (10 ** (first - MARGIN_FRACTION * (last - first)), 10 ** (last + above * (last - first)))
    return Axis(title, is_logarithmic=True, limits=limits, ticks=choose_ticks(limits))
