"""Activities that start later than their launch and their stream allow: which activity they waited for."""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.edges import Edges
from tracekit.graph.nodes import NONE, Nodes
from tracekit.rules import Rule
from tracekit.trace import RankTrace

EVENT_WAITS_RULE = Rule(
    "event-waits",
    "A delayed activity waited for the activity of another stream that ended right before it started.",
    "HTA's trace_diff on a V100: 0.8 % short without the rule, 0.4 % with it. The limits for ROCm come from "
    "MI300X traces.",
)
"""Waits between streams through CUDA events, which PyTorch's default traces do not record.

An activity that starts later than its launch and its stream allow has waited. If an activity on another stream of the
device ended right then, it was the awaited one.
"""
# The awaited activity ends at most this long before its waiter starts (15 to 18 us in MI300X traces) and, because
# clocks jitter, at most MAX_OVERLAP_NS after.
MAX_WAKE_NS = 12_000
MAX_WAKE_ROCM_NS = 25_000
MAX_OVERLAP_NS = 500
# Number of candidates: only a few activities end within MAX_WAKE_NS.
MAX_CANDIDATES = 8


def find_just_ended(nodes: Nodes, device: Ints, waiting: Ints) -> Ints:
    """Return the activity on another stream of the same device that ended nearest to each start, or ``NONE``."""
    start = nodes.start_ns[waiting]
    since = start - (MAX_WAKE_NS if nodes.is_nvidia else MAX_WAKE_ROCM_NS)
    return _find_last_ended(nodes, device, waiting, since, start + MAX_OVERLAP_NS, MAX_CANDIDATES)


LONG_DELAYS_RULE = Rule(
    "long-delays",
    "An activity that is long delayed waited for the last activity to end among those launched earlier.",
    "HTA's trace_diff on a V100: 4.6 % short without the rule, 0.4 % with it. It orders activities right, but may "
    "name the wrong one.",
)
"""Long delays after which nothing had just ended: the activity still waited for another stream."""
# A long delay has a cause even if nothing ended right before its end. At most this fraction of it may have another
# cause, mostly a kernel that left no room.
MIN_LONG_DELAY_NS = 100_000
MAX_UNEXPLAINED_FRACTION = 0.1
MAX_DELAY_CANDIDATES = 32


def find_long_delay_causes(nodes: Nodes, device: Ints, waiting: Ints, ready: Ints) -> Ints:
    """Return the likely cause of long delays: the last activity to end on another stream, among those launched earlier.

    It may have ended a while before: activities that followed it on its stream can have delayed the waiter further.
    """
    found = np.full(waiting.size, NONE)
    start = nodes.start_ns[waiting]
    delay = start - ready[waiting]
    long = delay > MIN_LONG_DELAY_NS
    since = np.ceil(start[long] - MAX_UNEXPLAINED_FRACTION * delay[long]).astype(np.int64)
    found[long] = _find_last_ended(
        nodes, device, waiting[long], since, start[long], MAX_DELAY_CANDIDATES, nodes.launch_start_ns
    )
    return found


DEVICE_WAITS_RULE = Rule(
    "device-waits",
    "A delayed activity that was told to wait did so for the activity of another GPU that ended right before.",
    "A trace made after transformers#21736 (device_map='auto'): a faster GPU would save 0.77 of 2.52 ms without the "
    "rule, 1.47 with it. No public trace at hand has several GPUs in one process.",
)
"""Waits between the GPUs of one process that take turns: copies from one to the other, stages of a model.

A delayed activity whose stream was told to wait for an event, and before which an activity of another GPU had ended,
waited for it. Unlike streams of one GPU, GPUs of one process often work side by side without waiting for each other
(``DataParallel``), so a coincidence in time isn't enough::

    CPU     | launch | cudaMemcpyPeerAsync | cudaStreamWaitEvent | launch |
    GPU 0       |=== kernel ===|== copy ==|
    GPU 1                                  |=== kernel ===|
"""
STREAM_WAIT_CALLS = r"^(cuda|hip|cu)StreamWaitEvent(_ptsz|_spt)?$"


def find_ended_elsewhere(
    trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame, device: Ints, waiting: Ints, ready: Ints
) -> Ints:
    """Return the activity of another GPU that ended last before each start and was launched earlier, or ``NONE``.

    Launched activities ``waiting`` started later than anything else explains; ``ready`` is the earliest start of each
    node by its known dependencies.
    """
    if not waiting.size or np.unique(device).size == 1:
        return np.full(waiting.size, NONE)
    start, called = nodes.start_ns[waiting], nodes.launch_start_ns
    unexplained = (MAX_UNEXPLAINED_FRACTION * (start - ready[waiting])).astype(np.int64)
    since, until = start - np.maximum(MAX_WAKE_ROCM_NS, unexplained), start + MAX_OVERLAP_NS
    found = _find_last_ended(nodes, device, waiting, since, until, MAX_CANDIDATES, called, elsewhere=True)
    is_copy = (kernels["copy_kind"] == "PtoP").fill_null(False).to_numpy()[np.maximum(found - nodes.n_host, 0)]
    told = _was_told_to_wait(trace, nodes, kernels["call"].gather(pl.Series(waiting - nodes.n_host)), waiting)
    return np.where(is_copy | told, found, NONE)


def _was_told_to_wait(trace: RankTrace, nodes: Nodes, calls: pl.Series, waiting: Ints) -> Bools:
    """Return for which activities a call made their stream wait: since the launch before, and on the same thread.

    Without any such call in the trace they may just not have been recorded.
    """
    waits = trace.calls.filter(pl.col("name").str.contains(STREAM_WAIT_CALLS))
    if waits.is_empty():
        return np.ones(waiting.size, dtype=np.bool_)
    before, after = nodes.find_neighbours(nodes.activities)
    launched = np.full(nodes.start_ns.size, np.iinfo(np.int64).min)
    launched[after] = nodes.launch_start_ns[before - nodes.n_host]
    asked = trace.calls.select("pid", "tid", at=pl.col("ts_ns") - nodes.origin_ns)[calls.to_list()]
    asked = asked.with_columns(since=pl.Series(launched[waiting])).with_row_index("place").sort("at")
    told = waits.select("pid", "tid", told=pl.col("ts_ns") - nodes.origin_ns).with_columns(at="told").sort("at")
    joined = asked.join_asof(told, on="at", by=["pid", "tid"], check_sortedness=False).sort("place")
    return joined.select((pl.col("told") > pl.col("since")).fill_null(value=False)).to_series().to_numpy()


CARRIED_IN_RULE = Rule(
    "carried-in",
    "The first activity of a stream that starts late without a cause waited for work from before the trace.",
    "One or two activities in each of six traces of vLLM, SGLang and HTA that begin amid a step; their steps change by "
    "less than 0.01 % without the rule.",
)
"""Activities that waited for work from before the trace: the first of their streams. They are released as measured."""
# Longer delays of a stream's first activity are due to work from before the trace, not to launch latency.
MIN_CARRIED_IN_NS = 50_000


def find_carried_in(nodes: Nodes, unexplained: Ints, ready: Ints, stream: Edges) -> Ints:
    """Return the activities with an unexplained delay that are the first of their stream.

    In a trace without earlier work, an activity that starts while its launch call still runs is not one of them: the
    call was staging memory.
    """
    has_predecessor = np.zeros(nodes.start_ns.size, dtype=np.bool_)
    has_predecessor[stream.dst // 2] = True
    late = nodes.start_ns[unexplained] - ready[unexplained] > MIN_CARRIED_IN_NS
    launcher = nodes.launcher[unexplained - nodes.n_host]
    staged = (nodes.launcher != NONE).all() & (nodes.start_ns[unexplained] < nodes.end_ns[launcher])
    carried_in: Ints = unexplained[late & ~has_predecessor[unexplained] & ~staged]
    return carried_in


def _find_last_ended(
    nodes: Nodes,
    device: Ints,
    waiting: Ints,
    since: Ints,
    until: Ints,
    depth: int,
    called: Ints | None = None,
    *,
    elsewhere: bool = False,
) -> Ints:
    """Return the last activity that ended between two times on another stream of the same device; ``NONE`` without one.

    The ends that count are from ``since`` to ``until``, for each of the activities ``waiting``; the last ``depth`` to
    end are checked. With ``called``, the launch time of each activity, only those count that were launched before the
    waiting one; with ``elsewhere`` those of other devices.
    """
    by_end = nodes.activities[np.argsort(nodes.end_ns[nodes.activities], kind="stable")]
    last = np.searchsorted(nodes.end_ns[by_end], until, side="right") - 1
    found = np.full(waiting.size, NONE)
    for back in range(depth):
        candidate = by_end[np.maximum(last - back, 0)]
        fits = (
            (last >= back)
            & (nodes.end_ns[candidate] >= since)
            & (nodes.start_ns[candidate] < nodes.start_ns[waiting])
            & (nodes.lane[candidate] != nodes.lane[waiting])
            & ((device[candidate - nodes.n_host] != device[waiting - nodes.n_host]) == elsewhere)
        )
        if called is not None:
            fits &= called[candidate - nodes.n_host] < called[waiting - nodes.n_host]
        found = np.where((found == NONE) & fits, candidate, found)
    return found
