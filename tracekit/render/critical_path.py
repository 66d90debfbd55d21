"""Render the critical path and the step times with faster parts on a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.format import format_duration, format_percent, shorten, shorten_kernel_name
from tracekit.render.grid import make_time_list
from tracekit.render.speeds import describe_speeds
from tracekit.render.step_facts import name_place
from tracekit.reporting.model import Report

MAX_OPS = 5
MAX_OP_CHARS = 60


def render_critical_path(report: Report) -> RenderableType:
    """Render where the critical path runs, its largest ops, and the ops close to it."""
    found = report.critical
    parts: list[RenderableType] = [
        Text(" · ".join(f"{name_place(place)} {format_percent(share)}" for place, share in found.places)),
        make_time_list(
            (
                row.time_us,
                row.share,
                Text.assemble(shorten(shorten_kernel_name(row.op), MAX_OP_CHARS), (f", {name_place(row.on)}", "dim")),
            )
            for row in found.ops[:MAX_OPS]
        ),
    ]
    if found.near:
        near = ", ".join(
            f"{shorten(shorten_kernel_name(row.op), MAX_OP_CHARS)} (by {format_duration(row.slack_us)})"
            for row in found.near
        )
        parts.append(Text(f"nearly on it: {near}", style="dim"))
    return Group(*parts)


def render_speed_lines(report: Report) -> RenderableType:
    """Render one line each for the GPU, the CPU and the network."""
    return Group(*(Text(str(line)) for line in describe_speeds(report)))
