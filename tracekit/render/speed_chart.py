"""Chart of the step time over the GPU's speed."""

from collections.abc import Sequence
from math import ceil, floor, inf, log10
from typing import Any

from tracekit.prediction.model import PredictedStep
from tracekit.render.chart_labels import LabelledPoints, build_annotations, compute_label_fraction
from tracekit.render.colours import FAMILY_COLOURS
from tracekit.render.sentences import is_per_sample
from tracekit.reporting.model import Report

HOST_STYLES = (
    (FAMILY_COLOURS["gemm"], "solid"),
    (FAMILY_COLOURS["attention"], "dash"),
    (FAMILY_COLOURS["conv"], "dot"),
)
X_TICKS = (1, 1.5, 2, 3, 5)
Y_TICKS = (1, 2, 5)
MAX_LINEAR_RATIO = 20.0
"""Ratio of the longest to the shortest step above which the axis is logarithmic.

On a linear axis, all points but the longest would then lie at the bottom.
"""
AXIS_MARGIN_FRACTION = 0.02
"""Fraction of an axis left free at each end."""
LEADER_FRACTION = 0.12
"""Fraction of the height left free for the lines from labels to points."""

PlotlySpec = dict[str, Any]


def build_speed_chart(report: Report) -> PlotlySpec:
    """Build the chart of the step time over the GPU's speed, for the measured CPU and faster ones, with all targets.

    Where targets process more samples per step, their times and speeds are scaled to the samples of a measured step.
    """
    busy = report.source.kernel_time_us
    placed = sorted(
        (target for target in report.targets if target.step.kernel_time_us),
        key=lambda target: (
            -target.step.kernel_time_us / target.batch_ratio,
            target.step.step_time_us / target.batch_ratio,
        ),
    )
    x = [busy * target.batch_ratio / target.step.kernel_time_us for target in placed]
    title = "targets with the what-if edits" if report.what_if else "targets"
    data = [*_build_host_lines(report), *([_build_target_markers(title, x, placed)] if placed else [])]
    by_sample = is_per_sample(report)
    axes = (
        f"speed of the kernels{' for each sample' * by_sample}, multiple of the measured",
        "ms for the samples of a measured step" if by_sample else "ms per step",
    )
    return {"data": data, "layout": _build_layout(data, [target.label for target in placed], axes)}


def _build_host_lines(report: Report) -> list[PlotlySpec]:
    points = report.speeds.points
    hosts = sorted({host for _, host, _ in points}, key=lambda host: inf if host is None else host)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": _name_host(host),
            "x": [gpu for gpu, other, _ in points if other == host],
            "y": [us / 1e3 for _, other, us in points if other == host],
            "line": {"color": shade, "width": 2.5, "dash": dash},
            "hovertemplate": "GPU %{x:g}×, " + _name_host(host) + ": %{y:.3g} ms<extra></extra>",
        }
        for host, (shade, dash) in zip(hosts, HOST_STYLES, strict=False)
    ]


def _build_target_markers(title: str, x: Sequence[float], placed: Sequence[PredictedStep]) -> PlotlySpec:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": title,
        "x": x,
        "y": [target.step.step_time_us / target.batch_ratio / 1e3 for target in placed],
        "text": [target.label for target in placed],
        "marker": {"color": FAMILY_COLOURS["collective"], "size": 10, "symbol": "diamond"},
        "hovertemplate": "%{text}: kernels %{x:.2f}× as fast, step %{y:.3g} ms<extra></extra>",
        "cliponaxis": False,
    }


def _build_layout(data: Sequence[PlotlySpec], names: Sequence[str], titles: tuple[str, str]) -> PlotlySpec:
    """Build the axes, with space for the labels of the targets, which are the last trace in ``data``."""
    x = [log10(value) for line in data for value in line["x"]]
    y = [value for line in data for value in line["y"]]
    logarithmic = max(y) > MAX_LINEAR_RATIO * min(y) > 0
    if logarithmic:
        y = [log10(value) for value in y]
    aside = AXIS_MARGIN_FRACTION * (max(x) - min(x))
    bottom = min(y) - AXIS_MARGIN_FRACTION * (max(y) - min(y)) if logarithmic else 0.0
    top = max(y) + (LEADER_FRACTION if names else AXIS_MARGIN_FRACTION) * (max(y) - bottom)
    points = LabelledPoints(names, x[-len(names) :], y[-len(names) :], min(x) - aside, max(x) + aside, top)
    return {
        "xaxis": {
            **_build_log_axis(points.left, points.right, X_TICKS, "{:g}×"),
            "title": {"text": titles[0]},
        },
        "yaxis": {
            **(_build_log_axis(bottom, top, Y_TICKS, "{:,.10g}") if logarithmic else {"range": [bottom, top]}),
            "title": {"text": titles[1]},
            "domain": [0, 1 - compute_label_fraction(names)],
        },
        "annotations": build_annotations(points),
    }


def _build_log_axis(begin: float, end: float, ticks: Sequence[float], form: str) -> PlotlySpec:
    """Build an axis between two exponents, with ticks at the given multiples of every power of ten."""
    values = [tick * 10.0**power for power in range(floor(begin), ceil(end)) for tick in ticks]
    texts = [form.format(value) for value in values]
    return {"type": "log", "range": [begin, end], "tickvals": values, "ticktext": texts}


def _name_host(speed: float | None) -> str:
    if speed == 1:
        return "CPU as measured"
    return "CPU that takes no time" if speed is None else f"CPU {speed:g}× as fast"
