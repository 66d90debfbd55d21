"""A GPU activity can't start before its launch call plus the launch latency.

A CUDA graph is handed over as a whole: where nothing of it ran before its launch call had returned or, of a slow call,
nearly had, nothing can. A slow call that let it, or a copy, start earlier, but long after it began, on an idle GPU will
again. Nor does a kernel start before a slow call is nearly over that did, as those that load its code.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph import copies
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.nodes import NONE, Nodes

# From the call's start to the kernel's, on an idle stream: 6.4 to 11.6 us on A100, H100, V100, B200; used where a
# trace has no launch on an idle stream to learn it from.
DEFAULT_LATENCY_NS = 8_000
# A kernel that starts later than this waited for something else than its launch.
MAX_LATENCY_NS = 100_000
ENOUGH = 5
# What starts in this last part of a call that takes longer than any latency waited for its end.
NEAR_ITS_END = 0.1
# Of all kernels, or all copies and sets, fewer will do; a single one may have waited.
SOME = 2


def link(nodes: Nodes, kernels: pl.DataFrame, held_back: Ints) -> Edges:
    """Launch edges; the lag is the median latency of like launches on an idle stream, none after a graph's call.

    Where a graph, or the kernel of a slow call, started just before its call returned, it is less than none by as much.
    What a slow call took before that on an idle GPU is kept as measured, and so is what one took for the first piece of
    a copy.

    Args:
        nodes: The nodes.
        kernels: The kernel table.
        held_back: Activities that are known to have waited for another stream: they tell nothing of the latency.
    """
    launched = nodes.activities[nodes.launcher != NONE]
    launcher = nodes.launcher[nodes.launcher != NONE]
    idle = _on_idle_stream(nodes)
    latency = _latency(nodes, kernels, idle, held_back)[nodes.launcher != NONE]
    whole, early, late = _handed_over(nodes, launcher, launched, (kernels["kind"] == "kernel").to_numpy())
    source = np.where(whole, ends(launcher), starts(launcher))
    lag = np.where(whole, -early, np.where(late > 0, late, latency))
    first_piece = (copies.fed(nodes, kernels) & idle)[launched - nodes.cpu]
    lag = np.where(first_piece, nodes.start_ns[launched] - nodes.start_ns[launcher], lag)
    # On a faster CPU a graph isn't handed over before its call has begun.
    begun = whole & (early > 0)
    source = np.concatenate([source, starts(launcher[begun])])
    target = np.concatenate([starts(launched), starts(launched[begun])])
    return Edges(EdgeKind.LAUNCH, source, target, np.concatenate([lag, np.zeros(begun.sum(), dtype=lag.dtype)]))


def _handed_over(nodes: Nodes, launcher: Ints, launched: Ints, is_kernel: Bools) -> tuple[Bools, Ints, Ints]:
    """When the graphs that activities are of, or kernels of slow calls, were handed over.

    Returns:
        Whether with their launch call's end, how long before it they started, and, of a graph's or a copy's call that
        took long to do it in its midst, how long; else 0.
    """
    graphs, kernel = nodes.launches_graph, is_kernel[launched - nodes.cpu]
    start, end = nodes.start_ns[: nodes.cpu], nodes.end_ns[: nodes.cpu]
    first = np.full(nodes.cpu, np.iinfo(np.int64).max)
    np.minimum.at(first, launcher, nodes.start_ns[launched])
    early = np.maximum(end - first, 0)
    near = (end - start > MAX_LATENCY_NS) & (early <= NEAR_ITS_END * (end - start))
    whole = (graphs & ((early == 0) | near))[launcher]
    whole |= (near & (early > 0))[launcher] & kernel
    late = np.where((first - start > MAX_LATENCY_NS) & (_busy_until(nodes, first) <= start), first - start, 0)
    held = graphs[launcher] | (~kernel & (early > 0)[launcher])
    return whole, early[launcher], np.where(held, late[launcher], 0)


def _busy_until(nodes: Nodes, times: Ints) -> Ints:
    """When the activities that had started before each time were over."""
    order = nodes.activities[np.argsort(nodes.start_ns[nodes.activities], kind="stable")]
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(nodes.end_ns[order])])
    busy: Ints = reached[np.searchsorted(nodes.start_ns[order], times)]
    return busy


def _latency(nodes: Nodes, kernels: pl.DataFrame, idle: Bools, held_back: Ints) -> Ints:
    """Latency to expect of each activity, by the call that launched it (copies and sets: by their own name).

    Of what is rare, that of kernels or of copies and sets: a copy of pageable memory starts 50 us after its call.
    """
    launcher_name = nodes.names.gather(pl.Series(nodes.launcher).replace(NONE, None))
    likeness = pl.when(pl.col("kind") == "kernel").then(launcher_name).otherwise("name")
    measured = np.maximum(nodes.start_ns[nodes.activities] - nodes.start_ns[nodes.launcher], 0)
    tells = idle & (measured < MAX_LATENCY_NS)
    tells[held_back - nodes.cpu] = False
    samples = kernels.select(likeness=likeness, is_kernel=pl.col("kind") == "kernel").with_columns(
        latency=pl.when(pl.Series(tells)).then(pl.Series(measured))
    )
    median, count = pl.col("latency").median(), pl.col("latency").count()
    alike = pl.when(count.over("likeness") >= ENOUGH).then(median.over("likeness"))
    akin = pl.when(count.over("is_kernel") >= SOME).then(median.over("is_kernel"))
    expected = pl.coalesce(alike, akin, median)
    return samples.select(expected.fill_null(DEFAULT_LATENCY_NS).round().cast(pl.Int64)).to_series().to_numpy()


def _on_idle_stream(nodes: Nodes) -> Bools:
    """Activities whose stream had nothing left to do when their launch call began."""
    before, after = nodes.neighbours(nodes.activities)
    busy_until = np.full(nodes.activities.size, np.iinfo(np.int64).min)
    busy_until[after - nodes.cpu] = nodes.end_ns[before]
    idle: Bools = (nodes.launcher != NONE) & (busy_until < nodes.start_ns[nodes.launcher])
    return idle
