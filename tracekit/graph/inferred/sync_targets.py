"""Which activity a stream or event synchronisation waits for, where no event records it.

A call that waited returns right after the awaited activity ended.
"""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.blocking_calls import EVENT_SYNC_CALLS, STREAM_SYNC_CALLS
from tracekit.graph.issue_order import IssuedActivities
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.rules import Rule, RuleNames

RULE = Rule(
    "sync-targets",
    "A stream or event synchronisation waited for the activity that ended last within the call.",
    "torchao, vLLM and others: without the rule a faster GPU gains nothing where the host waits in such calls.",
)
MAX_RETURN_FRACTION = 0.01
"""The inferred activity ends nearer to the call's return than this fraction of the call, else it is doubted."""


def infer_sync_targets(nodes: Nodes, issued: IssuedActivities, known: Ints, without: RuleNames) -> tuple[Ints, Ints]:
    """Infer pairs of activity and call, for the calls whose activity is not ``known`` from the trace."""
    if not RULE.is_on(without):
        return EMPTY_NODES, EMPTY_NODES
    pairs = [_infer_stream_syncs(nodes, issued), _infer_event_syncs(nodes, issued)]
    activity, call = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    inferred = (activity != NONE) & ~np.isin(call, known)
    return activity[inferred], call[inferred]


def _infer_stream_syncs(nodes: Nodes, issued: IssuedActivities) -> tuple[Ints, Ints]:
    """Infer the stream of stream synchronisations.

    It is the stream that became idle last within the call, else the stream of the latest launch.
    """
    calls = nodes.find_calls(STREAM_SYNC_CALLS)
    last = issued.find_last_before(nodes.start_ns[calls])
    end = np.where(last == NONE, np.iinfo(np.int64).min, nodes.end_ns[last])
    ended_within = (end > nodes.start_ns[calls]) & (end <= nodes.end_ns[calls])
    launcher = np.where(last == NONE, NONE, nodes.launcher[np.maximum(last - nodes.n_host, 0)])
    launched = np.where(launcher == NONE, NONE, nodes.start_ns[launcher])
    score = np.where(ended_within, end, np.iinfo(np.int64).min // 2 + launched)
    chosen = last[np.argmax(score, axis=0), np.arange(calls.size)] if calls.size else calls
    return chosen, calls


def _infer_event_syncs(nodes: Nodes, issued: IssuedActivities) -> tuple[Ints, Ints]:
    """Infer the activity of event synchronisations: the one that ended last within the call, if any."""
    calls = nodes.find_calls(EVENT_SYNC_CALLS)
    best, best_end = np.full(calls.size, NONE), nodes.start_ns[calls]
    for activities, launched in issued.streams:
        end = np.maximum.accumulate(nodes.end_ns[activities])
        index = np.minimum(
            np.searchsorted(end, nodes.end_ns[calls], side="right"), np.searchsorted(launched, nodes.start_ns[calls])
        ) - 1  # fmt: skip
        better = (index >= 0) & (end[index] > best_end)
        best, best_end = np.where(better, activities[index], best), np.where(better, end[index], best_end)
    return best, calls
