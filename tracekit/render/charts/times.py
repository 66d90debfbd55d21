"""Charts of step times: the answer with its costs, and the step over the GPU's speed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, log10

from tracekit.format import format_dollars, format_duration, format_interval
from tracekit.prediction.model import PredictedStep
from tracekit.render.charts.model import Axis, Chart, Label, Series, choose_ticks
from tracekit.render.colours import FAMILY_COLOURS
from tracekit.render.facts import is_per_sample
from tracekit.reporting.figure import Figure
from tracekit.reporting.model import Report
from tracekit.reporting.sections.decision import Decision

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
        shown += f" ({format_interval(time.low, time.high, time.likely)})"
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


HOST_STYLES = (
    (FAMILY_COLOURS["gemm"], "solid"),
    (FAMILY_COLOURS["attention"], "dash"),
    (FAMILY_COLOURS["conv"], "dot"),
)
SPEED_MULTIPLES = (1, 1.5, 2, 3, 5)
MAX_LINEAR_STEPS_RATIO = 20.0
"""Ratio of the longest to the shortest step above which the axis is logarithmic.

On a linear axis, all points but the longest would then lie at the bottom.
"""
AXIS_MARGIN_FRACTION = 0.02
"""Fraction of an axis left free at each end."""
SPEED_LEADER_FRACTION = 0.12
"""Fraction of the height left free for the lines from labels to points."""


def build_speed_chart(report: Report) -> Chart:
    """Build the chart of the step time over the GPU's speed, for the measured CPU and faster ones, with all targets.

    Where targets process more samples per step, their times and speeds are scaled to the samples of a measured step.
    """
    busy_us = report.source.kernel_time_us
    placed = sorted(
        (target for target in report.targets if target.step.kernel_time_us),
        key=lambda target: (
            -target.step.kernel_time_us / target.batch_ratio,
            target.step.step_time_us / target.batch_ratio,
        ),
    )
    lines = _build_host_lines(report)
    markers = _build_target_markers(report, busy_us, placed)
    series = [*lines, markers] if placed else lines
    labels = tuple(Label(one.label, x, y) for one, x, y in zip(placed, markers.x, markers.y, strict=True))
    by_sample, here = is_per_sample(report), report.source.label
    return Chart(
        name="speeds",
        title="Step time over the speed of the kernels",
        x=_build_speed_axis(f"speed of the kernels{' for each sample' * by_sample}, multiple of the {here}", series),
        y=_build_time_axis(
            f"ms for the samples of a {here} step" if by_sample else "ms per step", series, is_labelled=bool(labels)
        ),
        series=tuple(series),
        labels=labels,
        height_px=480,
    )


def _build_host_lines(report: Report) -> list[Series]:
    points = report.speeds.points
    hosts = sorted({host for _, host, _ in points}, key=lambda host: inf if host is None else host)
    return [
        Series(
            name=_name_host(host, report.source.label),
            kind="lines",
            x=tuple(gpu for gpu, other, _ in points if other == host),
            y=tuple(us / 1e3 for _, other, us in points if other == host),
            texts=tuple(
                f"GPU {gpu:g}×, {_name_host(host, report.source.label)}: {format_duration(us)}"
                for gpu, other, us in points
                if other == host
            ),
            colour=shade,
            width_px=2.5,
            dash=dash,
        )
        for host, (shade, dash) in zip(hosts, HOST_STYLES, strict=False)
    ]


def _build_target_markers(report: Report, busy_us: float, placed: Sequence[PredictedStep]) -> Series:
    speeds = [busy_us * target.batch_ratio / target.step.kernel_time_us for target in placed]
    times_us = [target.step.step_time_us / target.batch_ratio for target in placed]
    return Series(
        name="targets with the what-if edits" if report.what_if else "targets",
        kind="points",
        x=tuple(speeds),
        y=tuple(us / 1e3 for us in times_us),
        texts=tuple(
            f"{target.label}: kernels {speed:.2f}× as fast, step {format_duration(us)}"
            for target, speed, us in zip(placed, speeds, times_us, strict=True)
        ),
        colour=FAMILY_COLOURS["collective"],
        sizes_px=(10.0,) * len(placed),
        marker="diamond",
    )


def _build_speed_axis(title: str, series: Sequence[Series]) -> Axis:
    exponents = [log10(value) for one in series for value in one.x]
    aside = AXIS_MARGIN_FRACTION * (max(exponents) - min(exponents))
    limits = (10 ** (min(exponents) - aside), 10 ** (max(exponents) + aside))
    ticks = choose_ticks(limits, SPEED_MULTIPLES, "{:g}×")
    return Axis(title, is_logarithmic=True, limits=limits, ticks=ticks)


def _build_time_axis(title: str, series: Sequence[Series], *, is_labelled: bool) -> Axis:
    """Build the axis of times, with space above the points for the lines to their labels."""
    values = [value for one in series for value in one.y]
    above = SPEED_LEADER_FRACTION if is_labelled else AXIS_MARGIN_FRACTION
    if not max(values) > MAX_LINEAR_STEPS_RATIO * min(values) > 0:
        return Axis(title, limits=(0.0, (1 + above) * max(values) or 1.0))
    low, high = log10(min(values)), log10(max(values))
    bottom = low - AXIS_MARGIN_FRACTION * (high - low)
    limits = (10**bottom, 10 ** (high + above * (high - bottom)))
    return Axis(title, is_logarithmic=True, limits=limits, ticks=choose_ticks(limits))


def _name_host(speed: float | None, here: str) -> str:
    if speed == 1:
        return f"CPU as {here}"
    return "CPU that takes no time" if speed is None else f"CPU {speed:g}× as fast"
