"""Roofline chart: the rate of each kernel over its arithmetic intensity, under the limits of each GPU."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from math import sqrt

from tracekit.format import format_duration, format_number, format_percent, format_quantity, format_shape, shorten
from tracekit.render.charts.model import Axis, Chart, Series
from tracekit.render.colours import GREY, get_family_colour
from tracekit.reporting.model import Report
from tracekit.reporting.sections.kernels import KernelTime, Roof

MIN_BUBBLE_SHARE_PCT = 0.05
"""Kernels with a smaller percentage of kernel time get no bubble."""
MAX_BUBBLES = 100
"""Kernels with most time that get a bubble: more would cover each other."""
BUBBLE_SIZES_PX = (5.0, 8.0, 12.0, 18.0, 28.0, 44.0)
"""Diameters of bubbles: few, so that each shape is stored once in a page."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def build_roofline_chart(report: Report) -> Chart:
    """Build the roofline chart: kernels as bubbles (rate over intensity, area by time), GPUs as roofs."""
    drawn = select_roofline_kernels(report)
    intensities = [kernel.flops / kernel.bytes for kernel in drawn if kernel.flops and kernel.bytes]
    reach = (min(intensities, default=0.1) / 3, max(*intensities, 1000.0) * 3 if intensities else 1000.0)
    roofs = [
        line
        for roof, dash in zip(report.roofs, cycle(DASHES), strict=False)
        for line in _build_roof_lines(roof, dash, reach, report.source.label)
    ]
    bubbles = [_build_bubbles(family, drawn) for family in dict.fromkeys(kernel.family for kernel in drawn)]
    return Chart(
        name="roofline",
        title="Roofline: rate of the kernels over their arithmetic intensity",
        x=Axis("FLOP per byte", is_logarithmic=True),
        y=Axis("TFLOP/s", is_logarithmic=True),
        series=(*roofs, *bubbles),
        height_px=480,
    )


def select_roofline_kernels(report: Report) -> list[KernelTime]:
    """Select the kernels for the roofline chart: known FLOPs and bytes, and enough time to be visible."""
    known = (kernel for kernel in report.kernels if kernel.flops and kernel.bytes)
    return [kernel for kernel in known if kernel.share >= MIN_BUBBLE_SHARE_PCT][:MAX_BUBBLES]


def _build_bubbles(family: str, kernels: Sequence[KernelTime]) -> Series:
    largest = max(kernel.time_us for kernel in kernels)
    members = [kernel for kernel in kernels if kernel.family == family]
    return Series(
        name=family,
        kind="points",
        x=tuple(kernel.flops / kernel.bytes for kernel in members if kernel.flops and kernel.bytes),
        y=tuple(kernel.flops / kernel.time_us / 1e6 for kernel in members if kernel.flops),
        texts=tuple(map(_describe_kernel, members)),
        sizes_px=tuple(_choose_size(kernel.time_us / largest) for kernel in members),
        colour=get_family_colour(family),
    )


def _choose_size(fraction_of_largest: float) -> float:
    """Choose the diameter whose area is nearest to a fraction of the largest bubble's."""
    wanted = BUBBLE_SIZES_PX[-1] * sqrt(fraction_of_largest)
    return min(BUBBLE_SIZES_PX, key=lambda size: abs(size - wanted))


def _describe_kernel(kernel: KernelTime) -> str:
    roof = "" if kernel.utilization is None else f", {format_percent(kernel.utilization)} of the roofline"
    what = " ".join(part for part in (kernel.dtype, shorten(format_shape(kernel.shape), 60)) if part)
    name = shorten(kernel.op or kernel.name, 60)
    spent = f"{format_duration(kernel.time_us)} in {format_quantity(kernel.count, 'launch')} per step{roof}"
    return ", ".join(part for part in (name, what, spent) if part)


def _build_roof_lines(roof: Roof, dash: str, reach: tuple[float, float], here: str) -> Iterator[Series]:
    for i, (dtype, peak) in enumerate(roof.peak_tflops):
        ridge = peak * 1e3 / roof.bandwidth_gbps
        begin = reach[0] if i == 0 else min(ridge, reach[1])
        inner = [ridge] if begin < ridge < reach[1] else []
        x = (begin, *inner, reach[1])
        limits = f"{roof.gpu} {dtype}: {format_number(peak)} TFLOP/s, {format_number(roof.bandwidth_gbps)} GB/s"
        yield Series(
            name=f"{roof.gpu}{f' ({here})' if roof.measured else ''}",
            kind="lines",
            x=x,
            y=tuple(min(peak, intensity * roof.bandwidth_gbps / 1e3) for intensity in x),
            texts=(limits,) * len(x),
            colour=GREY,
            dash=dash,
            width_px=2.5 if roof.measured else 1.5,
            is_in_legend=i == 0,
        )
