"""Launches: a GPU activity cannot start before its launch call plus the launch latency.

Semantics: an activity starts after its launch call, joined by the recorded correlation id. Heuristics: the latency (a
median of the trace), and when slow calls and CUDA graph launches submit their work:

* A CUDA graph is submitted as a whole. Where no part of it ran before its launch call had returned (of a slow call:
  nearly returned), none can.
* A slow call that let its graph or copy start earlier, long after the call began and on an idle GPU, will do so again.
* A kernel that started shortly before its slow call returned waits for the call, as calls that load its code do.

Evidence (docs/contributing/fitting-weights.md): TriForce and LightLLM, 2 to 5 % short without the graph rules; the
slow-call rule, without which 59 % of a first step is idle without a reason.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.inference import pageable_copies
from tracekit.graph.nodes import NONE, Nodes

# From the call's start to the kernel's, on an idle stream: 6.4 to 11.6 us on A100, H100, V100, B200; used where a trace
# has no launch on an idle stream to measure it.
DEFAULT_LATENCY_NS = 8_000
# A kernel that starts later than this after its call waited for something other than its launch.
MAX_LATENCY_NS = 100_000
MIN_SAMPLES = 5
# An activity that starts in this last fraction of a call slower than MAX_LATENCY_NS waited for the call's end.
LAST_FRACTION = 0.1
# Samples needed over all kernels, or all copies and memsets. A single one may have waited.
MIN_SAMPLES_BY_TYPE = 2


def link_launches(nodes: Nodes, kernels: pl.DataFrame, held_back: Ints) -> Edges:
    """Build launch edges: the lag is the median latency of similar launches on an idle stream, 0 after a graph's call.

    Where a graph or the kernel of a slow call started just before its call returned, the lag from the call's end is
    negative by that much. Where a slow call delayed its work before that on an idle GPU, or fed the first piece of a
    copy, the measured delay is kept::

        call      |=========|                    slow call   |===========================|
        kernel      |######|                     its graph                            |######|
                  |-| lag from the start                                              |--| negative lag from the end

    Args:
        nodes: The nodes.
        kernels: The kernel table.
        held_back: Activities known to have waited for another stream: no samples of the latency.
    """
    launched = nodes.activities[nodes.launcher != NONE]
    launcher = nodes.launcher[nodes.launcher != NONE]
    idle = _find_idle_stream_launches(nodes)
    latency = _estimate_latency(nodes, kernels, idle, held_back)[nodes.launcher != NONE]
    whole, early, late = _find_submission_times(nodes, launcher, launched, (kernels["kind"] == "kernel").to_numpy())
    source = np.where(whole, to_end_vertices(launcher), to_start_vertices(launcher))
    lag = np.where(whole, -early, np.where(late > 0, late, latency))
    first_piece = (pageable_copies.find_staged_copies(nodes, kernels) & idle)[launched - nodes.n_host]
    lag = np.where(first_piece, nodes.start_ns[launched] - nodes.start_ns[launcher], lag)
    # On a faster CPU a graph is not submitted before its call has begun.
    begun = whole & (early > 0)
    source = np.concatenate([source, to_start_vertices(launcher[begun])])
    target = np.concatenate([to_start_vertices(launched), to_start_vertices(launched[begun])])
    return Edges(EdgeKind.LAUNCH, source, target, np.concatenate([lag, np.zeros(begun.sum(), dtype=lag.dtype)]))


def _find_submission_times(nodes: Nodes, launcher: Ints, launched: Ints, is_kernel: Bools) -> tuple[Bools, Ints, Ints]:
    """Find when CUDA graphs, and the kernels of slow calls, were submitted to the GPU.

    Returns:
        For each launched activity: whether at the end of its launch call; how long before that end it started; and, for
            the call of a graph or copy that submitted it in its midst, the delay from the call's start, else 0.
    """
    graphs, kernel = nodes.is_graph_launch, is_kernel[launched - nodes.n_host]
    start, end = nodes.start_ns[: nodes.n_host], nodes.end_ns[: nodes.n_host]
    first = np.full(nodes.n_host, np.iinfo(np.int64).max)
    np.minimum.at(first, launcher, nodes.start_ns[launched])
    early = np.maximum(end - first, 0)
    near = (end - start > MAX_LATENCY_NS) & (early <= LAST_FRACTION * (end - start))
    whole = (graphs & ((early == 0) | near))[launcher]
    whole |= (near & (early > 0))[launcher] & kernel
    late = np.where((first - start > MAX_LATENCY_NS) & (_compute_busy_until(nodes, first) <= start), first - start, 0)
    held = graphs[launcher] | (~kernel & (early > 0)[launcher])
    return whole, early[launcher], np.where(held, late[launcher], 0)


def _compute_busy_until(nodes: Nodes, times: Ints) -> Ints:
    """Return when the activities that had started before each time were over."""
    order = nodes.activities[np.argsort(nodes.start_ns[nodes.activities], kind="stable")]
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(nodes.end_ns[order])])
    busy: Ints = reached[np.searchsorted(nodes.start_ns[order], times)]
    return busy


def _estimate_latency(nodes: Nodes, kernels: pl.DataFrame, idle: Bools, held_back: Ints) -> Ints:
    """Estimate launch latencies from launches by the same call (copies and memsets: of the same name).

    Rare ones use the median over all kernels, or over all copies and memsets: a copy of pageable memory starts 50 us
    after its call.
    """
    launcher_name = nodes.names.gather(pl.Series(nodes.launcher).replace(NONE, None))
    likeness = pl.when(pl.col("kind") == "kernel").then(launcher_name).otherwise("name")
    measured = np.maximum(nodes.start_ns[nodes.activities] - nodes.start_ns[nodes.launcher], 0)
    tells = idle & (measured < MAX_LATENCY_NS)
    tells[held_back - nodes.n_host] = False
    samples = kernels.select(likeness=likeness, is_kernel=pl.col("kind") == "kernel").with_columns(
        latency=pl.when(pl.Series(tells)).then(pl.Series(measured))
    )
    median, count = pl.col("latency").median(), pl.col("latency").count()
    alike = pl.when(count.over("likeness") >= MIN_SAMPLES).then(median.over("likeness"))
    akin = pl.when(count.over("is_kernel") >= MIN_SAMPLES_BY_TYPE).then(median.over("is_kernel"))
    expected = pl.coalesce(alike, akin, median)
    return samples.select(expected.fill_null(DEFAULT_LATENCY_NS).round().cast(pl.Int64)).to_series().to_numpy()


def _find_idle_stream_launches(nodes: Nodes) -> Bools:
    """Return, for each activity, whether its stream was idle when its launch call began."""
    before, after = nodes.find_neighbours(nodes.activities)
    busy_until = np.full(nodes.activities.size, np.iinfo(np.int64).min)
    busy_until[after - nodes.n_host] = nodes.end_ns[before]
    idle: Bools = (nodes.launcher != NONE) & (busy_until < nodes.start_ns[nodes.launcher])
    return idle
