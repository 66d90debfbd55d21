"""Render hosts as text and JSON: the known ones, and what the bench of this machine's says."""

from collections.abc import Sequence

from rich.text import Text

from tracekit.hosts.bench import HostBench
from tracekit.hosts.known import KnownHost
from tracekit.render.json import dump_json
from tracekit.render.screen import Listing, Screen


def serialize_hosts(known: Sequence[KnownHost]) -> str:
    """Return the list of hosts as JSON."""
    return dump_json(known)


def render_host_table(known: Sequence[KnownHost]) -> Screen:
    """Render a table with one row per host."""
    rows = ((one.slug, f"{one.speed:.2f}", one.gpu, str(one.jobs), str(one.year)) for one in known)
    hint = (
        "Speed: of PyTorch's ops and launches, as traces recorded there show it; PyTorch's version and the profiler's "
        "options are part of it, most of all before 2022. --host takes a name or a speed."
    )
    headings = ("host", "speed", "beside", "traces", "year")
    return Screen(tables=[Listing(headings, rows, right=("speed", "traces", "year"))], notes=[hint])


def serialize_bench(bench: HostBench) -> str:
    """Return the bench of this machine's host as JSON."""
    return dump_json(bench)


def render_bench(bench: HostBench) -> Screen:
    """Render the bench of this machine's host, and what it is good for."""
    found = f"{bench.steps_per_s:,.0f} tiny training steps a second, within {bench.spread_pct:.1f} %"
    hint = (
        "Run this on the trace's machine and on the other one, with the same PyTorch: --host-speed takes the ratio of "
        "the other one's steps to the trace's."
    )
    return Screen(tables=[Text(f"{found} (PyTorch {bench.torch}, Python {bench.python})")], notes=[hint])
