"""Chart of the step time over the GPU's speed."""

from collections.abc import Sequence
from math import inf, log10

from tracekit.format import format_duration
from tracekit.prediction.model import PredictedStep
from tracekit.render.charts.model import Axis, Chart, Label, Series
from tracekit.render.charts.ticks import choose_ticks
from tracekit.render.colours import FAMILY_COLOURS
from tracekit.render.step_facts import is_per_sample
from tracekit.reporting.model import Report

HOST_STYLES = (
    (FAMILY_COLOURS["gemm"], "solid"),
    (FAMILY_COLOURS["attention"], "dash"),
    (FAMILY_COLOURS["conv"], "dot"),
)
SPEED_MULTIPLES = (1, 1.5, 2, 3, 5)
MAX_LINEAR_RATIO = 20.0
"""Ratio of the longest to the shortest step above which the axis is logarithmic.

On a linear axis, all points but the longest would then lie at the bottom.
"""
AXIS_MARGIN_FRACTION = 0.02
"""Fraction of an axis left free at each end."""
LEADER_FRACTION = 0.12
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
    above = LEADER_FRACTION if is_labelled else AXIS_MARGIN_FRACTION
    if not max(values) > MAX_LINEAR_RATIO * min(values) > 0:
        return Axis(title, limits=(0.0, (1 + above) * max(values) or 1.0))
    low, high = log10(min(values)), log10(max(values))
    bottom = low - AXIS_MARGIN_FRACTION * (high - low)
    limits = (10**bottom, 10 ** (high + above * (high - bottom)))
    return Axis(title, is_logarithmic=True, limits=limits, ticks=choose_ticks(limits))


def _name_host(speed: float | None, here: str) -> str:
    if speed == 1:
        return f"CPU as {here}"
    return "CPU that takes no time" if speed is None else f"CPU {speed:g}× as fast"
