"""The chart of the step over the GPU's speed."""

from collections.abc import Sequence
from math import ceil, floor, inf, log10
from typing import Any

from tracekit.prediction import Prediction
from tracekit.render.colours import FAMILIES
from tracekit.render.labels import Points, labels, room
from tracekit.render.words import counts_samples
from tracekit.reporting.model import Report

HOSTS = ((FAMILIES["gemm"], "solid"), (FAMILIES["attention"], "dash"), (FAMILIES["conv"], "dot"))
X_TICKS = (1, 1.5, 2, 3, 5)
Y_TICKS = (1, 2, 5)
LINEAR_UP_TO = 20.0
"""Longest step over the shortest from which on all but the longest would lie at the bottom."""
ASIDE = 0.02
"""Part of an axis left free at its ends."""
LEADERS = 0.12
"""Part of the height left free for the lines from labels to points."""

Spec = dict[str, Any]


def speeds(report: Report) -> Spec:
    """The step over the GPU's speed, for the measured host and for faster ones; targets where they lie.

    Where their steps have more samples, their times and speeds are those for the samples of a measured step.
    """
    busy = report.source.kernel_time_us
    placed = sorted(
        (target for target in report.targets if target.step.kernel_time_us),
        key=lambda target: (-target.step.kernel_time_us / target.samples, target.step.step_time_us / target.samples),
    )
    x = [busy * target.samples / target.step.kernel_time_us for target in placed]
    title = "targets with the what-if edits" if report.what_if else "targets"
    data = [*_hosts(report), *([_targets(title, x, placed)] if placed else [])]
    by_sample = counts_samples(report)
    axes = (
        f"speed of the kernels{' for each sample' * by_sample}, multiple of the measured",
        "ms for the samples of a measured step" if by_sample else "ms per step",
    )
    return {"data": data, "layout": _layout(data, [target.label for target in placed], axes)}


def _hosts(report: Report) -> list[Spec]:
    points = report.speeds.points
    hosts = sorted({host for _, host, _ in points})
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": _host(host),
            "x": [gpu for gpu, other, _ in points if other == host],
            "y": [us / 1e3 for _, other, us in points if other == host],
            "line": {"color": shade, "width": 2.5, "dash": dash},
            "hovertemplate": "GPU %{x:g}×, " + _host(host) + ": %{y:.3g} ms<extra></extra>",
        }
        for host, (shade, dash) in zip(hosts, HOSTS, strict=False)
    ]


def _targets(title: str, x: Sequence[float], placed: Sequence[Prediction]) -> Spec:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": title,
        "x": x,
        "y": [target.step.step_time_us / target.samples / 1e3 for target in placed],
        "text": [target.label for target in placed],
        "marker": {"color": FAMILIES["collective"], "size": 10, "symbol": "diamond"},
        "hovertemplate": "%{text}: kernels %{x:.2f}× as fast, step %{y:.3g} ms<extra></extra>",
        "cliponaxis": False,
    }


def _layout(data: Sequence[Spec], names: Sequence[str], titles: tuple[str, str]) -> Spec:
    """Axes with room for the labels of the targets, which are the last of the data."""
    x = [log10(value) for line in data for value in line["x"]]
    y = [value for line in data for value in line["y"]]
    logarithmic = max(y) > LINEAR_UP_TO * min(y) > 0
    if logarithmic:
        y = [log10(value) for value in y]
    aside = ASIDE * (max(x) - min(x))
    bottom = min(y) - ASIDE * (max(y) - min(y)) if logarithmic else 0.0
    top = max(y) + (LEADERS if names else ASIDE) * (max(y) - bottom)
    points = Points(names, x[-len(names) :], y[-len(names) :], min(x) - aside, max(x) + aside, top)
    return {
        "xaxis": {
            **_logarithmic(points.left, points.right, X_TICKS, "{:g}×"),
            "title": {"text": titles[0]},
        },
        "yaxis": {
            **(_logarithmic(bottom, top, Y_TICKS, "{:,.10g}") if logarithmic else {"range": [bottom, top]}),
            "title": {"text": titles[1]},
            "domain": [0, 1 - room(names)],
        },
        "annotations": labels(points),
    }


def _logarithmic(begin: float, end: float, ticks: Sequence[float], form: str) -> Spec:
    """An axis between two exponents, with ticks at these parts of every power of ten."""
    values = [tick * 10.0**power for power in range(floor(begin), ceil(end)) for tick in ticks]
    texts = [form.format(value) for value in values]
    return {"type": "log", "range": [begin, end], "tickvals": values, "ticktext": texts}


def _host(speed: float) -> str:
    if speed == 1:
        return "CPU as measured"
    return "CPU that takes no time" if speed == inf else f"CPU {speed:g}× as fast"
