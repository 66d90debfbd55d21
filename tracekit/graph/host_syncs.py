"""Calls that block until the GPU has caught up: which activity each waits for, and how long the call itself takes.

Names say which calls can block; device synchronisations and pageable copies say for what. The edge is inserted even
where nothing was left to wait for: it may bind on a slower GPU.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, compute_medians, fill_false
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices
from tracekit.graph.inferred import blocking_waits, submissions
from tracekit.graph.inferred.blocking_waits import UnrecordedWork
from tracekit.graph.nodes import (
    DEVICE_SYNC_CALLS,
    NONE,
    PINNED_COPY_NAME,
    ROCM_CLOCK_ERROR_NS,
    IssuedActivities,
    Nodes,
    find_named_copies,
)
from tracekit.graph.recorded import RecordedWaits
from tracekit.rules import RuleNames

# A call that waited returns soon after the awaited activity: typically 3 to 10 us. One that takes longer does other
# work: it moves data copied to pageable memory, or frees memory.
MAX_RETURN_LAG_NS = 50_000
DEFAULT_RETURN_LAG_NS = 5_000
# A blocking call with nothing to wait for takes 2 to 6 us. This limits the estimate for calls that always waited.
MAX_OWN_NS = 10_000
MIN_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class BlockingWaits:
    """Edges of blocking calls, duration of every host node without its waits, and the number of inferred edges.

    ``unrecorded`` are the edges of the calls that went on waiting for work that the trace doesn't hold: as nothing says
    on which stream it ran, it is behind all that the call waits for.
    """

    edges: Edges
    unrecorded: Edges
    own_ns: Ints
    n_inferred: int


def link_host_syncs(
    nodes: Nodes, kernels: pl.DataFrame, recorded: RecordedWaits, unrecorded: UnrecordedWork, without: RuleNames
) -> BlockingWaits:
    """Build edges from the activities that blocking calls wait for to the ends of these calls."""
    issued = IssuedActivities(nodes)
    inferred = blocking_waits.infer_sync_targets(nodes, issued, recorded.known_calls, without)
    found = [
        _pair_device_syncs(nodes, issued),
        (recorded.awaited, recorded.call),
        _pair_pageable_copies(nodes, kernels),
        inferred,
    ]
    activity, call = (np.concatenate(parts) for parts in zip(*found, strict=True))
    late = nodes.end_ns[call] - nodes.end_ns[activity]
    if not nodes.is_nvidia:
        of_device = np.isin(call, found[0][1])
        late = np.where(of_device & (late < 0) & (late >= -ROCM_CLOCK_ERROR_NS), 0, late)
    fed = submissions.find_staged_copies(nodes, kernels, without)[activity - nodes.n_host] & (
        call == nodes.launcher[activity - nodes.n_host]
    )
    possible = fed | (late >= 0)
    activity, call, late, fed = activity[possible], call[possible], late[possible], fed[possible]
    waited = (nodes.end_ns[activity] > nodes.start_ns[call]) & _is_last(nodes, call, late)
    at_once = waited & (late < MAX_RETURN_LAG_NS)
    near = ~np.isin(call, inferred[1]) | (late < blocking_waits.MAX_RETURN_FRACTION * nodes.dur_ns[call])
    works = waited & ~at_once & near & ~np.isin(call, unrecorded.calls)
    afterwards = _measure_work_afterwards(nodes, call, late, works)
    usual = np.minimum(_estimate_return_lag(nodes, call, late, at_once & ~fed), late.max(initial=0))
    lag = np.where(fed, late, np.where(afterwards[call] > 0, afterwards[call], usual))
    own = np.where(afterwards > 0, afterwards, _estimate_own_time(nodes, np.union1d(call[at_once], unrecorded.calls)))
    edges = Edges(EdgeKind.SYNC, to_end_vertices(activity), to_end_vertices(call), lag)
    return BlockingWaits(edges, _link_unrecorded_work(activity, call, unrecorded), own, inferred[1].size)


def _link_unrecorded_work(activity: Ints, call: Ints, unrecorded: UnrecordedWork) -> Edges:
    goes_on = np.isin(call, unrecorded.calls)
    activity, call = activity[goes_on], call[goes_on]
    order = np.argsort(unrecorded.calls)
    lag = unrecorded.calls_ns[order[np.searchsorted(unrecorded.calls, call, sorter=order)]]
    return Edges(EdgeKind.UNRECORDED, to_end_vertices(activity), to_end_vertices(call), lag)


def _pair_device_syncs(nodes: Nodes, issued: IssuedActivities) -> tuple[Ints, Ints]:
    """Pair device synchronisations with the last activity of every stream."""
    calls = nodes.find_calls(DEVICE_SYNC_CALLS)
    last = issued.find_last_before(nodes.start_ns[calls])
    known = last != NONE
    return last[known], np.broadcast_to(calls, last.shape)[known]


def _pair_pageable_copies(nodes: Nodes, kernels: pl.DataFrame) -> tuple[Ints, Ints]:
    """Pair copies from or to pageable memory with their own calls, which they block."""
    stays = fill_false(kernels["copy_kind"] == "DtoD") | find_named_copies(kernels, PINNED_COPY_NAME)
    may_block = (kernels["kind"] == "memcpy").to_numpy() & ~stays
    pageable_copies = nodes.activities[may_block & (nodes.launcher != NONE)]
    return pageable_copies, nodes.launcher[pageable_copies - nodes.n_host]


def _is_last(nodes: Nodes, call: Ints, late: Ints) -> Bools:
    """Return which of the activities that a call waits for ended last: these determine when the call returned."""
    least = np.full(nodes.n_host, np.iinfo(np.int64).max)
    np.minimum.at(least, call, late)
    last: Bools = late == least[call]
    return last


def _measure_work_afterwards(nodes: Nodes, call: Ints, late: Ints, waited: Bools) -> Ints:
    """Measure how long each host node went on after its wait, if that is longer than a return takes; else 0."""
    work = np.zeros(nodes.n_host, dtype=np.int64)
    work[call[waited]] = late[waited]
    return work


def _estimate_return_lag(nodes: Nodes, call: Ints, late: Ints, waited: Bools) -> Ints:
    """Estimate how long after its activity each call returns: the median over calls of the same name that waited."""
    name = nodes.distinct_names.number[call]
    overall = float(np.median(late[waited])) if waited.any() else 0.0
    median, count = compute_medians(late[waited], name[waited], len(nodes.distinct_names.names))
    lag = np.where(count >= MIN_SAMPLES, median, overall or DEFAULT_RETURN_LAG_NS)[name]
    return np.rint(lag).astype(np.int64)


def _estimate_own_time(nodes: Nodes, waited: Ints) -> Ints:
    """Return durations of host nodes; for those that waited, the tenth percentile by name, at most ``MAX_OWN_NS``."""
    if not waited.size:
        return nodes.dur_ns[: nodes.n_host]
    durations = pl.DataFrame({"name": nodes.names, "dur": nodes.dur_ns[: nodes.n_host]})
    low = durations.select(pl.col("dur").quantile(0.1).over("name")).to_series().to_numpy()
    own = nodes.dur_ns[: nodes.n_host].copy()
    own[waited] = np.minimum(np.minimum(low[waited], MAX_OWN_NS), own[waited]).astype(np.int64)
    return own
