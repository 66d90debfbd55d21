"""The report's charts as plotly specifications; web pages and notebooks add the theme."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from math import sqrt
from typing import Any

from tracekit.errors import TracekitError
from tracekit.format import format_count, format_duration, format_number, format_percent, format_shape, shorten
from tracekit.messages import command_errors
from tracekit.render.colours import FAMILY_COLOURS, GREY, OTHER_COLOUR, get_family_colour
from tracekit.render.speed_chart import build_speed_chart
from tracekit.reporting.model import Report
from tracekit.reporting.sections.bars import list_parts
from tracekit.reporting.sections.kernels import KernelTime
from tracekit.reporting.sections.over_time import TimeCourse
from tracekit.reporting.sections.roofs import Roof

PlotlySpec = dict[str, Any]

MIN_BUBBLE_SHARE_PCT = 0.05
"""Kernels with a smaller percentage of kernel time get no bubble, which limits the chart to 2000 bubbles."""
MAX_BUBBLE_PX = 44
MIN_BUBBLE_PX = 5
ROOF_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
COURSE_COLOURS = tuple(FAMILY_COLOURS.values())
LOG_AXIS = {"type": "log", "dtick": 1, "exponentformat": "power"}


def build_figure(report: Report, name: str) -> PlotlySpec:
    """Return one chart of the report: ``data`` and ``layout`` as plotly expects them.

    Raises:
        TracekitError: There is no chart of that name.
    """
    if name not in CHART_BUILDERS:
        raise TracekitError(command_errors.FIGURE_UNKNOWN(name=name, known=[*CHART_BUILDERS]))
    return CHART_BUILDERS[name](report)


def build_time_chart(report: Report) -> PlotlySpec:
    """Build the chart of where the step's time goes: one stacked bar per GPU."""
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": family,
            "y": [bar.label for bar in report.bars],
            "x": [dict(bar.parts).get(family, 0.0) / 1e3 for bar in report.bars],
            "marker": {"color": get_family_colour(family), **({"pattern": {"shape": "/"}} if family == "idle" else {})},
            "hovertemplate": "%{y}: %{x:.3g} ms of " + family + "<extra></extra>",
        }
        for family in list_parts(report.bars)
    ]
    axes = {"xaxis": {"title": {"text": "ms per step"}}, "yaxis": {"autorange": "reversed"}}
    return {"data": data, "layout": {"barmode": "stack", **axes}}


def build_step_chart(report: Report) -> PlotlySpec:
    """Build the chart of the measured steps: GPU busy, only communicating, idle."""
    parts = {
        "GPU busy": [step.kernel_time_us - step.exposed_comm_us for step in report.steps],
        "only communication": [step.exposed_comm_us for step in report.steps],
        "GPU idle": [max(step.time_us - step.kernel_time_us, 0.0) for step in report.steps],
    }
    shades = (FAMILY_COLOURS["gemm"], FAMILY_COLOURS["collective"], OTHER_COLOUR)
    data = [
        {
            "type": "bar",
            "name": name,
            "x": [f"step {step.step}" for step in report.steps],
            "y": [us / 1e3 for us in times],
            "marker": {"color": shade},
            "hovertemplate": "%{x}: %{y:.3g} ms " + name + "<extra></extra>",
        }
        for (name, times), shade in zip(parts.items(), shades, strict=True)
        if any(times)
    ]
    axes = {"yaxis": {"title": {"text": "ms"}, "rangemode": "tozero"}, "xaxis": {"type": "category"}}
    return {"data": data, "layout": {"barmode": "stack", **axes}}


def build_queue_chart(report: Report) -> PlotlySpec:
    """Build the chart of the launch queues over a step, one area per stream."""
    courses = report.course.queues if report.course else ()
    return _build_course_chart(report, courses, "launched, not begun", "%{y:.3g} queued", stacked=True)


def build_copy_chart(report: Report) -> PlotlySpec:
    """Build the chart of the bandwidth of copies over a step, one line per kind."""
    courses = report.course.copies_gbps if report.course else ()
    return _build_course_chart(report, courses, "GB/s", "%{y:.3g} GB/s", stacked=False)


def _build_course_chart(
    report: Report, courses: Sequence[TimeCourse], unit: str, hover: str, *, stacked: bool
) -> PlotlySpec:
    part_ms = report.course.part_us / 1e3 if report.course else 0.0
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": course.name,
            "x": [round((i + 0.5) * part_ms, 6) for i in range(len(course.values))],
            "y": list(course.values),
            "line": {"shape": "hvh", "width": 1.5, "color": colour},
            **({"stackgroup": "all"} if stacked else {}),
            "hovertemplate": f"{course.name}: {hover} at %{{x:.4g}} ms<extra></extra>",
        }
        for course, colour in zip(courses, cycle(COURSE_COLOURS), strict=False)
    ]
    axes = {
        "xaxis": {"title": {"text": "ms of the step"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
    }
    return {"data": data, "layout": {**axes, "showlegend": True, "hovermode": "closest"}}


def build_roofline_chart(report: Report) -> PlotlySpec:
    """Build the roofline chart: kernels as bubbles (rate over intensity, area by time), GPUs as roofs."""
    drawn = select_roofline_kernels(report)
    bubbles = [_build_bubbles(family, drawn) for family in dict.fromkeys(kernel.family for kernel in drawn)]
    intensities = [kernel.flops / kernel.bytes for kernel in drawn if kernel.flops and kernel.bytes]
    reach = (min(intensities, default=0.1) / 3, max(*intensities, 1000.0) * 3 if intensities else 1000.0)
    roofs = [
        line
        for roof, dash in zip(report.roofs, cycle(ROOF_DASHES), strict=False)
        for line in _build_roof_lines(roof, dash, reach)
    ]
    return {
        "data": [*roofs, *bubbles],
        "layout": {
            "xaxis": {"title": {"text": "FLOP per byte"}, **LOG_AXIS},
            "yaxis": {"title": {"text": "TFLOP/s"}, **LOG_AXIS},
            "hovermode": "closest",
        },
    }


def select_roofline_kernels(report: Report) -> list[KernelTime]:
    """Select the kernels for the roofline chart: known FLOPs and bytes, and enough time to be visible."""
    return [
        kernel for kernel in report.kernels if kernel.flops and kernel.bytes and kernel.share >= MIN_BUBBLE_SHARE_PCT
    ]


def _build_bubbles(family: str, kernels: Sequence[KernelTime]) -> PlotlySpec:
    largest = max(kernel.time_us for kernel in kernels)
    members = [kernel for kernel in kernels if kernel.family == family]
    sizes = [max(MAX_BUBBLE_PX * sqrt(kernel.time_us / largest), MIN_BUBBLE_PX) for kernel in members]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": family,
        "x": [kernel.flops / kernel.bytes for kernel in members if kernel.flops and kernel.bytes],
        "y": [kernel.flops / kernel.time_us / 1e6 for kernel in members if kernel.flops],
        "text": [_format_hover_text(kernel) for kernel in members],
        "marker": {
            "color": get_family_colour(family),
            "opacity": 0.75,
            "size": sizes,
            "line": {"width": 1, "color": GREY},
        },
        "hovertemplate": "%{text}<br>%{x:.3g} FLOP/byte, %{y:.3g} TFLOP/s<extra></extra>",
    }


def _format_hover_text(kernel: KernelTime) -> str:
    utilization = "" if kernel.utilization is None else f", {format_percent(kernel.utilization)} of the roofline"
    lines = (
        kernel.op or shorten(kernel.name, 60),
        f"{kernel.dtype or ''} {shorten(format_shape(kernel.shape), 60)}".strip(),
    )
    escaped = "<br>".join(line.replace("&", "&amp;").replace("<", "&lt;") for line in lines if line)
    return (
        f"{escaped}<br>{format_duration(kernel.time_us)} in {format_count(kernel.count)} launches per step{utilization}"
    )


def _build_roof_lines(roof: Roof, dash: str, reach: tuple[float, float]) -> Iterator[PlotlySpec]:
    for i, (dtype, peak) in enumerate(roof.peak_tflops):
        ridge = peak * 1e3 / roof.bandwidth_gbps
        begin = reach[0] if i == 0 else min(ridge, reach[1])
        inner = [ridge] if begin < ridge < reach[1] else []
        x = [begin, *inner, reach[1]]
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": f"{roof.gpu}{' (measured)' if roof.measured else ''}",
            "legendgroup": roof.gpu,
            "showlegend": i == 0,
            "x": x,
            "y": [min(peak, intensity * roof.bandwidth_gbps / 1e3) for intensity in x],
            "line": {"color": GREY, "width": 2.5 if roof.measured else 1.5, "dash": dash},
            "hovertemplate": f"{roof.gpu} {dtype}: {format_number(peak)} TFLOP/s, "
            f"{format_number(roof.bandwidth_gbps)} GB/s"
            "<extra></extra>",
        }


CHART_BUILDERS: dict[str, Callable[[Report], PlotlySpec]] = {
    "time": build_time_chart,
    "roofline": build_roofline_chart,
    "speeds": build_speed_chart,
    "steps": build_step_chart,
    "queues": build_queue_chart,
    "copies": build_copy_chart,
}
"""Function that builds each chart, by the chart's name."""
