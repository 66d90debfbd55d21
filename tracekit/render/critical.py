"""The critical path, and what faster parts would do, on a terminal."""

from collections.abc import Iterator
from math import isinf

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.reporting.model import Report
from tracekit.units import duration, percent

OPS = 5
GPU_SPEEDS = (2.0, 5.0)


def path(report: Report) -> RenderableType:
    """Where the path runs, the ops with most of it, and those that are near it."""
    found = report.critical
    lines = [Text(" · ".join(f"{place} {percent(share)}" for place, share in found.places))]
    for row in found.ops[:OPS]:
        lines.append(
            Text.assemble(f"{duration(row.time_us):>8} {percent(row.share):>6}  ", row.op, (f" on {row.on}", "dim"))
        )
    if found.near:
        near = ", ".join(f"{row.op} (by {duration(row.slack_us)})" for row in found.near)
        lines.append(Text(f"nearly on it: {near}", style="dim"))
    return Group(*lines)


def speeds(report: Report) -> RenderableType:
    """A line each for the GPU, the CPU and the network."""
    return Group(*map(Text, speed_lines(report)))


def speed_lines(report: Report) -> Iterator[str]:
    """The step with a faster GPU, CPU and network, and from where on another of them is the limit."""
    found = report.speeds
    steps = {(gpu, host): step_us for gpu, host, step_us in found.points}
    gpus = ", ".join(f"{speed:g}x {duration(steps[speed, 1.0])}" for speed in GPU_SPEEDS)
    yield f"GPU {gpus}, never below {duration(found.gpu_floor_us)}; {_limit(found.host_limits_from, 'the CPU')}"
    hosts = ", ".join(f"{h:g}x {duration(us)}" for (g, h), us in steps.items() if g == 1.0 < h and not isinf(h))
    yield f"CPU {hosts}, never below {duration(found.host_floor_us)}; {_limit(found.gpu_limits_from, 'the GPU')}"
    if found.network:
        network = ", ".join(f"{s:g}x {duration(us)}" for s, us in found.network if s > 1 and not isinf(s))
        yield f"network {network}, never below {duration(found.network[-1][1])}"


def _limit(speed: float | None, what: str) -> str:
    if speed is None:
        return f"{what} doesn't become the limit"
    return f"{what} is the limit already" if speed == 1 else f"from {speed:.2g}x on {what} is the limit"
