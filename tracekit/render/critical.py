"""The critical path, and what faster parts would do, on a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.render.words import place_named, speed_lines
from tracekit.reporting.model import Report
from tracekit.units import duration, kernel_title, percent, shorten

OPS = 5
LONGEST = 60


def path(report: Report) -> RenderableType:
    """Where the path runs, the ops with most of it, and those that are near it."""
    found = report.critical
    lines = [Text(" · ".join(f"{place_named(place)} {percent(share)}" for place, share in found.places))]
    for row in found.ops[:OPS]:
        lines.append(
            Text.assemble(
                f"{duration(row.time_us):>8} {percent(row.share):>6}  ",
                shorten(kernel_title(row.op), LONGEST),
                (f", {place_named(row.on)}", "dim"),
            )
        )
    if found.near:
        near = ", ".join(
            f"{shorten(kernel_title(row.op), LONGEST)} (by {duration(row.slack_us)})" for row in found.near
        )
        lines.append(Text(f"nearly on it: {near}", style="dim"))
    return Group(*lines)


def speeds(report: Report) -> RenderableType:
    """A line each for the GPU, the CPU and the network."""
    return Group(*map(Text, speed_lines(report)))
