"""Pauses of CPU threads in which they waited for the GPU, or for another thread."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.rules import Rule
from tracekit.trace import RankTrace

POLLED_KERNELS_RULE = Rule(
    "polled-kernels",
    "The host waits for DeepEP's notify_dispatch by reading memory in a loop.",
    "DeepEP's source, and DualPipe traces of an H800: without the rule a GPU of twice the speed would save 9 % of that "
    "step, not 44 %.",
)
"""Kernels whose result the host polls for, without a call that the profiler would record.

DeepEP's ``notify_dispatch`` counts the tokens that each rank will receive and writes the counts to host memory. The
host reads that memory in a loop, to allocate the buffers (deepseek-ai/DeepEP, csrc/deep_ep.cpp, "Wait the token
counts"). Only kernels known to be polled are considered: any pause might end near some kernel by chance.
"""

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


LAUNCH_AHEAD_RULE = Rule(
    "launch-ahead",
    "A thread that repeatedly resumes at the same delay after an earlier step's end waited for that step.",
    "One vLLM worker on a GH200 (all four thresholds).",
)
"""Threads that launch steps ahead, and pause until the GPU has finished an earlier step.

Workers of serving engines do this. The scheduler, in another process or thread, learns that a step is over and tells
the worker to launch the step after the next. No call of the worker shows the wait. But while the GPU still has a later
step to run, the GPU is not waiting for the thread. So if the thread resumes repeatedly at about the same delay after
the end of an earlier step, the thread waited for that step::

    GPU      |==== step 1 ====||==== step 2 ====||==== step 3 ====|
    worker     |launch 2|   pause   |launch 3|   pause   |launch 4|
                              |----| 0.75 to 1.1 ms after the end of step 1
"""

# Shorter pauses are the CPU's own work.
MIN_STEP_PAUSE_NS = 1_000_000
# A vLLM worker on a GH200 resumes 0.75 to 1.1 ms after the end of the step.
MAX_RESUME_DELAY_NS = 2_000_000
MAX_SPREAD_NS = 200_000
# How many pauses have to end like that, and which fraction of all pauses of the thread.
MIN_PAUSES = 3
MIN_PAUSE_FRACTION = 0.7


def find_launch_ahead_waits(nodes: Nodes) -> HostWaits:
    """Find the pauses in which threads waited for the GPU."""
    lanes = np.unique(nodes.lane[nodes.launcher[nodes.launcher != NONE]]).tolist()
    found = [(EMPTY_NODES,) * 4, *(_find_on_thread(nodes, lane) for lane in lanes)]
    activity, receiver, idle, lag = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return HostWaits(Edges(EdgeKind.SYNC, to_end_vertices(activity), to_start_vertices(receiver), lag), receiver, idle)


def _find_on_thread(nodes: Nodes, lane: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return activity, next call, idle time and lag of each wait of one thread."""
    mine = nodes.busy_lane == lane
    start, end = nodes.busy_start_ns[mine][1:], nodes.busy_end_ns[mine][:-1]
    paused = start - end > MIN_STEP_PAUSE_NS
    resumed, idle = start[paused], (start - end)[paused]
    activity = _find_last_done(nodes, lane, resumed)
    receiver = nodes.find_first_from(np.full(resumed.size, lane), resumed)
    late = resumed - nodes.end_ns[activity]
    waited = (activity != NONE) & (receiver != NONE) & (late < np.minimum(idle, MAX_RESUME_DELAY_NS))
    if (
        waited.sum() < max(MIN_PAUSES, MIN_PAUSE_FRACTION * resumed.size)
        or _compute_spread(late[waited]) > MAX_SPREAD_NS
    ):
        return EMPTY_NODES, EMPTY_NODES, EMPTY_NODES, EMPTY_NODES
    lag = round(float(np.median(late[waited]))) + nodes.start_ns[receiver] - resumed
    return activity[waited], receiver[waited], idle[waited], lag[waited]


def _find_last_done(nodes: Nodes, lane: int, resumed: Ints) -> Ints:
    """Return the last activity of the latest finished burst of launches; ``NONE`` if every burst had finished.

    If all were finished, the GPU was waiting for the thread.
    """
    launched = nodes.activities[nodes.launcher != NONE]
    launched = launched[nodes.lane[nodes.launcher[launched - nodes.n_host]] == lane]
    launched = launched[np.argsort(nodes.end_ns[launched], kind="stable")]
    burst = np.searchsorted(resumed, nodes.start_ns[nodes.launcher[launched - nodes.n_host]], side="right")
    last = np.full(resumed.size + 1, NONE)
    last[burst] = launched
    ended = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    reached = np.maximum.accumulate(ended)
    latest = np.maximum.accumulate(np.where(ended == reached, np.arange(ended.size), 0))
    over = np.searchsorted(reached, resumed, side="right") - 1
    ahead = (over >= 0) & (over < np.arange(resumed.size))
    return np.where(ahead, last[latest[over]], NONE)


def _compute_spread(values: Ints) -> float:
    """Return the median absolute deviation."""
    return float(np.median(np.abs(values - np.median(values))))


THREAD_HANDOVERS_RULE = Rule(
    "thread-handovers",
    "A thread that resumes right after another became quiet waited for it.",
    "PyTorch's autograd threads: ResNet-50 on a V100 is predicted 2.3 times as long on an H100 without the rule. "
    "The first rule to doubt where many threads are busy.",
)
"""Hand-overs from one CPU thread to another.

Between two calls a thread either works (the gap is CPU time and is kept) or waits for another thread: the main thread
during ``backward()``, which runs on autograd's own thread, and that thread between two backward passes. No event
records this. The rule: a thread that becomes quiet, and resumes after another thread that ran meanwhile became quiet,
waited for it::

    main       |==|            quiet             |====|
    autograd        |====== backward ======|
                                           |--| hand-over

A thread whose call waits for the GPU does not count as running: serving engines leave the waiting to a separate thread,
whose call began long before the first thread became quiet (vLLM).
"""
# Shorter pauses are Python between two ops; waking a thread alone takes 5 to 50 us.
MIN_QUIET_NS = 50_000
BEFORE_TRACE_NS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Handovers:
    """Nodes that hand over, nodes that take over, and the idle time of the latter's thread before."""

    giver: Ints
    receiver: Ints
    idle_ns: Ints


NO_HANDOVERS = Handovers(EMPTY_NODES, EMPTY_NODES, EMPTY_NODES)


@dataclass(frozen=True, slots=True)
class _Bursts:
    """Periods of work on a thread without a pause longer than ``MIN_QUIET_NS``, of all threads."""

    lane: Ints
    start_ns: Ints
    end_ns: Ints
    quiet_since_ns: Ints


def find_handovers(nodes: Nodes, own_ns: Ints) -> Handovers:
    """Find, for each burst, the last burst on another thread that lies entirely within the pause before it.

    ``own_ns`` is the duration of every host node without its waits.
    """
    waiting = np.flatnonzero(nodes.dur_ns[: nodes.n_host] - own_ns > MIN_QUIET_NS)
    mine = _find_bursts(nodes.busy_lane, nodes.busy_start_ns, nodes.busy_end_ns)
    theirs = _find_bursts(*_subtract_waits(nodes, waiting))
    giver_lane, giver_end = _find_givers(mine, theirs)
    receiver = nodes.find_first_from(mine.lane, mine.start_ns)
    giver = nodes.find_last_until(giver_lane, giver_end)
    idle = np.where(mine.quiet_since_ns == BEFORE_TRACE_NS, 0, mine.start_ns - mine.quiet_since_ns)
    known = (giver_lane != NONE) & (receiver != NONE) & (giver != NONE)
    return Handovers(giver[known], receiver[known], idle[known])


def _subtract_waits(nodes: Nodes, waiting: Ints) -> tuple[Ints, Ints, Ints]:
    """Subtract waiting calls from their threads' busy intervals: lane, start and end of what remains.

    Of a call with nothing after it the return remains.
    """
    lane = np.concatenate([nodes.busy_lane, nodes.lane[waiting]])
    start = np.concatenate([nodes.busy_start_ns, nodes.end_ns[waiting]])
    end = np.concatenate([nodes.busy_end_ns, nodes.start_ns[waiting]])
    is_call = np.arange(lane.size) >= nodes.busy_lane.size
    by_start, by_end = np.lexsort((start, lane)), np.lexsort((end, lane))
    start, end, called = start[by_start], end[by_end], is_call[by_end]
    left = (start < end) | ~called
    return lane[by_start][left], start[left], end[left]


def _find_bursts(lane: Ints, start: Ints, end: Ints) -> _Bursts:
    """Join busy intervals, sorted by lane and start, into bursts."""
    if not lane.size:
        return _Bursts(lane, start, end, end)
    new_lane = np.concatenate([[True], lane[1:] != lane[:-1]])
    first = new_lane | np.concatenate([[True], start[1:] - end[:-1] > MIN_QUIET_NS])
    last = np.concatenate([first[1:], [True]])
    quiet_since = np.concatenate([[BEFORE_TRACE_NS], end[last][:-1]])
    return _Bursts(lane[first], start[first], end[last], np.where(new_lane[first], BEFORE_TRACE_NS, quiet_since))


def _find_givers(mine: _Bursts, theirs: _Bursts) -> tuple[Ints, Ints]:
    """Find lane and end of the burst that hands over to each of ``mine``; ``NONE`` without one.

    It is looked for from the latest burst that ended before back to the first that ended within the pause.
    """
    by_end = np.lexsort((-theirs.lane, theirs.end_ns))
    lane, start, end = theirs.lane[by_end], theirs.start_ns[by_end], theirs.end_ns[by_end]
    place = np.searchsorted(end, mine.start_ns, side="right") - 1
    found_lane, found_end = np.full(mine.lane.size, NONE), np.full(mine.lane.size, BEFORE_TRACE_NS)
    searching = np.flatnonzero(place >= 0)
    while searching.size:
        at = place[searching]
        fits = (lane[at] != mine.lane[searching]) & (start[at] >= mine.quiet_since_ns[searching])
        found_lane[searching[fits]], found_end[searching[fits]] = lane[at[fits]], end[at[fits]]
        goes_on = ~fits & (at > 0) & (end[at] > mine.quiet_since_ns[searching])
        searching = searching[goes_on]
        place[searching] -= 1
    return found_lane, found_end
