"""Gaps between consecutive activities of a stream that are other than usual."""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph import recorded
from tracekit.graph.nodes import NONE, Nodes
from tracekit.rules import Rule

COPY_GAPS_RULE = Rule(
    "copy-gaps",
    "The usual gap beside a copy or memset is measured apart from that between kernels.",
    "Public traces with many memsets are 1 to 4 % short without the rule.",
)
"""Gaps beside copies and memsets, which differ from those between kernels."""


def find_copy_neighbours(nodes: Nodes, kernels: pl.DataFrame, before: Ints, after: Ints) -> Bools:
    """Return which pairs of consecutive activities have a copy or memset among them."""
    moves = (kernels["kind"] != "kernel").to_numpy()
    beside: Bools = moves[before - nodes.n_host] | moves[after - nodes.n_host]
    return beside


CUDA_GRAPH_GAPS_RULE = Rule(
    "cuda-graph-gaps",
    "A gap that recurs in every replay of a CUDA graph belongs to the graph.",
    "An A100's trace with NCCL in CUDA graphs on six streams is 43 % short without the rule; "
    "PyTorch-CUDA-Graph-Capture-Examples (A100) and vLLM on a GH200 1 and 6 %.",
)
"""Gaps between activities that recur in every replay of a CUDA graph.

A graph holds work that traces do not show (branches, child graphs, kernels that CUPTI left out) and dependencies that
no event records. A gap that is the same in all replays, while the queue never ran dry, belongs to the graph and is
kept: in an A100 trace, 28 ms lie between the first two recorded activities of one graph in every step. A gap in which
another branch of the graph was working is a wait instead, and is derived.
"""

# Shorter gaps are ordinary. A kernel may start 3 us after a memset in every replay.
MIN_GAP_NS = 2_000
# Longer gaps hold work that the trace does not show.
MIN_HIDDEN_NS = 20_000
# How many replays have to agree, and their largest median deviation from the median gap, as a fraction of it.
MIN_REPLAYS = 3
MAX_SPREAD_FRACTION = 0.1
# Largest fraction of a gap in which other branches may have worked.
MAX_BUSY_FRACTION = 0.1


def measure_replay_gaps(nodes: Nodes, kernels: pl.DataFrame, before: Ints, after: Ints, queued: Bools) -> Ints:
    """Measure the gap between consecutive activities of a stream that all replays share; 0 where none is known.

    ``after`` follows ``before`` on its stream; ``queued`` is whether it had been launched well before that one ended.
    """
    identity = _identify_activities(nodes, kernels)
    if identity is None:
        return np.zeros(before.size, dtype=np.int64)
    of_graph = identity["of_graph"].to_numpy()
    gap = nodes.start_ns[after] - nodes.end_ns[before]
    alone = _measure_busy_time(nodes, nodes.activities[of_graph], before, after) <= MAX_BUSY_FRACTION * np.maximum(
        gap, 0
    )
    pairs = pl.DataFrame(
        {
            "before": identity["what"].gather(pl.Series(before - nodes.n_host)),
            "after": identity["what"].gather(pl.Series(after - nodes.n_host)),
            "lane": nodes.lane[after],
            "gap": gap,
            "counts": queued & alone & (of_graph[before - nodes.n_host] | of_graph[after - nodes.n_host]),
        }
    ).with_columns(gap=pl.when("counts").then("gap"))
    same = ("before", "after", "lane")
    median = pl.col("gap").median().over(same)
    spread = (pl.col("gap") - median).abs().median().over(same)
    stable = (
        (pl.col("gap").count().over(same) >= MIN_REPLAYS)
        & (median > MIN_GAP_NS)
        & (spread <= MAX_SPREAD_FRACTION * median)
    )
    hidden = pairs.select(pl.when(stable & pl.col("counts")).then(median).otherwise(0.0).round().cast(pl.Int64))
    return hidden.to_series().to_numpy()


def _measure_busy_time(nodes: Nodes, activities: Ints, before: Ints, after: Ints) -> Ints:
    """Measure how long any of ``activities`` ran between the end of ``before`` and the start of ``after``."""
    begin, end = nodes.end_ns[before], nodes.start_ns[after]
    busy = recorded.merge_intervals(nodes.start_ns[activities], nodes.end_ns[activities], int(nodes.end_ns.max()) + 2)
    return busy.measure_covered_ns(np.zeros_like(begin), begin, end)


def _identify_activities(nodes: Nodes, kernels: pl.DataFrame) -> pl.DataFrame | None:
    """Return, per activity, an id ``what`` equal in all replays, and ``of_graph``; ``None`` without graphs."""
    graphs = nodes.is_graph_launch
    if not graphs.any():
        return None
    launcher = nodes.launcher
    of_graph = (launcher != NONE) & graphs[launcher]
    table = pl.DataFrame(
        {"row": np.arange(launcher.size), "launcher": launcher, "name": kernels["name"], "start": kernels["ts_ns"]}
    ).with_columns(lane=pl.Series(nodes.lane[nodes.activities]))
    branch = ("launcher", "lane")
    ordered = table.filter(pl.Series(of_graph)).sort(*branch, "start", "row")
    content = ordered.group_by(branch).agg(content=pl.col("name").str.join("\n").hash())
    replayed = (
        ordered.join(content, on=branch)
        .with_columns(place=pl.int_range(pl.len()).over(branch, order_by=["start", "row"]))
        .with_columns(what=pl.struct("content", "place").hash())
    )
    joined = table.join(replayed.select("row", "what"), on="row", how="left", maintain_order="left")
    return joined.select(what=pl.coalesce("what", pl.col("name").hash()), of_graph=pl.Series(of_graph))


DEPENDENT_LAUNCH_RULE = Rule(
    "dependent-launch",
    "A kernel that starts before the previous one ends, and outlasts it, waited for that end.",
    "SGLang on a GB300: 2 % too long without the rule.",
)
"""Kernels that start before the previous kernel of their stream ends: programmatic dependent launch.

Such a kernel waits inside for the previous kernel's end (CUDA C++ Programming Guide). The waiting is not work: the
kernel's work begins with that end, and there is no gap. The trace doesn't record which kernels were launched so.
"""
# Kernels that end closer together ran side by side (branches of a graph): a kernel that waits for another outlasts it
# by more.
MIN_OUTLAST_NS = 500


def measure_early_ns(nodes: Nodes, before: Ints, after: Ints) -> Ints:
    """Measure how long each activity ran before the end of the previous one, if it outlasted that one; else 0."""
    early = nodes.end_ns[before] - nodes.start_ns[after]
    waited = (early > 0) & (nodes.end_ns[after] >= nodes.end_ns[before] + MIN_OUTLAST_NS)
    return np.where(waited, early, 0)
