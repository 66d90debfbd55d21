"""Kernels whose result the host polls for, without a call that the profiler would record.

DeepEP's ``notify_dispatch`` counts the tokens that each rank will receive and writes the counts to host memory. The
host reads that memory in a loop, to allocate the buffers (deepseek-ai/DeepEP, csrc/deep_ep.cpp, "Wait the token
counts"). Only kernels known to be polled are considered: any pause might end near some kernel by chance.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.rules import Rule
from tracekit.trace import RankTrace

RULE = Rule(
    "polled-kernels",
    "The host waits for DeepEP's notify_dispatch by reading memory in a loop.",
    "DeepEP's source, and DualPipe traces of an H800: without the rule a GPU of twice the speed would save 9 % of that "
    "step, not 44 %.",
)

POLLED_KERNELS = r"::notify_dispatch\b"
# The counts arrive 25 to 70 us before the kernel ends (on an H800). Shorter pauses are not waits.
MAX_RESUME_OFFSET_NS = 100_000
MIN_PAUSE_NS = 50_000
NEVER_NS = np.iinfo(np.int64).max // 2


@dataclass(frozen=True, slots=True)
class HostWaits:
    """Edges from awaited activities to the call after the wait, that call, and the idle time before it."""

    edges: Edges
    receiver: Ints
    idle_ns: Ints


NO_WAITS = HostWaits(Edges(EdgeKind.SYNC, EMPTY_NODES, EMPTY_NODES, EMPTY_NODES), EMPTY_NODES, EMPTY_NODES)


def find_polled_kernels(trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame) -> HostWaits:
    """Find the polling loops of a trace."""
    polled = nodes.activities[kernels["name"].str.contains(POLLED_KERNELS).to_numpy()]
    polled = polled[nodes.launcher[polled - nodes.n_host] != NONE]
    if not polled.size:
        return NO_WAITS
    call = nodes.launcher[polled - nodes.n_host]
    resumed = _find_next_on_thread(trace, nodes, kernels[polled - nodes.n_host]["call"], nodes.end_ns[call])
    receiver = nodes.find_first_from(nodes.lane[call], resumed)
    idle = resumed - nodes.end_ns[call]
    waited = (
        (receiver != NONE) & (idle > MIN_PAUSE_NS) & (np.abs(resumed - nodes.end_ns[polled]) < MAX_RESUME_OFFSET_NS)
    )
    polled, receiver, idle = polled[waited], receiver[waited], idle[waited]
    lag = nodes.start_ns[receiver] - nodes.end_ns[polled]
    return HostWaits(Edges(EdgeKind.SYNC, to_end_vertices(polled), to_start_vertices(receiver), lag), receiver, idle)


def merge_host_waits(*found: HostWaits) -> HostWaits:
    """Concatenate waits found by several rules."""
    src, dst, lag = (np.concatenate([getattr(one.edges, part) for one in found]) for part in ("src", "dst", "lag_ns"))
    receiver, idle = (np.concatenate([getattr(one, part) for one in found]) for part in ("receiver", "idle_ns"))
    return HostWaits(Edges(EdgeKind.SYNC, src, dst, lag), receiver, idle)


def _find_next_on_thread(trace: RankTrace, nodes: Nodes, calls: pl.Series, after: Ints) -> Ints:
    """Return when the thread of each call next ran an op or call after a time; ``NEVER_NS`` if it did not."""
    threads = trace.calls.select("pid", "tid")[calls].with_columns(time=pl.Series(after + nodes.origin_ns))
    events = pl.concat([table.select("pid", "tid", time="ts_ns", found="ts_ns") for table in (trace.ops, trace.calls)])
    joined = (
        threads.with_columns(place=pl.int_range(pl.len()))
        .sort("time")
        .join_asof(events.sort("time"), on="time", by=["pid", "tid"], strategy="forward", check_sortedness=False)
    )
    return joined.sort("place")["found"].fill_null(NEVER_NS).to_numpy() - nodes.origin_ns
