"""Charts of one step over its time: the launch queues, and the bandwidth of copies."""

from collections.abc import Sequence
from itertools import cycle
from typing import Literal

from tracekit.render.charts.model import Axis, Chart, Series
from tracekit.render.colours import FAMILY_COLOURS
from tracekit.reporting.model import Report
from tracekit.reporting.sections.over_time import TimeCourse

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
