"""Waits that CUPTI recorded (cuda_sync events): who waited for what, without guessing.

An event stands for what its stream had been given when it was recorded: the last activity launched there before the
record. A stream that waits holds back what is launched on it next; a call that waits returns after the activity.
"""

from dataclasses import dataclass

import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.calls import WAITS_FOR_EVENT, WAITS_FOR_STREAM
from tracekit.graph.nodes import NO_NODES, NONE, Nodes
from tracekit.trace import RankTrace

# A recorded wait whose activity goes on for longer than this after its waiter started was paired wrongly.
JITTER_NS = 500


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded waits, resolved to nodes.

    Attributes:
        giver: Activities that another stream waited for.
        waiter: The first activity held back by each.
        awaited: Activities that a call of the CPU waited for.
        call: That call, a CPU node.
        known: All calls whose wait is recorded, also those that found nothing left to wait for.
    """

    giver: Ints
    waiter: Ints
    awaited: Ints
    call: Ints
    known: Ints


def find(trace: RankTrace, nodes: Nodes, kernels: pl.DataFrame) -> Recorded:
    """The waits that the trace records; none if it drove several GPUs, as waits don't say which one's stream is meant.

    Args:
        trace: The trace.
        nodes: Its nodes.
        kernels: Its kernel table.
    """
    if not trace.syncs.height or kernels["device"].n_unique() != 1:
        return Recorded(*[NO_NODES] * 5)
    launched = _launched(nodes, kernels)
    times = trace.calls.select("correlation", at=pl.col("ts_ns") - nodes.origin_ns).unique("correlation", keep="first")
    records = times.rename({"correlation": "wait_on_record", "at": "recorded_at"})
    syncs = trace.syncs.join(times, on="correlation").join(records, on="wait_on_record", how="left")
    giver, waiter = _between_streams(nodes, launched, syncs.filter(pl.col("name") == "Stream Wait Event"))
    awaited, call, known = _by_calls(nodes, launched, syncs)
    return Recorded(giver, waiter, awaited, call, known)


def _launched(nodes: Nodes, kernels: pl.DataFrame) -> pl.DataFrame:
    """Launched activities as ``stream``, ``at`` (start of the launch), ``node``, in order of launch."""
    table = pl.DataFrame(
        {
            "stream": kernels["stream"],
            "at": nodes.launched_ns,
            "start": nodes.start_ns[nodes.cpu :],
            "node": nodes.activities,
        }
    )
    return table.filter(pl.Series(nodes.launcher != NONE)).sort("at", "start").drop("start")


def _between_streams(nodes: Nodes, launched: pl.DataFrame, waits: pl.DataFrame) -> tuple[Ints, Ints]:
    """Givers and waiters of the streams' waits for events."""
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
    possible = (nodes.lane[giver] != nodes.lane[waiter]) & (nodes.end_ns[giver] <= nodes.start_ns[waiter] + JITTER_NS)
    return giver[possible], waiter[possible]


def _by_calls(nodes: Nodes, launched: pl.DataFrame, syncs: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Activities and calls of the CPU's waits for streams and events, and all calls with a resolved wait."""
    calls = pl.DataFrame({"correlation": nodes.correlation, "name": nodes.names}).with_row_index("call")
    blocking = calls.filter(pl.col("name").str.contains(f"{WAITS_FOR_EVENT}|{WAITS_FOR_STREAM}")).drop("name")
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
