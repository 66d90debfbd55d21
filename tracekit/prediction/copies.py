"""A job without data parallelism as it would run in replicas: with the exchange of gradients that the trace lacks.

What DistributedDataParallel adds to a backward pass: each gradient is copied into its bucket once it has been
accumulated, a full bucket is all-reduced on a stream of its own, and behind the pass each bucket is awaited and copied
back. The all-reduces take no time here, as they are of one rank: ``scaling`` and ``collectives`` give them others.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.graph import Graph
from tracekit.graph.change import sources, with_activities, with_edges
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.events import DEFAULT_LAG_NS
from tracekit.graph.streams import DEFAULT_GAP_NS
from tracekit.prediction.added import Added, communicates, with_kernels
from tracekit.prediction.buckets import exchanged
from tracekit.prediction.experts import recognise_experts
from tracekit.prediction.hooks import Places, launch_cost_ns
from tracekit.prediction.layout import COPIES, EXPERT_COPIES
from tracekit.prediction.spread import OTHER_HOST
from tracekit.replay.run import Run
from tracekit.workload.phases import BACKWARD

LIKELY_TAKEN, TAKEN = 0.18, 0.22
"""Part of the GPU that collectives take from the kernels beside them, in the mean and at most: in jobs recorded here
NCCL had 24 of an A100's 108 multiprocessors and 12 of a V100's 80, RCCL 56 of an MI300X's 304."""


def with_exchange(run: Run) -> Added:
    """A run of one data-parallel rank with the exchange of gradients that replicas of it would have.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell the gradients.
    """
    return _with_exchange(run, exchanged(run))


def with_exchange_of_experts(run: Run) -> Added:
    """The same where copies share experts, whose gradients have buckets of their own, for copies of the same experts.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell the gradients or the experts.
    """
    return _with_exchange(run, exchanged(run, recognise_experts(run).hold))


def _with_exchange(run: Run, table: pl.DataFrame) -> Added:
    places = Places(run, table)
    grown = with_kernels(run, _rows(run, places), _graph(run.graph, places))
    return Added(grown, _note(table, places.copy_ns))


def _graph(graph: Graph, at: Places) -> Graph:
    """``graph`` with the activities of the exchange and what they wait for."""
    lane = np.full(2 * at.table.height + at.buckets.height, graph.nodes.lane[at.stream[0]])
    lane[at.table.height : at.table.height + at.buckets.height] = graph.nodes.lane.max() + 1
    done = np.concatenate([at.done_ns, at.done_ns[at.buckets["closed"].to_numpy()], at.done_ns[at.back]])
    grown = with_activities(_slower_host(graph, at), lane, done)
    return with_edges(grown, _program(graph, at), _stream(graph, at), _events(at))


def _slower_host(graph: Graph, at: Places) -> Graph:
    """``graph`` in which the CPU also launches the exchange."""
    added = np.zeros(graph.nodes.start_ns.size, dtype=np.int64)
    np.maximum.at(added, at.call, at.host_ns)
    np.maximum.at(added, at.call[at.last], at.back_ns[at.last])
    src = sources(graph)
    follows = (src % 2 == 1) & np.isin(graph.kind, (EdgeKind.PROGRAM, EdgeKind.HANDOVER))
    return replace(graph, lag_ns=graph.lag_ns + np.where(follows, added[src // 2], 0))


def _program(graph: Graph, at: Places) -> Edges:
    """From the calls before gradients to what their hooks launch."""
    reduces = np.bincount(at.buckets["closed"].to_numpy(), minlength=at.table.height)
    copied = at.host_ns - launch_cost_ns(at.copy_ns) * reduces
    closed, last = at.buckets["closed"].to_numpy(), np.repeat(at.last, at.last - at.first + 1)
    cause = np.concatenate([np.arange(at.table.height), closed, last])
    since_call = np.maximum(at.done_ns - graph.nodes.end_ns[at.call], 0)[cause]
    lag = since_call + np.concatenate([copied, at.host_ns[closed], at.back_ns])
    launched = np.concatenate([at.copied_in, at.reduced, at.copied_back])
    return Edges(EdgeKind.PROGRAM, ends(at.call[cause]), starts(launched), lag)


def _stream(graph: Graph, at: Places) -> Edges:
    """Copies lie on the stream that computes, between what was launched before and after; all-reduces on another."""
    before = at.place > 0
    after = at.place < at.stream.size
    last = at.last[after[at.last]]
    src = (
        *(at.stream[at.place[before] - 1], at.copied_in[after], at.copied_in[:-1]),
        *(at.copied_in[at.last], at.copied_back[:-1], at.copied_back[last], at.reduced[:-1]),
    )
    dst = (
        *(at.copied_in[before], at.stream[at.place[after]], at.copied_in[1:]),
        *(at.copied_back[at.first], at.copied_back[1:], at.stream[at.place[last]], at.reduced[1:]),
    )
    lags = graph.lag_ns[graph.kind == EdgeKind.STREAM]
    gap = round(float(np.median(lags))) if lags.size else DEFAULT_GAP_NS
    source, destination = np.concatenate(src), np.concatenate(dst)
    return Edges(EdgeKind.STREAM, ends(source), starts(destination), np.full(source.size, gap))


def _events(at: Places) -> Edges:
    """All-reduces wait for the last gradient of their bucket, copies back for their all-reduce."""
    src = np.concatenate([at.copied_in[at.buckets["closed"].to_numpy()], at.reduced[at.bucket_of_back]])
    dst = np.concatenate([at.reduced, at.copied_back])
    return Edges(EdgeKind.EVENT, ends(src), starts(dst), np.full(src.size, DEFAULT_LAG_NS))


def _rows(run: Run, at: Places) -> pl.DataFrame:
    """Rows of the kernel table for the activities of the exchange."""
    computes = run.kernels.row(int(at.stream[0]) - run.graph.nodes.cpu, named=True)
    copied = {"stream": pl.lit(computes["stream"], pl.Int64), "rows": pl.lit(1)}
    moved = {"cols": pl.col("numel"), "bytes": 2 * pl.col("bytes")}
    into = at.table.select(
        "step", "dtype", "input_dims", **moved, ts_ns="done_ns", flops="numel", name=pl.lit("copy into a bucket"),
        op=pl.lit("torch::distributed::reducer::mul_out"), family=pl.lit("elementwise"),
    )  # fmt: skip
    back = at.table[at.back].select(
        "step", "dtype", "input_dims", **moved, ts_ns="done_ns", flops=pl.lit(0), name=pl.lit("copy out of a bucket"),
        op=pl.lit("torch.distributed.ddp.reducer::copy_bucket_to_grad"), family=pl.lit("copy"),
    )  # fmt: skip
    group = pl.when("apart").then(pl.lit(EXPERT_COPIES)).otherwise(pl.lit(COPIES))
    reduced = at.buckets.select(
        "step", "dtype", "bytes", ts_ns=at.table["done_ns"].gather(at.buckets["closed"]), name=pl.lit("all-reduce"),
        op=pl.lit("c10d::allreduce_"), collective=pl.lit("all_reduce"), **communicates(run, group),
    )  # fmt: skip
    parts = [into.with_columns(**copied), reduced, back.with_columns(**copied)]
    return pl.concat(parts, how="diagonal_relaxed").with_columns(
        device=pl.lit(computes["device"], pl.Int64), phase=pl.lit(BACKWARD)
    )


def _note(table: pl.DataFrame, copy_ns: int) -> str:
    one = table.filter(pl.col("exchange") == pl.col("exchange").first())
    size, count = one["bytes"].sum() / 2**20, one["bucket"].n_unique()
    of_experts = one.filter("apart")["bytes"].sum() / 2**20
    shared = (
        f", {of_experts:,.1f} of it experts', which only ranks with the same experts exchange," if of_experts else ""
    )
    dtypes = " and ".join(one["dtype"].unique().sort())
    return (
        f"the trace has no gradient all-reduces: DistributedDataParallel's were inserted, {size:,.1f} MiB of "
        f"{one.height} {dtypes} gradients{shared} once an optimizer step, in {count} all-reduces that overlap the "
        f"backward pass (buckets of 25 MiB, the first of 1). They cost the CPU {copy_ns / 1e3:.0f} µs per gradient "
        f"copied in or out, as the trace's own ops do, and {launch_cost_ns(copy_ns) / 1e3:.0f} for each all-reduce; "
        f"{OTHER_HOST}. Data parallelism from a one-GPU trace was checked against published throughputs only"
    )
