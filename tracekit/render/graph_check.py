"""Render the check of the dependency graph against the measured times."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.analysis.self_check import GraphSelfCheck
from tracekit.render.grid import make_plain_table
from tracekit.render.stream_times import render_copies as copy_screen
from tracekit.render.stream_times import render_streams as stream_screen
from tracekit.reporting.sections.copies import CopyTime
from tracekit.reporting.sections.streams import StreamTime

EDGE_HEADINGS = ("edge", "edges", "lag µs", "10 %", "90 %", "binds", "then later by µs")


def append_graph_check(
    shown: RenderableType,
    found: GraphSelfCheck | None,
    streams: Sequence[StreamTime] = (),
    copies: Sequence[CopyTime] = (),
) -> RenderableType:
    """Append stream times, copies and the graph check to a screen; without a check return the screen unchanged."""
    if found is None:
        return shown
    sections = [*([stream_screen(streams)] if streams else []), *([copy_screen(copies)] if copies else [])]
    return Group(shown, *sections, render_graph_check(found))


def render_graph_check(found: GraphSelfCheck) -> RenderableType:
    """Render the replay errors and one table row per edge kind."""
    table = make_plain_table()
    for heading in EDGE_HEADINGS:
        table.add_column(heading, justify="left" if heading == "edge" else "right")
    for edge, edges, lag, low, high, binds, beyond in found.edge_kind_stats.iter_rows():
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


def as_dict(found: GraphSelfCheck | None) -> dict[str, Any] | None:
    """Return the graph check as a dictionary for JSON; ``None`` without a check."""
    if found is None:
        return None
    return {
        "exact_error_ns": found.exact_error_ns,
        "start_error_us": {f"{100 * part:g}": error for part, error in found.start_error_us.items()},
        "recorded_waits": found.recorded_waits,
        "inferred_waits": found.inferred_waits,
        "dropped_edges": found.dropped,
        "edges": found.edge_kind_stats.to_dicts(),
    }
