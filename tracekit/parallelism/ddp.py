"""Insert the gradient all-reduces of DistributedDataParallel (DDP) into a program of one data-parallel rank.

DDP adds this to a backward pass: each gradient is copied into its bucket once it has been accumulated; a full bucket is
all-reduced on a stream of its own; after the pass, the host waits for each bucket and copies it back.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.graph import Graph
from tracekit.graph.build import DEFAULT_LAG_NS
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.edit import compute_edge_sources, insert_activities, insert_edges
from tracekit.graph.semantics import DEFAULT_GAP_NS
from tracekit.messages import Message
from tracekit.messages import layouts as told
from tracekit.parallelism.compressions import Compression
from tracekit.parallelism.ddp_buckets import find_exchanged_gradients
from tracekit.parallelism.ddp_hooks import (
    COMPRESS_OP,
    DECOMPRESS_OP,
    DdpHookSites,
    estimate_collective_launch_ns,
)
from tracekit.parallelism.expert_parallel import find_experts
from tracekit.parallelism.inserted import Insertion, append_kernels, build_collective_columns
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.process_groups import DP_GROUP, EXPERT_DP_GROUP
from tracekit.parallelism.stragglers import HOST_SPEED_PCT
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD

COLLECTIVE_SM_FRACTION, MAX_COLLECTIVE_SM_FRACTION = 0.18, 0.22
"""Mean and maximum fraction of the SMs that collectives take from kernels that run at once.

In the jobs recorded here NCCL had 24 of an A100's 108 multiprocessors and 12 of a V100's 80, RCCL 56 of an MI300X's
304. Laws by SMs, waves of blocks and traffic were no better (tests/validation/notes/replay.md).
"""


def insert_gradient_allreduces(program: Program) -> Insertion:
    """Insert the gradient all-reduces that DDP would issue.

    Bucket 0 holds gradients g0 and g1, bucket 1 holds g2; "in" and "back" are copies into and out of a bucket::

        compute stream | backward | in g0 | bwd | in g1 | bwd | in g2 |      | back g0 g1 g2 | optimizer
        new stream                              | all-reduce 0 | all-reduce 1 |

    The "in" and "back" copies lie in stream order among the kernels of the backward pass. An all-reduce waits for the
    last "in" copy of its bucket and for the previous all-reduce; a "back" copy waits for its bucket's all-reduce. The
    host launches each copy and all-reduce from the hook of its gradient, which delays its later launches. The
    all-reduces take no time here, as they have one rank: ``relayout`` and ``collectives`` set their times.

    Args:
        program: The program.

    Raises:
        LayoutError: The gradients are unknown.
    """
    return _insert_allreduces(program, find_exchanged_gradients(program))


@dataclass(frozen=True, slots=True)
class InsertCompressedAllreduces:
    """Inserts the exchange of gradients that one of DDP's hooks compresses.

    The cast, or whatever compresses it, follows the last "in" copy of a bucket; the cast back has a stream of its own,
    and the "back" copies wait for it::

        compute stream | in g0 | bwd | in g1 | cast 0 | bwd | in g2 | cast 1 |     | back g0 g1 g2 | optimizer
        new stream                                    | all-reduce 0 | all-reduce 1 |
        another                                                      | cast back 0  | cast back 1 |

    Attributes:
        compression: How they are compressed.
        ranks: Ranks that exchange them.
    """

    compression: Compression
    ranks: int

    def __call__(self, program: Program) -> Insertion:
        """Insert them.

        Raises:
            LayoutError: The gradients are unknown, or none is of fp32.
        """
        table = find_exchanged_gradients(program)
        if not (table["dtype"] == "fp32").any():
            raise LayoutError(told.GRADIENTS_NARROW(dtypes=table["dtype"].unique().sort().to_list()))
        return _insert_allreduces(program, table, self.compression, self.ranks)


def insert_expert_gradient_allreduces(program: Program) -> Insertion:
    """Insert the gradient all-reduces of a job with expert parallelism.

    Gradients of experts have buckets of their own, which only replicas of the same experts all-reduce.

    Args:
        program: The program.

    Raises:
        LayoutError: The gradients or the experts are unknown.
    """
    return _insert_allreduces(program, find_exchanged_gradients(program, find_experts(program).is_expert_weight))


def _insert_allreduces(
    program: Program, table: pl.DataFrame, compression: Compression | None = None, ranks: int = 1
) -> Insertion:
    sites = DdpHookSites(program, table, compression, ranks)
    rows = _build_exchange_rows(program, sites)
    note = _write_note(table, sites.copy_ns)
    if compression:
        exchanged = rows.filter(pl.col("collective").is_not_null() & (pl.col("step") == rows["step"].first()))
        note = compression.write_note(note, int(exchanged["bytes"].sum()), ranks)
    return Insertion(append_kernels(program, rows, _extend_graph(program.graph, sites)), note)


def _extend_graph(graph: Graph, sites: DdpHookSites) -> Graph:
    """Extend the graph by the copies and all-reduces, and by the edges on which they wait."""
    lane = np.full(2 * sites.gradients.height + sites.buckets.height, graph.nodes.lane[sites.compute_stream[0]])
    lane[sites.gradients.height : sites.gradients.height + sites.buckets.height] = graph.nodes.lane.max() + 1
    cast_lanes = np.repeat([lane[0], graph.nodes.lane.max() + 2], sites.packed.size)
    closed_ns = sites.done_ns[sites.buckets["closed"].to_numpy()]
    cast_ns = np.tile(closed_ns[sites.packed], 2)
    done = np.concatenate([sites.done_ns, closed_ns, sites.done_ns[sites.copy_back_order], cast_ns])
    grown = insert_activities(_add_hook_host_time(graph, sites), np.concatenate([lane, cast_lanes]), done)
    return insert_edges(
        grown, _build_program_edges(graph, sites), _build_stream_edges(graph, sites), _build_event_edges(sites)
    )


def _add_hook_host_time(graph: Graph, sites: DdpHookSites) -> Graph:
    """Add the host time of DDP's hooks to a graph."""
    added = np.zeros(graph.nodes.start_ns.size, dtype=np.int64)
    np.maximum.at(added, sites.preceding_call, sites.hook_host_ns)
    np.maximum.at(added, sites.preceding_call[sites.last_gradient], sites.copy_back_host_ns[sites.last_gradient])
    src = compute_edge_sources(graph)
    follows = (src % 2 == 1) & np.isin(graph.kind, (EdgeKind.PROGRAM, EdgeKind.HANDOVER))
    return replace(graph, lag_ns=graph.lag_ns + np.where(follows, added[src // 2], 0))


def _build_program_edges(graph: Graph, sites: DdpHookSites) -> Edges:
    """Build the edges from the host calls before the gradients to what the gradients' hooks launch."""
    copied = sites.hook_host_ns - sites.reduce_host_ns
    closed = sites.buckets["closed"].to_numpy()
    cast = closed[sites.packed]
    last = np.repeat(sites.last_gradient, sites.last_gradient - sites.first_gradient + 1)
    cause = np.concatenate([np.arange(sites.gradients.height), closed, last, cast, cast])
    since_call = np.maximum(sites.done_ns - graph.nodes.end_ns[sites.preceding_call], 0)[cause]
    lag = since_call + np.concatenate(
        [
            copied,
            sites.hook_host_ns[closed],
            sites.copy_back_host_ns,
            copied[cast] + (sites.compression.costs.launches if sites.compression else 0) * sites.copy_ns,
            sites.hook_host_ns[cast],
        ]
    )
    launched = np.concatenate(
        [
            sites.copy_in_nodes,
            sites.allreduce_nodes,
            sites.copy_back_nodes,
            sites.compress_nodes,
            sites.decompress_nodes,
        ]
    )
    return Edges(EdgeKind.PROGRAM, to_end_vertices(sites.preceding_call[cause]), to_start_vertices(launched), lag)


def _build_stream_edges(graph: Graph, sites: DdpHookSites) -> Edges:
    """Build the stream edges: copies lie on the compute stream, all-reduces on a new one.

    Each copy has an edge from the activity launched before it and one to the activity launched after it.
    """
    before = sites.stream_position > 0
    after = sites.stream_position < sites.compute_stream.size
    last = sites.last_gradient[after[sites.last_gradient]]
    copy_in, copy_back, allreduce = sites.copy_in_nodes, sites.copy_back_nodes, sites.allreduce_nodes
    launched_before = sites.compute_stream[sites.stream_position[before] - 1]
    compress, decompress = sites.compress_nodes, sites.decompress_nodes
    cast = sites.buckets["closed"].to_numpy()[sites.packed]
    followed = cast + 1 < sites.gradients.height
    pairs = (
        (launched_before, copy_in[before]),
        (copy_in[after], sites.compute_stream[sites.stream_position[after]]),
        (copy_in[:-1], copy_in[1:]),
        (copy_in[sites.last_gradient], copy_back[sites.first_gradient]),
        (copy_back[:-1], copy_back[1:]),
        (copy_back[last], sites.compute_stream[sites.stream_position[last]]),
        (allreduce[:-1], allreduce[1:]),
        (copy_in[cast], compress),
        (compress[after[cast]], sites.compute_stream[sites.stream_position[cast[after[cast]]]]),
        (compress[followed], copy_in[cast[followed] + 1]),
        (compress[:-1], compress[1:]),
        (compress, copy_back[sites.first_gradient[np.searchsorted(sites.last_gradient, cast)]]),
        (decompress[:-1], decompress[1:]),
    )
    lags = graph.lag_ns[graph.kind == EdgeKind.STREAM]
    gap = round(float(np.median(lags))) if lags.size else DEFAULT_GAP_NS
    source, destination = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    return Edges(EdgeKind.STREAM, to_end_vertices(source), to_start_vertices(destination), np.full(source.size, gap))


def _build_event_edges(sites: DdpHookSites) -> Edges:
    """Build the event edges: last copy of a bucket -> its all-reduce -> its copies back, with the casts between."""
    sent, received = sites.copy_in_nodes[sites.buckets["closed"].to_numpy()], sites.allreduce_nodes.copy()
    sent[sites.packed], received[sites.packed] = sites.compress_nodes, sites.decompress_nodes
    src = np.concatenate([sent, sites.allreduce_nodes[sites.packed], received[sites.copy_back_bucket]])
    dst = np.concatenate([sites.allreduce_nodes, sites.decompress_nodes, sites.copy_back_nodes])
    return Edges(EdgeKind.EVENT, to_end_vertices(src), to_start_vertices(dst), np.full(src.size, DEFAULT_LAG_NS))


def _build_exchange_rows(program: Program, sites: DdpHookSites) -> pl.DataFrame:
    """Build the kernel-table rows of the copies and all-reduces."""
    computes = program.kernels.row(int(sites.compute_stream[0]) - program.graph.nodes.n_host, named=True)
    copied = {"stream": pl.lit(computes["stream"], pl.Int64), "rows": pl.lit(1)}
    moved = {"cols": pl.col("numel"), "bytes": 2 * pl.col("bytes")}
    into = sites.gradients.select(
        "step", "dtype", "input_dims", **moved, ts_ns="done_ns", flops="numel", name=pl.lit("copy into a bucket"),
        op=pl.lit("torch::distributed::reducer::mul_out"), family=pl.lit("elementwise"),
    )  # fmt: skip
    back = sites.gradients[sites.copy_back_order].select(
        "step", "dtype", "input_dims", **moved, ts_ns="done_ns", flops=pl.lit(0), name=pl.lit("copy out of a bucket"),
        op=pl.lit("torch.distributed.ddp.reducer::copy_bucket_to_grad"), family=pl.lit("copy"),
    )  # fmt: skip
    group = pl.when("apart").then(pl.lit(EXPERT_DP_GROUP)).otherwise(pl.lit(DP_GROUP))
    closed_ns = sites.gradients["done_ns"].gather(sites.buckets["closed"])
    reduced = sites.buckets.select(
        "step", "dtype", "packed", "bytes", "sent", ts_ns=closed_ns, name=pl.lit("all-reduce"),
        op=pl.lit("c10d::allreduce_"), collective=pl.lit("all_reduce"), **build_collective_columns(program, group),
    )  # fmt: skip
    if (how := sites.compression) is None:
        casts = []
    else:
        packed = pl.when("packed")
        sent = {
            "dtype": packed.then(pl.lit(how.dtype)).otherwise("dtype"),
            "bytes": packed.then("sent").otherwise("bytes"),
        }
        gathered = {"name": "all-gather", "op": "c10d::allgather_", "collective": "all_gather"} if how.gathers else {}
        reduced = reduced.with_columns(
            **sent, **{name: packed.then(pl.lit(value)).otherwise(name) for name, value in gathered.items()}
        )
        cast = sites.buckets.with_columns(ts_ns=closed_ns).filter("packed").select(
            "step", "dtype", "ts_ns", cols="numel", bytes=how.costs.bytes_before * pl.col("numel"), flops="numel",
            name=pl.lit("compress a bucket"), op=pl.lit(COMPRESS_OP), family=pl.lit("elementwise"), **copied,
        )  # fmt: skip
        cast_back = cast.with_columns(
            bytes=(how.compute_decompress_bytes(sites.ranks) * pl.col("cols")).cast(pl.Int64), flops=pl.lit(0),
            name=pl.lit("decompress a bucket"), op=pl.lit(DECOMPRESS_OP),
            stream=pl.lit(program.kernels["stream"].max(), pl.Int64) + 2,
        )  # fmt: skip
        casts = [cast, cast_back]
    exchanged = reduced.drop("packed", "sent")
    parts = [into.with_columns(**copied), exchanged, back.with_columns(**copied), *casts]
    return pl.concat(parts, how="diagonal_relaxed").with_columns(
        device=pl.lit(computes["device"], pl.Int64), phase=pl.lit(BACKWARD)
    )


def _write_note(table: pl.DataFrame, copy_ns: int) -> Message:
    one = table.filter(pl.col("exchange") == pl.col("exchange").first())
    note = told.DDP_INSERTED(
        gradients=one.height,
        dtypes=one["dtype"].unique().sort().to_list(),
        gradient_bytes=int(one["bytes"].sum()),
        allreduces=one["bucket"].n_unique(),
        copy_us=copy_ns / 1e3,
        launch_us=estimate_collective_launch_ns(copy_ns) / 1e3,
        host_pct=HOST_SPEED_PCT,
    )
    expert_bytes = int(one.filter("apart")["bytes"].sum())
    return told.DDP_EXPERTS_APART(whole=note, expert_bytes=expert_bytes) if expert_bytes else note
