"""Insert the reduce-scatters of pipeline stages that use FSDP: they follow the last micro-batch.

As torchtitan runs PyTorch's ``fully_shard`` in stages: a stage keeps gathered parameters until its last backward pass,
so parameters are gathered once a step and not with each micro-batch (its parallelize.py: reshard_after_forward is off
with pipelines). Gradients are reduce-scattered after that pass, unit by unit, with nothing else on the GPU
(torch/distributed/pipelining/stage.py, run_post_backward). ``gathers`` predicts the all-gathers.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.edit import insert_activities, insert_edges
from tracekit.graph.nodes import NONE
from tracekit.graph.semantics.streams import DEFAULT_GAP_NS
from tracekit.graph.stream_waits import DEFAULT_LAG_NS
from tracekit.messages import Message
from tracekit.messages import layout_notes as told
from tracekit.parallelism.ddp_hooks import estimate_collective_launch_ns, estimate_copy_launch_ns
from tracekit.parallelism.fsdp_units import FsdpUnits, build_fsdp_rows, find_fsdp_units, list_fsdp_collectives
from tracekit.parallelism.inserted import NO_NODE, Insertion, add_host_time, append_kernels, find_stream_neighbours
from tracekit.parallelism.layers import RepeatedLayers, find_repeated_layers
from tracekit.parallelism.layout import DP_GROUP, LayoutError
from tracekit.parallelism.stragglers import HOST_SPEED_PCT
from tracekit.run import MeasuredRun


def insert_stage_reduce_scatters(run: MeasuredRun) -> Insertion:
    """Insert the reduce-scatters of FSDP stages into a run of one data-parallel rank.

    ::

        compute stream | last backward pass |                                              | optimizer
        new stream                          | copy 0 | scatter 0 | copy 1 | scatter 1 | ... |

    Each copy packs the gradients of a unit into its buffer.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The layers or their parameters are unknown.
    """
    layers = find_repeated_layers(run)
    units = find_fsdp_units(run, layers)
    calls = _list_reduce_scatters(run, layers, units)
    host_ns = estimate_collective_launch_ns(estimate_copy_launch_ns(run))
    graph = _extend_graph(run.graph, calls["at"].to_numpy(), host_ns)
    return Insertion(
        append_kernels(run, build_fsdp_rows(run, calls, units), graph), _write_note(layers, units, host_ns)
    )


def replace_fsdp_collectives(run: MeasuredRun) -> Insertion:
    """Replace the recorded FSDP collectives of a run by those that its stages would have.

    Recorded all-gathers and reduce-scatters take no time any more; their copies and launches stay as recorded.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The layers or their reduce-scatters are unknown.
    """
    rows = list_fsdp_collectives(run)["row"]
    mine = pl.int_range(pl.len()).is_in(rows.implode())
    kept_ns = run.graph.kept_ns.copy()
    kept_ns[rows.to_numpy()] = 0
    alone = {"dur_ns": 0, "wait_ns": 0, "ranks": 1}
    changed = (pl.when(mine).then(value).otherwise(name).alias(name) for name, value in alone.items())
    bare = replace(run, kernels=run.kernels.with_columns(changed), graph=replace(run.graph, kept_ns=kept_ns))
    added = insert_stage_reduce_scatters(bare)
    return replace(added, note=told.FSDP_STAGES_REPLACED(whole=added.note))


def _list_reduce_scatters(run: MeasuredRun, layers: RepeatedLayers, units: FsdpUnits) -> pl.DataFrame:
    """List the reduce-scatters: ``collective``, ``bytes``, ``step``, ``group``, and ``at``.

    ``at`` is the last activity of the backward pass that they follow.
    """
    exchanges = np.append(layers.is_first_pass[1:], True)
    last = layers.passes[exchanges, 2] - 1
    at = run.graph.nodes.n_host + layers.kernels["row"].to_numpy().astype(np.int64)[last]
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
        raise LayoutError("the layers were launched before the trace began, or by a CUDA graph.")
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
