"""The host waiting for a kernel in a loop of its own, without a call that the profiler would record.

DeepEP's ``notify_dispatch`` counts how many tokens each rank will receive and writes that to host memory, where the
host reads until it has come, to allocate the buffers (deepseek-ai/DeepEP, csrc/deep_ep.cpp, "Wait the token counts").
Only kernels that are known to do so are looked at: any pause might end with some kernel by chance.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NONE, Nodes
from tracekit.trace import RankTrace

POLLED = r"::notify_dispatch\b"
# The counts are there some 25 to 70 us before the kernel ends (on an H800); shorter pauses are no wait.
NEAR_ITS_END_NS = 100_000
PAUSE_NS = 50_000
NEVER = np.iinfo(np.int64).max // 2


@dataclass(frozen=True, slots=True)
class Polls:
    """Edges from the end of a polled kernel to the call after the loop, that call, and how long the loop ran."""

    edges: Edges
    receiver: Ints
    idle_ns: Ints


def find(trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame) -> Polls:
    """The loops of a trace.

    Args:
        trace: The trace.
        nodes: Its nodes.
        kernels: Its kernel table.
    """
    polled = nodes.activities[kernels["name"].str.contains(POLLED).to_numpy()]
    polled = polled[nodes.launcher[polled - nodes.cpu] != NONE]
    call = nodes.launcher[polled - nodes.cpu]
    resumed = _next_on_thread(trace, nodes, kernels[polled - nodes.cpu]["call"], nodes.end_ns[call])
    receiver = nodes.first_from(nodes.lane[call], resumed)
    idle = resumed - nodes.end_ns[call]
    waited = (receiver != NONE) & (idle > PAUSE_NS) & (np.abs(resumed - nodes.end_ns[polled]) < NEAR_ITS_END_NS)
    polled, receiver, idle = polled[waited], receiver[waited], idle[waited]
    lag = nodes.start_ns[receiver] - nodes.end_ns[polled]
    return Polls(Edges(EdgeKind.SYNC, ends(polled), starts(receiver), lag), receiver, idle)


def together(*found: Polls) -> Polls:
    """Waits that were found in several ways."""
    src, dst, lag = (np.concatenate([getattr(one.edges, part) for one in found]) for part in ("src", "dst", "lag_ns"))
    receiver, idle = (np.concatenate([getattr(one, part) for one in found]) for part in ("receiver", "idle_ns"))
    return Polls(Edges(EdgeKind.SYNC, src, dst, lag), receiver, idle)


def _next_on_thread(trace: RankTrace, nodes: Nodes, calls: pl.Series, after: Ints) -> Ints:
    """When the threads of some calls did anything again after a time; never, if they didn't."""
    threads = trace.calls.select("pid", "tid")[calls].with_columns(time=pl.Series(after + nodes.origin_ns))
    events = pl.concat([table.select("pid", "tid", time="ts_ns", found="ts_ns") for table in (trace.ops, trace.calls)])
    joined = (
        threads.with_columns(place=pl.int_range(pl.len()))
        .sort("time")
        .join_asof(events.sort("time"), on="time", by=["pid", "tid"], strategy="forward", check_sortedness=False)
    )
    return joined.sort("place")["found"].fill_null(NEVER).to_numpy() - nodes.origin_ns
