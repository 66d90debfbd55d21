"""Calls that block until the GPU has caught up: which activity each waits for, and what it costs by itself.

Names say which calls can block, measured times which activity it was: a call that waited returns right after that
activity ended. Where nothing was left to wait for, the edge is added all the same: on a slower GPU it binds.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph import copies
from tracekit.graph.calls import WAITS_FOR_ALL, WAITS_FOR_EVENT, WAITS_FOR_STREAM
from tracekit.graph.edges import EdgeKind, Edges, ends
from tracekit.graph.nodes import NONE, Nodes
from tracekit.graph.recorded import Recorded

# A call that waited returns soon after the activity it waited for: typically 3 to 10 us. One that takes longer works
# on by itself: moves what was copied to pageable memory, frees memory.
RETURN_WITHIN_NS = 50_000
# Where the activity is a guess, it has to be nearer than that: as a part of the call.
GUESSED_RETURN = 0.01
DEFAULT_RETURN_NS = 5_000
# What a blocking call costs where there is nothing to wait for is 2 to 6 us; a call that always waited can't tell.
MAX_OWN_NS = 10_000
ENOUGH = 5

PINNED = "Pinned"


@dataclass(frozen=True, slots=True)
class Blocking:
    """The edges of blocking calls, what every CPU node takes without its waits, and how many edges are guesses."""

    edges: Edges
    own_ns: Ints
    inferred: int


def link(nodes: Nodes, kernels: pl.DataFrame, recorded: Recorded) -> Blocking:
    """Edges from the activities that blocking calls wait for to the calls' ends."""
    issued = _Issued(nodes)
    guesses = [
        _without(_waits_for_stream(nodes, issued), recorded.known),
        _without(_waits_for_event(nodes, issued), recorded.known),
    ]
    found = [
        _waits_for_all(nodes, issued),
        (recorded.awaited, recorded.call),
        _waits_for_copy(nodes, kernels),
        *guesses,
    ]
    activity, call = (np.concatenate(parts) for parts in zip(*found, strict=True))
    late = nodes.end_ns[call] - nodes.end_ns[activity]
    fed = copies.fed(nodes, kernels)[activity - nodes.cpu] & (call == nodes.launcher[activity - nodes.cpu])
    possible = fed | (late >= 0)
    activity, call, late, fed = activity[possible], call[possible], late[possible], fed[possible]
    waited = (nodes.end_ns[activity] > nodes.start_ns[call]) & _is_last(nodes, call, late)
    at_once = waited & (late < RETURN_WITHIN_NS)
    guessed = np.isin(call, np.concatenate([calls for _, calls in guesses]))
    near = ~guessed | (late < GUESSED_RETURN * nodes.dur_ns[call])
    afterwards = _work_afterwards(nodes, call, late, waited & ~at_once & near)
    usual = np.minimum(_return_lag(nodes, call, late, at_once & ~fed), late.max(initial=0))
    lag = np.where(fed, late, np.where(afterwards[call] > 0, afterwards[call], usual))
    own = np.where(afterwards > 0, afterwards, _own_time(nodes, np.unique(call[at_once])))
    edges = Edges(EdgeKind.SYNC, ends(activity), ends(call), lag)
    return Blocking(edges, own, sum(guessed.size for _, guessed in guesses))


class _Issued:
    """Per stream, its activities in order and when each had been launched."""

    def __init__(self, nodes: Nodes) -> None:
        launched = nodes.launched_ns
        self.streams: list[tuple[Ints, Ints]] = []
        for lane in np.unique(nodes.lane[nodes.cpu :]).tolist():
            on_lane = nodes.activities[nodes.lane[nodes.cpu :] == lane]
            on_lane = on_lane[np.argsort(nodes.start_ns[on_lane], kind="stable")]
            self.streams.append((on_lane, np.maximum.accumulate(launched[on_lane - nodes.cpu])))

    def last_before(self, times: Ints) -> Ints:
        """Per stream (row) and time (column), the last activity launched before; ``NONE`` if there is none."""
        found = np.full((len(self.streams), times.size), NONE)
        for row, (activities, launched) in enumerate(self.streams):
            index = np.searchsorted(launched, times) - 1
            found[row] = np.where(index >= 0, activities[index], NONE)
        return found


def _calls(nodes: Nodes, pattern: str) -> Ints:
    return np.flatnonzero(nodes.names.str.contains(pattern).to_numpy())


def _waits_for_all(nodes: Nodes, issued: _Issued) -> tuple[Ints, Ints]:
    """A device synchronisation waits for the last activity of every stream."""
    calls = _calls(nodes, WAITS_FOR_ALL)
    last = issued.last_before(nodes.start_ns[calls])
    return _pairs(last, np.broadcast_to(calls, last.shape))


def _waits_for_stream(nodes: Nodes, issued: _Issued) -> tuple[Ints, Ints]:
    """The stream isn't recorded: the one that fell idle last within the call; else the latest launch."""
    calls = _calls(nodes, WAITS_FOR_STREAM)
    last = issued.last_before(nodes.start_ns[calls])
    end = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    ended_within = (end > nodes.start_ns[calls]) & (end <= nodes.end_ns[calls])
    launcher = np.where(last == NONE, NONE, nodes.launcher[np.maximum(last - nodes.cpu, 0)])
    launched = np.where(launcher == NONE, NONE, nodes.start_ns[launcher])
    score = np.where(ended_within, end, np.iinfo(np.int64).min // 2 + launched)
    chosen = last[np.argmax(score, axis=0), np.arange(calls.size)] if calls.size else calls
    return _pairs(chosen, calls)


def _waits_for_event(nodes: Nodes, issued: _Issued) -> tuple[Ints, Ints]:
    """The event isn't recorded: the activity that ended last within the call, if any."""
    calls = _calls(nodes, WAITS_FOR_EVENT)
    best, best_end = np.full(calls.size, NONE), nodes.start_ns[calls]
    for activities, launched in issued.streams:
        end = np.maximum.accumulate(nodes.end_ns[activities])
        index = np.minimum(
            np.searchsorted(end, nodes.end_ns[calls], side="right"), np.searchsorted(launched, nodes.start_ns[calls])
        ) - 1  # fmt: skip
        better = (index >= 0) & (end[index] > best_end)
        best, best_end = np.where(better, activities[index], best), np.where(better, end[index], best_end)
    return _pairs(best, calls)


def _waits_for_copy(nodes: Nodes, kernels: pl.DataFrame) -> tuple[Ints, Ints]:
    """A copy from or to pageable memory blocks its own call."""
    stays = (kernels["copy_kind"] == "DtoD").fill_null(False)
    may_block = (kernels["kind"] == "memcpy") & ~stays & ~kernels["name"].str.contains(PINNED)
    copies = nodes.activities[may_block.to_numpy() & (nodes.launcher != NONE)]
    return copies, nodes.launcher[copies - nodes.cpu]


def _without(pairs: tuple[Ints, Ints], known: Ints) -> tuple[Ints, Ints]:
    """Pairs of activity and call, but for calls whose wait is recorded."""
    activity, call = pairs
    unknown = ~np.isin(call, known)
    return activity[unknown], call[unknown]


def _pairs(activity: Ints, call: Ints) -> tuple[Ints, Ints]:
    known = activity != NONE
    return activity[known], call[known]


def _is_last(nodes: Nodes, call: Ints, late: Ints) -> Bools:
    """Of the activities that a call waits for, those that ended last: it returned because of them."""
    least = np.full(nodes.cpu, np.iinfo(np.int64).max)
    np.minimum.at(least, call, late)
    last: Bools = late == least[call]
    return last


def _work_afterwards(nodes: Nodes, call: Ints, late: Ints, waited: Bools) -> Ints:
    """What each CPU node did once its wait was over, if that took longer than returning does; else 0."""
    work = np.zeros(nodes.cpu, dtype=np.int64)
    work[call[waited]] = late[waited]
    return work


def _return_lag(nodes: Nodes, call: Ints, late: Ints, waited: Bools) -> Ints:
    """How long after its activity each call returns: the median over calls of that name that waited."""
    names = nodes.names.gather(pl.Series(call))
    samples = pl.DataFrame({"name": names, "late": pl.Series(late).set(pl.Series(~waited), None)})
    overall = samples["late"].median() or DEFAULT_RETURN_NS
    enough = pl.col("late").count().over("name") >= ENOUGH
    lag = pl.when(enough).then(pl.col("late").median().over("name")).otherwise(overall)
    return samples.select(lag.round().cast(pl.Int64)).to_series().to_numpy()


def _own_time(nodes: Nodes, waited: Ints) -> Ints:
    """Durations of CPU nodes; of those that waited, the tenth percentile of their namesakes, a few us at most."""
    durations = pl.DataFrame({"name": nodes.names, "dur": nodes.dur_ns[: nodes.cpu]})
    low = durations.select(pl.col("dur").quantile(0.1).over("name")).to_series().to_numpy()
    own = nodes.dur_ns[: nodes.cpu].copy()
    own[waited] = np.minimum(np.minimum(low[waited], MAX_OWN_NS), own[waited]).astype(np.int64)
    return own
