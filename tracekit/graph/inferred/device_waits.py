"""Waits between the GPUs of one process that take turns: copies from one to the other, stages of a model.

A delayed activity whose stream was told to wait for an event, and before which an activity of another GPU had ended,
waited for it. Unlike streams of one GPU, GPUs of one process often work side by side without waiting for each other
(``DataParallel``), so a coincidence in time isn't enough::

    CPU     | launch | cudaMemcpyPeerAsync | cudaStreamWaitEvent | launch |
    GPU 0       |=== kernel ===|== copy ==|
    GPU 1                                  |=== kernel ===|
"""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.inferred.event_waits import MAX_CANDIDATES, MAX_OVERLAP_NS, MAX_WAKE_ROCM_NS
from tracekit.graph.inferred.long_delays import MAX_UNEXPLAINED_FRACTION
from tracekit.graph.last_ended import find_last_ended
from tracekit.graph.nodes import NONE, Nodes
from tracekit.rules import Rule
from tracekit.trace import RankTrace

RULE = Rule(
    "device-waits",
    "A delayed activity that was told to wait did so for the activity of another GPU that ended right before.",
    "A trace made after transformers#21736 (device_map='auto'): a faster GPU would save 0.77 of 2.52 ms without the "
    "rule, 1.47 with it. No public trace at hand has several GPUs in one process.",
)
STREAM_WAIT_CALLS = r"^(cuda|hip|cu)StreamWaitEvent(_ptsz|_spt)?$"


def find_ended_elsewhere(
    trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame, device: Ints, waiting: Ints, ready: Ints
) -> Ints:
    """Return the activity of another GPU that ended last before each start and was launched earlier, or ``NONE``.

    Args:
        trace: The trace.
        nodes: The nodes.
        kernels: The kernel table.
        device: GPU of each activity.
        waiting: Launched activities that started later than anything else explains.
        ready: Earliest start of each node by its known dependencies.
    """
    if not waiting.size or np.unique(device).size == 1:
        return np.full(waiting.size, NONE)
    start, called = nodes.start_ns[waiting], nodes.launch_start_ns
    unexplained = (MAX_UNEXPLAINED_FRACTION * (start - ready[waiting])).astype(np.int64)
    since, until = start - np.maximum(MAX_WAKE_ROCM_NS, unexplained), start + MAX_OVERLAP_NS
    found = find_last_ended(nodes, device, waiting, since, until, MAX_CANDIDATES, called, elsewhere=True)
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
