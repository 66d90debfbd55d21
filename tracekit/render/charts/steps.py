"""Charts of steps: where their time goes, one by one, and one over its time."""

from collections.abc import Sequence
from itertools import cycle
from typing import Literal

from tracekit.format import format_duration, format_percent
from tracekit.render.charts.model import Axis, Chart, Series
from tracekit.render.colours import FAMILY_COLOURS, IDLE_COLOUR, get_family_colour
from tracekit.reporting.model import Report
from tracekit.reporting.sections.step import TimeBar, list_parts
from tracekit.reporting.sections.timeline import TimeCourse

MAX_TIME_RATIO = 4.0
"""Ratio of the longest to the shortest step above which bars show percentages: the short ones would be slivers."""
ROW_PX = 26.0
AXES_PX = 90.0


def build_time_chart(report: Report) -> Chart:
    """Build the chart of where the step's time goes: one stacked bar per GPU."""
    steps_us = [bar.step_time_us for bar in report.compared_bars]
    in_percent = max(steps_us) > MAX_TIME_RATIO * min(steps_us)
    series = (
        Series(
            name=family,
            kind="bars",
            x=tuple(range(len(report.compared_bars))),
            y=tuple(_compute_part(bar, family, in_percent=in_percent) for bar in report.compared_bars),
            texts=tuple(_describe_part(bar, family) for bar in report.compared_bars),
            colour=get_family_colour(family),
        )
        for family in list_parts(report.compared_bars)
    )
    return Chart(
        name="time",
        title="Where the time of a step goes, by family of kernels",
        x=Axis("% of the step" if in_percent else "ms per step"),
        y=Axis(""),
        series=tuple(series),
        categories=tuple(f"{bar.label}, {format_duration(bar.step_time_us)}" for bar in report.compared_bars),
        is_horizontal=True,
        height_px=AXES_PX + ROW_PX * len(report.compared_bars),
    )


def _compute_part(bar: TimeBar, family: str, *, in_percent: bool) -> float:
    time_us = dict(bar.parts).get(family, 0.0)
    return 100 * time_us / (bar.step_time_us or 1.0) if in_percent else time_us / 1e3


def _describe_part(bar: TimeBar, family: str) -> str:
    time_us = dict(bar.parts).get(family, 0.0)
    share = format_percent(100 * time_us / (bar.step_time_us or 1.0))
    return f"{family}: {format_duration(time_us)}, {share} of the step"


def build_step_chart(report: Report) -> Chart:
    """Build the chart of the measured steps: GPU busy, only communicating, idle."""
    parts = {
        "GPU busy": [step.kernel_time_us - step.exposed_comm_us for step in report.steps],
        "only communication": [step.exposed_comm_us for step in report.steps],
        "GPU idle": [max(step.time_us - step.kernel_time_us, 0.0) for step in report.steps],
    }
    shades = (FAMILY_COLOURS["gemm"], FAMILY_COLOURS["collective"], IDLE_COLOUR)
    names = tuple(f"step {step.step}" for step in report.steps)
    series = (
        Series(
            name=part,
            kind="bars",
            x=tuple(range(len(names))),
            y=tuple(us / 1e3 for us in times),
            texts=tuple(f"{name}: {format_duration(us)} {part}" for name, us in zip(names, times, strict=True)),
            colour=shade,
        )
        for (part, times), shade in zip(parts.items(), shades, strict=True)
        if any(times)
    )
    return Chart(
        name="steps",
        title="Duration of the measured steps",
        x=Axis(""),
        y=Axis("ms"),
        series=tuple(series),
        categories=names,
        height_px=260,
    )


COLOURS = tuple(FAMILY_COLOURS.values())
HEIGHT_PX = 260


def build_queue_chart(report: Report) -> Chart:
    """Build the chart of the launch queues over a step, one area per stream."""
    courses = report.course.queues if report.course else ()
    title = "Launches in the queue over the time of a step"
    return _build_chart("queues", title, Axis("launched, not begun"), _build_series(report, courses, "areas"))


def build_copy_chart(report: Report) -> Chart:
    """Build the chart of the bandwidth of copies over a step, one line per kind."""
    courses = report.course.copies_gbps if report.course else ()
    title = "Bandwidth of copies over the time of a step"
    return _build_chart("copies", title, Axis("GB/s"), _build_series(report, courses, "lines"))


def _build_chart(name: str, title: str, y: Axis, series: tuple[Series, ...]) -> Chart:
    x = Axis("ms of the step")
    return Chart(name=name, title=title, x=x, y=y, series=series, is_over_time=bool(series), height_px=HEIGHT_PX)


def _build_series(report: Report, courses: Sequence[TimeCourse], kind: Literal["areas", "lines"]) -> tuple[Series, ...]:
    part_ms = report.course.part_us / 1e3 if report.course else 0.0
    return tuple(
        Series(
            name=course.name,
            kind=kind,
            x=tuple(round((i + 0.5) * part_ms, 6) for i in range(len(course.values))),
            y=course.values,
            colour=colour,
        )
        for course, colour in zip(courses, cycle(COLOURS), strict=False)
    )
