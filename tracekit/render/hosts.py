"""Render hosts as text and JSON: the known ones, and what the bench of this machine's says."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.hosts.bench import HostBench
from tracekit.hosts.known import KnownHost
from tracekit.render.json import dump_json
from tracekit.render.screen import make_plain_table


def serialize_hosts(known: Sequence[KnownHost]) -> str:
    """Return the list of hosts as JSON."""
    return dump_json(known)


def render_host_table(known: Sequence[KnownHost]) -> RenderableType:
    """Render a table with one row per host."""
    columns = make_plain_table(gap=1)
    columns.add_column("host", style="bold", no_wrap=True)
    columns.add_column("speed", justify="right", no_wrap=True)
    columns.add_column("beside", no_wrap=True)
    for heading in ("traces", "year"):
        columns.add_column(heading, justify="right", no_wrap=True)
    for one in known:
        columns.add_row(one.slug, f"{one.speed:.2f}", one.gpu, str(one.jobs), str(one.year))
    hint = (
        "Speed: of PyTorch's ops and launches, as traces recorded there show it; PyTorch's version and the profiler's "
        "options are part of it, most of all before 2022. --host takes a name or a speed."
    )
    return Group(columns, Text(hint, "dim"))


def serialize_bench(bench: HostBench) -> str:
    """Return the bench of this machine's host as JSON."""
    return dump_json(bench)


def render_bench(bench: HostBench) -> RenderableType:
    """Render the bench of this machine's host, and what it is good for."""
    found = f"{bench.steps_per_s:,.0f} tiny training steps a second, within {bench.spread_pct:.1f} %"
    hint = (
        "Run this on the trace's machine and on the other one, with the same PyTorch: --host-speed takes the ratio of "
        "the other one's steps to the trace's."
    )
    return Group(Text(f"{found} (PyTorch {bench.torch}, Python {bench.python})"), Text(hint, "dim"))
