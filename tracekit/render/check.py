"""The dependency graph held against what was measured."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.render.grid import plain
from tracekit.render.streams import screen as stream_screen
from tracekit.replay.check import Check
from tracekit.reporting.sections.streams import StreamTime

HEADINGS = ("edge", "edges", "lag µs", "10 %", "90 %", "binds", "then later by µs")


def below(shown: RenderableType, found: Check | None, streams: Sequence[StreamTime] = ()) -> RenderableType:
    """A screen with that of the streams and the graph's below it, if that was asked for."""
    if found is None:
        return shown
    return Group(shown, *([stream_screen(streams)] if streams else []), screen(found))


def screen(found: Check) -> RenderableType:
    """Errors, and a row per kind of edge."""
    table = plain()
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "edge" else "right")
    for edge, edges, lag, low, high, binds, beyond in found.constants.iter_rows():
        later = "–" if beyond is None else f"{beyond:,.2f}"
        table.add_row(edge, f"{edges:,}", f"{lag:,.2f}", f"{low:,.2f}", f"{high:,.2f}", f"{binds:,}", later)
    half, most = (found.start_error_us[part] for part in (0.5, 0.99))
    return Group(
        Text(),
        Text("dependency graph", style="bold"),
        Text(f"  with what was measured beyond the lags the replay is off by {found.exact_error_ns} ns"),
        Text(
            f"  without, half of the kernels start within {half:,.1f} µs of the measured time, 99 % within {most:,.1f}"
        ),
        Text(
            f"  {found.recorded_waits:,} waits recorded, {found.inferred_waits:,} inferred from times and names; "
            f"{found.dropped:,} inferred edges left out, as they contradict others"
        ),
        Text(),
        table,
    )


def as_dict(found: Check | None) -> dict[str, Any] | None:
    """The same for JSON."""
    if found is None:
        return None
    return {
        "exact_error_ns": found.exact_error_ns,
        "start_error_us": {f"{100 * part:g}": error for part, error in found.start_error_us.items()},
        "recorded_waits": found.recorded_waits,
        "inferred_waits": found.inferred_waits,
        "dropped_edges": found.dropped,
        "edges": found.constants.to_dicts(),
    }
