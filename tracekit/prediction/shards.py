"""A job without data parallelism as it would run sharded: parameters gathered, gradients scattered, layer by layer.

As PyTorch's ``fully_shard`` does with each repeated layer and with the rest as units of their own (Zhao et al., PyTorch
FSDP: Experiences on Scaling Fully Sharded Data Parallel, VLDB 2023): a layer's parameters are gathered before its
forward pass and again before its backward pass, at most two layers ahead of the GPU; its gradients are
reduce-scattered behind its backward pass. The rest is gathered once. All of it runs on one stream, in order. Where
replicas share experts these are units beside their layers', of the replicas of the same ones, as in torchtitan.
"""

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
from tracekit.prediction.experts import recognise_experts
from tracekit.prediction.hooks import copy_cost_ns, launch_cost_ns
from tracekit.prediction.layers import Layers, recognise_layers
from tracekit.prediction.layout import COPIES, EXPERT_COPIES, LayoutError
from tracekit.prediction.spread import OTHER_HOST
from tracekit.prediction.units import Apart, Units, moved_and_copied, units_of
from tracekit.replay.run import Run

AHEAD = 2
"""Layers that may be gathered before the GPU is done with the one in front of them."""


def with_shards(run: Run) -> Added:
    """A run of one data-parallel rank with the collectives that it would have if its parameters were sharded.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell the layers or their parameters.
    """
    return _with_shards(run, None)


def with_shards_of_experts(run: Run) -> Added:
    """The same where replicas share experts, which are sharded over the replicas of the same ones only.

    Args:
        run: The measured run.

    Raises:
        LayoutError: The trace doesn't tell the layers, their parameters or the experts.
    """
    return _with_shards(run, recognise_experts(run).hold)


def _with_shards(run: Run, apart: Apart | None) -> Added:
    layers = recognise_layers(run)
    units = units_of(run, layers, apart)
    calls = _apart(_calls(run, layers, units), units)
    copy_ns = copy_cost_ns(run)
    graph = _graph(run.graph, calls, copy_ns)
    return Added(with_kernels(run, moved_and_copied(run, calls, units), graph), _note(layers, units, copy_ns))


def _calls(run: Run, layers: Layers, units: Units) -> pl.DataFrame:
    """A row for each collective, in the order of its stream; activities are nodes of the graph, ``NEVER`` if none.

    ``collective``; ``bytes``, null for a layer; ``at``, the activity at whose launch it is launched; ``behind`` and
    ``before``, the ones that it waits for and that wait for it; ``step``.
    """
    node = run.graph.nodes.cpu + layers.kernels["row"].to_numpy().astype(np.int64)
    steps = layers.kernels["step"].to_numpy()
    follows = beside(run.graph)[0]
    last = np.append(layers.first[1:], True)
    parts = []
    for (begin, turn, end), exchanges in zip(layers.passes.tolist(), last.tolist(), strict=True):
        forward, backward = node[begin + layers.forward[:-1]], node[turn + layers.backward[:-1]]
        passed, returned = node[begin + layers.forward[1:] - 1], node[turn + layers.backward[1:] - 1]
        gathers = _gathers(backward, np.append(backward[0], backward[:-1]), returned)
        scatters = _rows("reduce_scatter", returned, returned, np.full(layers.count, NEVER))
        # The gather for the next layer is launched before the gradients of this one are there.
        number = pl.int_range(pl.len())
        turns = [gathers.with_columns(turn=2 * number), scatters.with_columns(turn=2 * number + 3)]
        rest = _rows("reduce_scatter", node[[end - 1]], node[[end - 1]], np.array([NEVER]), units.rest)
        whole = pl.concat(
            [
                _gathers(node[[begin]], node[[begin]], np.array([NEVER]), units.rest),
                _gathers(forward, forward, passed),
                *([pl.concat(turns).sort("turn").drop("turn"), rest] if exchanges else [gathers]),
            ]
        ).filter(pl.col("bytes").fill_null(1) > 0)
        ending = pl.int_range(pl.len()) == pl.len() - 1
        then = pl.when(ending & (pl.col("collective") == "reduce_scatter")).then(int(follows[node[end - 1]]))
        parts.append(whole.with_columns(before=then.otherwise("before"), step=pl.lit(int(steps[begin]))))
    return pl.concat(parts)


def _apart(calls: pl.DataFrame, units: Units) -> pl.DataFrame:
    """``calls`` with ``bytes`` everywhere and ``group``: a layer's as one of its experts and one of all else."""
    sizes = [pl.lit([units.layer, units.experts], pl.List(pl.Int64)), pl.concat_list("bytes")]
    names = [pl.lit([COPIES, EXPERT_COPIES]), pl.lit([COPIES])]
    of_layer = pl.col("bytes").is_null()
    bytes_, group = (pl.when(of_layer).then(both).otherwise(whole) for both, whole in (sizes, names))
    return calls.with_columns(bytes=bytes_, group=group).explode("bytes", "group").filter(pl.col("bytes") > 0)


def _gathers(before: Ints, at: Ints, done: Ints, size: int | None = None) -> pl.DataFrame:
    """Gathers for layers that begin with ``before``, each once the GPU is done with the layer ``AHEAD`` in front."""
    behind = np.concatenate([np.full(AHEAD, NEVER), done])[: before.size]
    return _rows("all_gather", at, behind, before, size)


def _rows(collective: str, at: Ints, behind: Ints, before: Ints, size: int | None = None) -> pl.DataFrame:
    nodes = pl.DataFrame({"at": at, "behind": behind, "before": before})
    return nodes.select(
        pl.lit(collective).alias("collective"), pl.lit(size, pl.Int64).alias("bytes"), "at", "behind", "before"
    )


def _graph(graph: Graph, calls: pl.DataFrame, copy_ns: int) -> Graph:
    """``graph`` with the collectives, each with the copy of its buffer, and what they wait for."""
    nodes = graph.nodes
    gathers = (calls["collective"] == "all_gather").to_numpy()
    at, behind, before = (calls[name].to_numpy() for name in ("at", "behind", "before"))
    call, needed_call = nodes.launcher[at - nodes.cpu], nodes.launcher[np.where(gathers, before, at) - nodes.cpu]
    if (call == NONE).any() or (needed_call == NONE).any():
        raise LayoutError("the layers were launched before the trace began, or by a CUDA graph.")
    host_ns = copy_ns + launch_cost_ns(copy_ns)
    lane = np.concatenate([np.full(calls.height, nodes.lane.max() + 1), nodes.lane[at]])
    moved = nodes.start_ns.size + np.arange(calls.height)
    copied = moved + calls.height
    grown = with_activities(
        slower_host(graph, call[gathers], call[~gathers], host_ns), lane, np.tile(nodes.start_ns[at], 2)
    )
    follows, precedes = beside(graph)
    scatters = ~gathers
    previous, following = np.where(gathers, precedes[before], at), np.where(gathers, before, follows[at])
    launch = np.where(gathers, starts(call), ends(call))
    # Copies between the same two kernels run one after the other, those for scatters first.
    order = np.lexsort((gathers, following, previous))
    same = (np.diff(previous[order]) == 0) & (np.diff(following[order]) == 0)
    program = [
        (launch, starts(moved), np.where(gathers, 0, host_ns)),
        (np.where(gathers, starts(needed_call), launch), starts(copied), np.where(gathers, 0, copy_ns)),
    ]
    awaited, awaiting = gathers & (behind != NEVER), scatters & (before != NEVER)
    event = [
        (ends(behind)[awaited], starts(moved)[awaited]),
        (np.where(gathers, ends(moved), ends(copied)), np.where(gathers, starts(copied), starts(moved))),
        (ends(moved)[awaiting], starts(before)[awaiting]),
    ]
    stream = [
        (ends(moved)[:-1], starts(moved)[1:]),
        (ends(previous)[previous != NEVER], starts(copied)[previous != NEVER]),
        (ends(copied)[following != NEVER], starts(following)[following != NEVER]),
        (ends(copied)[order[:-1][same]], starts(copied)[order[1:][same]]),
    ]
    return with_edges(
        grown,
        *(Edges(EdgeKind.PROGRAM, src, dst, lag_ns) for src, dst, lag_ns in program),
        *(Edges(EdgeKind.STREAM, src, dst, np.full(src.size, DEFAULT_GAP_NS)) for src, dst in stream),
        *(Edges(EdgeKind.EVENT, src, dst, np.full(src.size, DEFAULT_LAG_NS)) for src, dst in event),
    )


def _note(layers: Layers, units: Units, copy_ns: int) -> str:
    layer, experts, rest = (f"{size / 2**20:,.1f} MiB" for size in (units.layer, units.experts, units.rest))
    apart = f" and {experts} of experts, which only ranks with the same experts shard," if units.experts else ""
    return (
        f"the trace has no FSDP: fully_shard's collectives were inserted, for {layers.count} layers of {layer} in "
        f"{units.dtype}{apart} and {rest} besides. A layer is gathered before its forward and again before its "
        f"backward pass, up to {AHEAD} ahead; its gradients are reduce-scattered after it. Each collective "
        f"costs the CPU {(copy_ns + launch_cost_ns(copy_ns)) / 1e3:.0f} µs, derived from the trace's own ops; "
        f"{OTHER_HOST}. FSDP from a one-GPU trace was checked against published throughputs only"
    )
