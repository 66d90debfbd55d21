"""Predict the collectives of pipeline stages that use FSDP: before the first micro-batch and after the last one.

As torchtitan runs PyTorch's ``fully_shard`` in stages: a stage keeps gathered parameters until its last backward pass,
so parameters are gathered once a step and not with each micro-batch (its parallelize.py: reshard_after_forward is off
with pipelines). Gradients are reduce-scattered after that pass, unit by unit, with nothing else on the GPU
(torch/distributed/pipelining/stage.py, run_post_backward). The reduce-scatters are inserted into the program; of the
all-gathers, which precede the first micro-batch, the delay is predicted.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

import predictors
from tracekit.arrays import Floats, Ints
from tracekit.comm import Cluster
from tracekit.graph import Graph
from tracekit.graph.build import DEFAULT_LAG_NS
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.edit import insert_activities, insert_edges
from tracekit.graph.nodes import NONE
from tracekit.graph.semantics import DEFAULT_GAP_NS
from tracekit.messages import Message, layouts
from tracekit.messages import layouts as told
from tracekit.parallelism.collective_calls import predict_on_cluster
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.fsdp import (
    GATHER_AHEAD_LAYERS,
    FsdpUnits,
    build_fsdp_rows,
    find_fsdp_units,
    list_fsdp_collectives,
)
from tracekit.parallelism.inserted import NO_NODE, Insertion, add_host_time, append_kernels, find_stream_neighbours
from tracekit.parallelism.layers import RepeatedLayers, find_repeated_layers
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.process_groups import DP_GROUP
from tracekit.parallelism.stragglers import HOST_SPEED_PCT
from tracekit.program import Program
from tracekit.workload.signature import ITEM_BYTES


def insert_stage_reduce_scatters(program: Program) -> Insertion:
    """Insert the reduce-scatters of FSDP stages into a program of one data-parallel rank.

    ::

        compute stream | last backward pass |                                              | optimizer
        new stream                          | copy 0 | scatter 0 | copy 1 | scatter 1 | ... |

    Each copy packs the gradients of a unit into its buffer.

    Args:
        program: The program.

    Raises:
        LayoutError: The layers or their parameters are unknown.
    """
    layers = find_repeated_layers(program)
    units = find_fsdp_units(program, layers)
    calls = _list_reduce_scatters(program, layers, units)
    host_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(program))
    graph = _extend_graph(program.graph, calls["at"].to_numpy(), host_ns)
    return Insertion(
        append_kernels(program, build_fsdp_rows(program, calls, units), graph), _write_note(layers, units, host_ns)
    )


def replace_fsdp_collectives(program: Program) -> Insertion:
    """Replace the recorded FSDP collectives of a program by those that its stages would have.

    Recorded all-gathers and reduce-scatters take no time any more; their copies and launches stay as recorded.

    Args:
        program: The program.

    Raises:
        LayoutError: The layers or their reduce-scatters are unknown.
    """
    rows = list_fsdp_collectives(program)["row"]
    mine = pl.int_range(pl.len()).is_in(rows.implode())
    kept_ns = program.graph.kept_ns.copy()
    kept_ns[rows.to_numpy()] = 0
    alone = {"dur_ns": 0, "wait_ns": 0, "ranks": 1}
    changed = (pl.when(mine).then(value).otherwise(name).alias(name) for name, value in alone.items())
    bare = replace(
        program.replace_tables(kernels=program.kernels.with_columns(changed)),
        graph=replace(program.graph, kept_ns=kept_ns),
    )
    added = insert_stage_reduce_scatters(bare)
    return replace(added, note=told.FSDP_STAGES_REPLACED(whole=added.note))


def _list_reduce_scatters(program: Program, layers: RepeatedLayers, units: FsdpUnits) -> pl.DataFrame:
    """List the reduce-scatters: ``collective``, ``bytes``, ``step``, ``group``, and ``at``.

    ``at`` is the last activity of the backward pass that they follow.
    """
    exchanges = np.append(layers.is_first_pass[1:], True)
    last = layers.passes[exchanges, 2] - 1
    at = program.graph.nodes.n_host + layers.kernels["row"].to_numpy().astype(np.int64)[last]
    sizes = [size for size in (*[units.layer_bytes] * layers.count, units.rest_bytes) if size]
    passes = pl.DataFrame({"at": at, "step": layers.kernels["step"].to_numpy()[last]})
    return passes.select(
        "at", "step", bytes=pl.lit(sizes, pl.List(pl.Int64)), collective=pl.lit("reduce_scatter"),
        group=pl.lit(DP_GROUP)
    ).explode("bytes")  # fmt: skip


def _extend_graph(graph: Graph, at: Ints, host_ns: int) -> Graph:
    """Extend the graph by the reduce-scatters, each after the copy of its buffer, between a pass and the next kernel.

    See :func:`insert_stage_reduce_scatters` for the timeline.
    """
    nodes = graph.nodes
    call = nodes.launcher[at - nodes.n_host]
    if (call == NONE).any():
        raise LayoutError(layouts.LAYERS_NOT_LAUNCHED())
    number = np.arange(at.size)
    scattered = nodes.start_ns.size + number
    copied = scattered + at.size
    first = np.append(True, at[1:] != at[:-1])
    last = np.append(first[1:], True)
    turn = number - number[first][first.cumsum() - 1] + 1
    follows = find_stream_neighbours(graph)[0][at[last]]
    awaited = follows != NO_NODE
    host = add_host_time(graph, call[:0], call, host_ns)
    grown = insert_activities(host, np.full(2 * at.size, nodes.lane.max() + 1), np.tile(nodes.end_ns[at], 2))
    edges = (
        (EdgeKind.PROGRAM, to_end_vertices(call), to_start_vertices(copied), host_ns * turn),
        (EdgeKind.EVENT, to_end_vertices(at[first]), to_start_vertices(copied[first]), DEFAULT_LAG_NS),
        (EdgeKind.STREAM, to_end_vertices(copied), to_start_vertices(scattered), DEFAULT_GAP_NS),
        (EdgeKind.STREAM, to_end_vertices(scattered[:-1]), to_start_vertices(copied[1:]), DEFAULT_GAP_NS),
        (
            EdgeKind.EVENT,
            to_end_vertices(scattered[last][awaited]),
            to_start_vertices(follows[awaited]),
            DEFAULT_LAG_NS,
        ),
    )
    waits = (Edges(kind, src, dst, np.broadcast_to(lag_ns, src.shape)) for kind, src, dst, lag_ns in edges)
    return insert_edges(grown, *waits)


def _write_note(layers: RepeatedLayers, units: FsdpUnits, host_ns: int) -> Message:
    return told.FSDP_STAGES_INSERTED(
        layers=layers.count,
        layer_bytes=units.layer_bytes,
        dtype=units.scatter_dtype,
        rest_bytes=units.rest_bytes,
        launch_us=host_ns / 1e3,
        host_pct=HOST_SPEED_PCT,
    )


@dataclass(frozen=True, slots=True)
class StageGathers:
    """The all-gathers of one pass, in microseconds.

    Arrays have an element for what precedes the layers, one for each layer, and one for what follows them.

    Attributes:
        gather_us: Duration of each all-gather.
        copy_us: Duration of the copy out of its buffer, on the compute stream.
        is_early: Whether all chunks but the first have gathered their parameters before their first input arrives.
    """

    gather_us: Floats
    copy_us: Floats
    is_early: bool

    def compute_delays_us(self, forward: Floats, begin: Ints) -> Floats:
        """Compute the delay of each chunk's first forward pass.

        Args:
            forward: Forward time of each element.
            begin: First element of each chunk.
        """
        chunks = zip(*(np.split(times, begin[1:]) for times in (self.gather_us, self.copy_us, forward)), strict=True)
        waits = np.array([_compute_exposed_us(*times) for times in chunks])
        return np.append(waits[0], np.zeros_like(waits[1:])) if self.is_early else waits


def _compute_exposed_us(moved: Floats, copied: Floats, forward: Floats) -> float:
    """Compute the delay of a chunk that gathers its layers one by one, ``GATHER_AHEAD_LAYERS`` (2) ahead of the GPU.

    ::

        new stream     | gather 0 | gather 1 |        | gather 2 |        | gather 3 |
        compute stream            | copy 0, forward 0 | copy 1, forward 1 | copy 2, forward 2 | copy 3, forward 3 |

    Gather 2 waits for forward 0, gather 3 for forward 1. The delay is the end of the last forward minus the sum of all.
    """
    gathered, done = 0.0, np.zeros(moved.size + GATHER_AHEAD_LAYERS)
    for part in range(moved.size):
        gathered = max(gathered, done[part]) + moved[part]
        done[part + GATHER_AHEAD_LAYERS] = (
            max(done[part + GATHER_AHEAD_LAYERS - 1], gathered) + copied[part] + forward[part]
        )
    return float(done[-1] - forward.sum())


def predict_stage_gathers(
    program: Program, layers: RepeatedLayers, layout: Layout, cluster: Cluster
) -> tuple[StageGathers, ...]:
    """Predict the all-gathers before the first forward pass of each chunk: likely, least and most.

    The largest parameter outside the layers belongs to the first chunk, the others to the last one. As in PyTorch,
    stages wait for their first input before they gather. In the least estimate all but the first have gathered by then.

    Args:
        program: The program.
        layers: Its layers.
        layout: Layout on the cluster.
        cluster: The cluster that connects the replicas.

    Raises:
        LayoutError: The layers' parameters are unknown.
    """
    units = find_fsdp_units(program, layers)
    item_bytes = ITEM_BYTES.get(units.gather_dtype, 4)
    scattered = np.array(
        [
            units.largest_rest_bytes,
            *[units.gathered_layer_bytes] * layers.count,
            units.gathered_rest_bytes - units.largest_rest_bytes,
        ]
    )
    sizes = scattered * item_bytes / units.item_bytes / layout.tp
    call = {
        "collective": "all_gather",
        "dtype": units.gather_dtype,
        "ranks": layout.data_ranks,
        "stride": layout.get_group_stride("dp"),
    }
    calls = pl.DataFrame({"bytes": sizes}).with_columns(
        pl.lit(value).alias(name) for name, value in {**call, "custom": False}.items()
    )
    times = predict_on_cluster(calls, cluster)
    numel = (sizes / item_bytes).astype(np.int64)
    copies = {"family": "copy", "name": "copy of a shard's buffer", "dtype": units.gather_dtype, "rows": 1, "flops": 0}
    table = pl.DataFrame({"cols": numel, "bytes": (2 * sizes).astype(np.int64)})
    copied = predictors.predict(table.with_columns(pl.lit(v).alias(name) for name, v in copies.items()), cluster.gpu)
    moves = sizes > 0
    return tuple(
        StageGathers(times[end].to_numpy() * moves, copied[end].to_numpy() * moves, is_early=end == "low_us")
        for end in ("time_us", "low_us", "high_us")
    )
