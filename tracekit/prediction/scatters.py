"""Stages of a pipeline that share out their parameters over replicas: gradients scattered behind the last micro-batch.

As torchtitan runs PyTorch's ``fully_shard`` in stages: what a stage gathers it keeps until its last backward pass, so
that parameters are gathered once a step and not with each micro-batch (its parallelize.py: reshard_after_forward is off
with pipelines), and gradients are reduce-scattered behind that pass, unit by unit, nothing beside them
(torch/distributed/pipelining/stage.py, run_post_backward). The gathers are ``gathers``'.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.change import with_activities, with_edges
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.events import DEFAULT_LAG_NS
from tracekit.graph.nodes import NONE
from tracekit.graph.streams import DEFAULT_GAP_NS
from tracekit.prediction.added import NEVER, Added, beside, slower_host, with_kernels
from tracekit.prediction.hooks import copy_cost_ns, launch_cost_ns
from tracekit.prediction.layers import Layers, recognise_layers
from tracekit.prediction.layout import COPIES, LayoutError
from tracekit.prediction.spread import OTHER_HOST
from tracekit.prediction.units import Units, moved_and_copied, sharding, units_of
from tracekit.replay.run import Run

RECORDED = (
    "The trace's own all-gathers and reduce-scatters were left out; their copies and launches are in every "
    "micro-batch, as recorded"
)
"""Of jobs that shard their parameters."""


def with_scatters(run: Run) -> Added:
    """A run of one data-parallel rank with the reduce-scatters that its stages would have if they shared parameters.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell the layers or their parameters.
    """
    layers = recognise_layers(run)
    units = units_of(run, layers)
    calls = _calls(run, layers, units)
    host_ns = launch_cost_ns(copy_cost_ns(run))
    graph = _graph(run.graph, calls["at"].to_numpy(), host_ns)
    return Added(with_kernels(run, moved_and_copied(run, calls, units), graph), _note(layers, units, host_ns))


def with_scatters_only(run: Run) -> Added:
    """A run of a rank that shards its parameters, with the collectives that its stages would have.

    What its passes gather and scatter takes no time any more; copies and launches stay as they were recorded.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell the layers or what they scatter.
    """
    rows = sharding(run)["row"]
    mine = pl.int_range(pl.len()).is_in(rows.implode())
    kept_ns = run.graph.kept_ns.copy()
    kept_ns[rows.to_numpy()] = 0
    alone = {"dur_ns": 0, "wait_ns": 0, "ranks": 1}
    changed = (pl.when(mine).then(value).otherwise(name).alias(name) for name, value in alone.items())
    bare = replace(run, kernels=run.kernels.with_columns(changed), graph=replace(run.graph, kept_ns=kept_ns))
    added = with_scatters(bare)
    return replace(added, note=f"{added.note}. {RECORDED}")


def _calls(run: Run, layers: Layers, units: Units) -> pl.DataFrame:
    """A row for each reduce-scatter: ``collective``, ``bytes``, ``step``, and ``at``, the last activity of its pass."""
    exchanges = np.append(layers.first[1:], True)
    last = layers.passes[exchanges, 2] - 1
    at = run.graph.nodes.cpu + layers.kernels["row"].to_numpy().astype(np.int64)[last]
    sizes = [size for size in (*[units.layer] * layers.count, units.rest) if size]
    passes = pl.DataFrame({"at": at, "step": layers.kernels["step"].to_numpy()[last]})
    return passes.select(
        "at", "step", bytes=pl.lit(sizes, pl.List(pl.Int64)), collective=pl.lit("reduce_scatter"), group=pl.lit(COPIES)
    ).explode("bytes")  # fmt: skip


def _graph(graph: Graph, at: Ints, host_ns: int) -> Graph:
    """``graph`` with the reduce-scatters, each behind the copy of its buffer, between a pass and what follows it."""
    nodes = graph.nodes
    call = nodes.launcher[at - nodes.cpu]
    if (call == NONE).any():
        raise LayoutError("the layers were launched before the trace began, or by a CUDA graph.")
    number = np.arange(at.size)
    scattered = nodes.start_ns.size + number
    copied = scattered + at.size
    first = np.append(True, at[1:] != at[:-1])
    last = np.append(first[1:], True)
    turn = number - number[first][first.cumsum() - 1] + 1
    follows = beside(graph)[0][at[last]]
    awaited = follows != NEVER
    host = slower_host(graph, call[:0], call, host_ns)
    grown = with_activities(host, np.full(2 * at.size, nodes.lane.max() + 1), np.tile(nodes.end_ns[at], 2))
    edges = (
        (EdgeKind.PROGRAM, ends(call), starts(copied), host_ns * turn),
        (EdgeKind.EVENT, ends(at[first]), starts(copied[first]), DEFAULT_LAG_NS),
        (EdgeKind.STREAM, ends(copied), starts(scattered), DEFAULT_GAP_NS),
        (EdgeKind.STREAM, ends(scattered[:-1]), starts(copied[1:]), DEFAULT_GAP_NS),
        (EdgeKind.EVENT, ends(scattered[last][awaited]), starts(follows[awaited]), DEFAULT_LAG_NS),
    )
    waits = (Edges(kind, src, dst, np.broadcast_to(lag_ns, src.shape)) for kind, src, dst, lag_ns in edges)
    return with_edges(grown, *waits)


def _note(layers: Layers, units: Units, host_ns: int) -> str:
    layer, rest = (f"{size / 2**20:,.1f} MiB" for size in (units.layer, units.rest))
    return (
        "stages shard their parameters as torchtitan's do (fully_shard, which keeps what it gathered until the "
        f"step's last backward pass): its collectives were inserted, for {layers.count} layers of {layer} in "
        f"{units.dtype} and {rest} besides, gathered once a step, before a stage's first micro-batch, and "
        "reduce-scattered after its last one. Megatron-LM's distributed optimizer and DeepSpeed's ZeRO-1, the stage "
        f"that it has for pipelines, move as much. Each reduce-scatter costs the CPU {host_ns / 1e3:.0f} µs, derived "
        f"from the trace's own ops; {OTHER_HOST}. FSDP with pipelines was checked against one published pair only"
    )
