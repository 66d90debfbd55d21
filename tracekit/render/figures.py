"""The report's charts as plotly specifications; pages theme them, notebooks wrap them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from math import sqrt
from typing import Any

from tracekit.errors import TracekitError
from tracekit.render.colours import FAMILIES, GREY, OTHER, colour
from tracekit.render.speeds import speeds
from tracekit.reporting.model import Report
from tracekit.reporting.sections.bars import families
from tracekit.reporting.sections.kernels import KernelTime
from tracekit.reporting.sections.roofs import Roof
from tracekit.units import counted, digits, duration, percent, shape, shorten

Spec = dict[str, Any]

SMALLEST_SHARE = 0.05
"""Percent of GPU time from which on a kernel gets a bubble; so there are 2000 at most."""
LARGEST_BUBBLE = 44
SMALLEST_BUBBLE = 5
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
LOGARITHMIC = {"type": "log", "dtick": 1, "exponentformat": "power"}


def spec(report: Report, name: str) -> Spec:
    """One chart of the report: ``data`` and ``layout`` as plotly takes them.

    Raises:
        TracekitError: There is no chart of that name.
    """
    if name not in FIGURES:
        raise TracekitError(f"the report has no figure {name!r}.", f"Known: {', '.join(FIGURES)}.")
    return FIGURES[name](report)


def time(report: Report) -> Spec:
    """Where the step's time goes, one stacked bar per GPU."""
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": family,
            "y": [bar.label for bar in report.bars],
            "x": [dict(bar.parts).get(family, 0.0) / 1e3 for bar in report.bars],
            "marker": {"color": colour(family), **({"pattern": {"shape": "/"}} if family == "idle" else {})},
            "hovertemplate": "%{y}: %{x:.3g} ms of " + family + "<extra></extra>",
        }
        for family in families(report.bars)
    ]
    axes = {"xaxis": {"title": {"text": "ms per step"}}, "yaxis": {"autorange": "reversed"}}
    return {"data": data, "layout": {"barmode": "stack", **axes}}


def steps(report: Report) -> Spec:
    """The measured steps: GPU busy, only communicating, idle."""
    parts = {
        "GPU busy": [step.kernel_time_us - step.exposed_comm_us for step in report.steps],
        "only communication": [step.exposed_comm_us for step in report.steps],
        "GPU idle": [max(step.time_us - step.kernel_time_us, 0.0) for step in report.steps],
    }
    shades = (FAMILIES["gemm"], FAMILIES["collective"], OTHER)
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


def roofline(report: Report) -> Spec:
    """Kernels with arithmetic: rate over intensity, area by time; roofs of the GPUs."""
    drawn = on_roofline(report)
    bubbles = [_bubbles(family, drawn) for family in dict.fromkeys(kernel.family for kernel in drawn)]
    intensities = [kernel.flops / kernel.bytes for kernel in drawn if kernel.flops and kernel.bytes]
    reach = (min(intensities, default=0.1) / 3, max(*intensities, 1000.0) * 3 if intensities else 1000.0)
    roofs = [line for roof, dash in zip(report.roofs, cycle(DASHES), strict=False) for line in _roof(roof, dash, reach)]
    return {
        "data": [*roofs, *bubbles],
        "layout": {
            "xaxis": {"title": {"text": "FLOP per byte"}, **LOGARITHMIC},
            "yaxis": {"title": {"text": "TFLOP/s"}, **LOGARITHMIC},
            "hovermode": "closest",
        },
    }


def on_roofline(report: Report) -> list[KernelTime]:
    """The kernels that a roofline shows: those with known arithmetic and enough time to be seen."""
    return [kernel for kernel in report.kernels if kernel.flops and kernel.bytes and kernel.share >= SMALLEST_SHARE]


def _bubbles(family: str, kernels: Sequence[KernelTime]) -> Spec:
    largest = max(kernel.time_us for kernel in kernels)
    members = [kernel for kernel in kernels if kernel.family == family]
    sizes = [max(LARGEST_BUBBLE * sqrt(kernel.time_us / largest), SMALLEST_BUBBLE) for kernel in members]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": family,
        "x": [kernel.flops / kernel.bytes for kernel in members if kernel.flops and kernel.bytes],
        "y": [kernel.flops / kernel.time_us / 1e6 for kernel in members if kernel.flops],
        "text": [_label(kernel) for kernel in members],
        "marker": {"color": colour(family), "opacity": 0.75, "size": sizes, "line": {"width": 1, "color": GREY}},
        "hovertemplate": "%{text}<br>%{x:.3g} FLOP/byte, %{y:.3g} TFLOP/s<extra></extra>",
    }


def _label(kernel: KernelTime) -> str:
    utilization = "" if kernel.utilization is None else f", {percent(kernel.utilization)} of the roofline"
    lines = (kernel.op or shorten(kernel.name, 60), f"{kernel.dtype or ''} {shorten(shape(kernel.shape), 60)}".strip())
    escaped = "<br>".join(line.replace("&", "&amp;").replace("<", "&lt;") for line in lines if line)
    return f"{escaped}<br>{duration(kernel.time_us)} in {counted(kernel.count)} launches per step{utilization}"


def _roof(roof: Roof, dash: str, reach: tuple[float, float]) -> Iterator[Spec]:
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
            "hovertemplate": f"{roof.gpu} {dtype}: {digits(peak)} TFLOP/s, {digits(roof.bandwidth_gbps)} GB/s"
            "<extra></extra>",
        }


FIGURES: dict[str, Callable[[Report], Spec]] = {
    "time": time,
    "roofline": roofline,
    "speeds": speeds,
    "steps": steps,
}
"""Every chart by its name."""
