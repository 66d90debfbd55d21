"""Recorded: waits that CUPTI records as cuda_sync events, which say who waited for what.

CUDA semantics: an event stands for the work that its stream had been given when the event was recorded, so for the last
activity launched there before the record. A stream that waits delays the next activity launched on it. A call that
waits returns after the activity.
"""

from dataclasses import dataclass

import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.blocking_calls import EVENT_SYNC_CALLS, STREAM_SYNC_CALLS
from tracekit.graph.nodes import EMPTY_NODES, NONE, Nodes
from tracekit.trace import RankTrace

# If the awaited activity ends later than this after its waiter started, the pair is wrong.
MAX_OVERLAP_NS = 500


@dataclass(frozen=True, slots=True)
class RecordedWaits:
    """Recorded waits, resolved to nodes.

    Attributes:
        signaller: Activities that another stream waited for.
        waiter: First activity delayed by each.
        awaited: Activities that a host call waited for.
        call: That call, a host node.
        known_calls: All calls whose wait is recorded, including those that had nothing left to wait for.
    """

    signaller: Ints
    waiter: Ints
    awaited: Ints
    call: Ints
    known_calls: Ints


def find_recorded_waits(trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame) -> RecordedWaits:
    """Find the waits that the trace records.

    A trace of several GPUs gives none: the records do not say which GPU's stream is meant.
    """
    if not trace.syncs.height or kernels["device"].n_unique() != 1:
        return RecordedWaits(*[EMPTY_NODES] * 5)
    launched = _list_launched(nodes, kernels)
    times = trace.calls.select("correlation", at=pl.col("ts_ns") - nodes.origin_ns).unique("correlation", keep="first")
    records = times.rename({"correlation": "wait_on_record", "at": "recorded_at"})
    syncs = trace.syncs.join(times, on="correlation").join(records, on="wait_on_record", how="left")
    giver, waiter = _resolve_stream_waits(nodes, launched, syncs.filter(pl.col("name") == "Stream Wait Event"))
    awaited, call, known = _resolve_call_waits(nodes, launched, syncs)
    return RecordedWaits(giver, waiter, awaited, call, known)


def _list_launched(nodes: Nodes, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return launched activities as ``stream``, ``at`` (start of the launch), ``node``, in order of launch."""
    table = pl.DataFrame(
        {
            "stream": kernels["stream"],
            "at": nodes.launch_start_ns,
            "start": nodes.start_ns[nodes.n_host :],
            "node": nodes.activities,
        }
    )
    return table.filter(pl.Series(nodes.launcher != NONE)).sort("at", "start").drop("start")


def _resolve_stream_waits(nodes: Nodes, launched: pl.DataFrame, waits: pl.DataFrame) -> tuple[Ints, Ints]:
    """Return signallers and waiters of the streams' waits for events."""
    pairs = (
        waits.drop_nulls("recorded_at")
        .sort("recorded_at")
        .join_asof(
            launched.rename({"node": "giver", "stream": "wait_on_stream", "at": "recorded_at"}),
            on="recorded_at",
            by="wait_on_stream",
            check_sortedness=False,
        )
        .sort("at")
        .join_asof(
            launched.rename({"node": "waiter"}), on="at", by="stream", strategy="forward", check_sortedness=False
        )
        .select("giver", "waiter")
        .drop_nulls()
        .unique(maintain_order=True)
    )
    giver, waiter = pairs["giver"].to_numpy(), pairs["waiter"].to_numpy()
    possible = (nodes.lane[giver] != nodes.lane[waiter]) & (
        nodes.end_ns[giver] <= nodes.start_ns[waiter] + MAX_OVERLAP_NS
    )
    return giver[possible], waiter[possible]


def _resolve_call_waits(nodes: Nodes, launched: pl.DataFrame, syncs: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Return activities and calls of the host's waits for streams and events, and all calls with a resolved wait."""
    calls = pl.DataFrame({"correlation": nodes.correlation, "name": nodes.names}).with_row_index("call")
    blocking = calls.filter(pl.col("name").str.contains(f"{EVENT_SYNC_CALLS}|{STREAM_SYNC_CALLS}")).drop("name")
    of_event = (pl.col("name") == "Event Sync") & pl.col("recorded_at").is_not_null()
    of_stream = pl.col("name") == "Stream Sync"
    waits = syncs.filter(of_event | of_stream).select(
        "correlation",
        until=pl.when(of_event).then("recorded_at").otherwise("at"),
        stream=pl.when(of_event).then("wait_on_stream").otherwise("stream"),
    )
    joined = (
        waits.join(blocking, on="correlation")
        .sort("until")
        .join_asof(launched.rename({"at": "until"}), on="until", by="stream", check_sortedness=False)
    )
    found = joined.drop_nulls("node")
    activity, call, known = (
        column.cast(pl.Int64).to_numpy() for column in (found["node"], found["call"], joined["call"])
    )
    return activity, call, known
