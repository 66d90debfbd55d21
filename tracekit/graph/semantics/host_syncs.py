"""Calls that block until the GPU has caught up: which activity each waits for, and how long the call itself takes.

Semantics: names say which calls can block, and device synchronisations and pageable copies say for what. Recorded:
cuda_sync events. Heuristic: for other stream and event synchronisations the awaited activity is inferred from times, as
a call that waited returns right after it ended. The edge is inserted even where nothing was left to wait for: it may
bind on a slower GPU.

Evidence: see "waits for the GPU that don't say so" in docs/contributing/fitting-weights.md (torchao, vLLM and
others): without these edges a faster GPU gains nothing.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices
from tracekit.graph.inference import pageable_copies
from tracekit.graph.nodes import NONE, Nodes
from tracekit.graph.recorded.cuda_sync_events import RecordedWaits
from tracekit.graph.semantics.blocking_calls import DEVICE_SYNC_CALLS, EVENT_SYNC_CALLS, STREAM_SYNC_CALLS

# A call that waited returns soon after the awaited activity: typically 3 to 10 us. One that takes longer does other
# work: it moves data copied to pageable memory, or frees memory.
MAX_RETURN_LAG_NS = 50_000
# Where the activity is inferred, its end has to be nearer to the return than this fraction of the call.
MAX_GUESSED_RETURN_FRACTION = 0.01
DEFAULT_RETURN_LAG_NS = 5_000
# A blocking call with nothing to wait for takes 2 to 6 us. This limits the estimate for calls that always waited.
MAX_OWN_NS = 10_000
MIN_SAMPLES = 5

PINNED_COPY_NAME = "Pinned"


@dataclass(frozen=True, slots=True)
class BlockingWaits:
    """Edges of blocking calls, duration of every host node without its waits, and the number of inferred edges."""

    edges: Edges
    own_ns: Ints
    n_inferred: int


def link_host_syncs(nodes: Nodes, kernels: pl.DataFrame, recorded: RecordedWaits) -> BlockingWaits:
    """Build edges from the activities that blocking calls wait for to the ends of these calls."""
    issued = _IssuedActivities(nodes)
    guesses = [
        _drop_known(_guess_stream_syncs(nodes, issued), recorded.known_calls),
        _drop_known(_guess_event_syncs(nodes, issued), recorded.known_calls),
    ]
    found = [
        _pair_device_syncs(nodes, issued),
        (recorded.awaited, recorded.call),
        _pair_pageable_copies(nodes, kernels),
        *guesses,
    ]
    activity, call = (np.concatenate(parts) for parts in zip(*found, strict=True))
    late = nodes.end_ns[call] - nodes.end_ns[activity]
    fed = pageable_copies.find_staged_copies(nodes, kernels)[activity - nodes.n_host] & (
        call == nodes.launcher[activity - nodes.n_host]
    )
    possible = fed | (late >= 0)
    activity, call, late, fed = activity[possible], call[possible], late[possible], fed[possible]
    waited = (nodes.end_ns[activity] > nodes.start_ns[call]) & _is_last(nodes, call, late)
    at_once = waited & (late < MAX_RETURN_LAG_NS)
    guessed = np.isin(call, np.concatenate([calls for _, calls in guesses]))
    near = ~guessed | (late < MAX_GUESSED_RETURN_FRACTION * nodes.dur_ns[call])
    afterwards = _measure_work_afterwards(nodes, call, late, waited & ~at_once & near)
    usual = np.minimum(_estimate_return_lag(nodes, call, late, at_once & ~fed), late.max(initial=0))
    lag = np.where(fed, late, np.where(afterwards[call] > 0, afterwards[call], usual))
    own = np.where(afterwards > 0, afterwards, _estimate_own_time(nodes, np.unique(call[at_once])))
    edges = Edges(EdgeKind.SYNC, to_end_vertices(activity), to_end_vertices(call), lag)
    return BlockingWaits(edges, own, sum(guessed.size for _, guessed in guesses))


class _IssuedActivities:
    """The activities of each stream in order, with their launch times."""

    def __init__(self, nodes: Nodes) -> None:
        launched = nodes.launch_start_ns
        self.streams: list[tuple[Ints, Ints]] = []
        for lane in np.unique(nodes.lane[nodes.n_host :]).tolist():
            on_lane = nodes.activities[nodes.lane[nodes.n_host :] == lane]
            on_lane = on_lane[np.argsort(nodes.start_ns[on_lane], kind="stable")]
            self.streams.append((on_lane, np.maximum.accumulate(launched[on_lane - nodes.n_host])))

    def find_last_before(self, times: Ints) -> Ints:
        """Return, per stream (row) and time (column), the last activity launched before; ``NONE`` without one."""
        found = np.full((len(self.streams), times.size), NONE)
        for row, (activities, launched) in enumerate(self.streams):
            index = np.searchsorted(launched, times) - 1
            found[row] = np.where(index >= 0, activities[index], NONE)
        return found


def _find_calls(nodes: Nodes, pattern: str) -> Ints:
    return np.flatnonzero(nodes.names.str.contains(pattern).to_numpy())


def _pair_device_syncs(nodes: Nodes, issued: _IssuedActivities) -> tuple[Ints, Ints]:
    """Pair device synchronisations with the last activity of every stream."""
    calls = _find_calls(nodes, DEVICE_SYNC_CALLS)
    last = issued.find_last_before(nodes.start_ns[calls])
    return _drop_missing(last, np.broadcast_to(calls, last.shape))


def _guess_stream_syncs(nodes: Nodes, issued: _IssuedActivities) -> tuple[Ints, Ints]:
    """Infer the stream of stream synchronisations.

    It is the stream that became idle last within the call, else the stream of the latest launch.
    """
    calls = _find_calls(nodes, STREAM_SYNC_CALLS)
    last = issued.find_last_before(nodes.start_ns[calls])
    end = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    ended_within = (end > nodes.start_ns[calls]) & (end <= nodes.end_ns[calls])
    launcher = np.where(last == NONE, NONE, nodes.launcher[np.maximum(last - nodes.n_host, 0)])
    launched = np.where(launcher == NONE, NONE, nodes.start_ns[launcher])
    score = np.where(ended_within, end, np.iinfo(np.int64).min // 2 + launched)
    chosen = last[np.argmax(score, axis=0), np.arange(calls.size)] if calls.size else calls
    return _drop_missing(chosen, calls)


def _guess_event_syncs(nodes: Nodes, issued: _IssuedActivities) -> tuple[Ints, Ints]:
    """Infer the activity of event synchronisations: the one that ended last within the call, if any."""
    calls = _find_calls(nodes, EVENT_SYNC_CALLS)
    best, best_end = np.full(calls.size, NONE), nodes.start_ns[calls]
    for activities, launched in issued.streams:
        end = np.maximum.accumulate(nodes.end_ns[activities])
        index = np.minimum(
            np.searchsorted(end, nodes.end_ns[calls], side="right"), np.searchsorted(launched, nodes.start_ns[calls])
        ) - 1  # fmt: skip
        better = (index >= 0) & (end[index] > best_end)
        best, best_end = np.where(better, activities[index], best), np.where(better, end[index], best_end)
    return _drop_missing(best, calls)


def _pair_pageable_copies(nodes: Nodes, kernels: pl.DataFrame) -> tuple[Ints, Ints]:
    """Pair copies from or to pageable memory with their own calls, which they block."""
    stays = (kernels["copy_kind"] == "DtoD").fill_null(False)
    may_block = (kernels["kind"] == "memcpy") & ~stays & ~kernels["name"].str.contains(PINNED_COPY_NAME)
    pageable_copies = nodes.activities[may_block.to_numpy() & (nodes.launcher != NONE)]
    return pageable_copies, nodes.launcher[pageable_copies - nodes.n_host]


def _drop_known(pairs: tuple[Ints, Ints], known: Ints) -> tuple[Ints, Ints]:
    """Drop the pairs of activity and call whose wait is recorded."""
    activity, call = pairs
    unknown = ~np.isin(call, known)
    return activity[unknown], call[unknown]


def _drop_missing(activity: Ints, call: Ints) -> tuple[Ints, Ints]:
    known = activity != NONE
    return activity[known], call[known]


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
    names = nodes.names.gather(pl.Series(call))
    samples = pl.DataFrame({"name": names, "late": pl.Series(late).set(pl.Series(~waited), None)})
    overall = samples["late"].median() or DEFAULT_RETURN_LAG_NS
    enough = pl.col("late").count().over("name") >= MIN_SAMPLES
    lag = pl.when(enough).then(pl.col("late").median().over("name")).otherwise(overall)
    return samples.select(lag.round().cast(pl.Int64)).to_series().to_numpy()


def _estimate_own_time(nodes: Nodes, waited: Ints) -> Ints:
    """Return durations of host nodes; for those that waited, the tenth percentile by name, at most ``MAX_OWN_NS``."""
    durations = pl.DataFrame({"name": nodes.names, "dur": nodes.dur_ns[: nodes.n_host]})
    low = durations.select(pl.col("dur").quantile(0.1).over("name")).to_series().to_numpy()
    own = nodes.dur_ns[: nodes.n_host].copy()
    own[waited] = np.minimum(np.minimum(low[waited], MAX_OWN_NS), own[waited]).astype(np.int64)
    return own
