"""CUDA graphs: distances between activities that come back in every replay of a graph.

A graph holds work that traces don't show (branches, child graphs, kernels that CUPTI left out) and dependencies that
no event tells. What is the same in all replays, in a queue that never ran dry, belongs to the graph and not to the
moment: in a trace of an A100, 28 ms lie between the first two recorded activities of one graph in every step. Not what
another branch of the graph worked meanwhile: for that an activity waits, which is derived.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph import spans
from tracekit.graph.nodes import NONE, Nodes

# Shorter distances are ordinary gaps. A kernel may start 3 us after a set of memory, in every replay.
GAP_NS = 2_000
# Longer ones hold work that the trace doesn't show.
HIDDEN_NS = 20_000
# How many replays have to agree, and how much their distances may differ from the median, as a part of it.
REPLAYS = 3
SPREAD = 0.1
# Of a distance, the part in which other branches may have worked.
MOST_WORKED = 0.1


def distances(nodes: Nodes, kernels: pl.DataFrame, before: Ints, after: Ints, queued: Bools) -> Ints:
    """What lies between consecutive activities of a stream in all replays alike; 0 where that can't be told.

    Args:
        nodes: The nodes.
        kernels: The kernel table.
        before: Activities.
        after: The next one on the stream of each.
        queued: Whether it had been launched well before the one before it ended.
    """
    identity = _identity(nodes, kernels)
    if identity is None:
        return np.zeros(before.size, dtype=np.int64)
    of_graph = identity["of_graph"].to_numpy()
    gap = nodes.start_ns[after] - nodes.end_ns[before]
    alone = _worked(nodes, nodes.activities[of_graph], before, after) <= MOST_WORKED * np.maximum(gap, 0)
    pairs = pl.DataFrame(
        {
            "before": identity["what"].gather(pl.Series(before - nodes.cpu)),
            "after": identity["what"].gather(pl.Series(after - nodes.cpu)),
            "lane": nodes.lane[after],
            "gap": gap,
            "counts": queued & alone & (of_graph[before - nodes.cpu] | of_graph[after - nodes.cpu]),
        }
    ).with_columns(gap=pl.when("counts").then("gap"))
    same = ("before", "after", "lane")
    median = pl.col("gap").median().over(same)
    spread = (pl.col("gap") - median).abs().median().over(same)
    stable = (pl.col("gap").count().over(same) >= REPLAYS) & (median > GAP_NS) & (spread <= SPREAD * median)
    hidden = pairs.select(pl.when(stable & pl.col("counts")).then(median).otherwise(0.0).round().cast(pl.Int64))
    return hidden.to_series().to_numpy()


def _worked(nodes: Nodes, activities: Ints, before: Ints, after: Ints) -> Ints:
    """For how long any of some activities ran between the end of one activity and the start of another."""
    begin, end = nodes.end_ns[before], nodes.start_ns[after]
    busy = spans.of_intervals(nodes.start_ns[activities], nodes.end_ns[activities], int(nodes.end_ns.max()) + 2)
    return busy.covered_ns(np.zeros_like(begin), begin, end)


def _identity(nodes: Nodes, kernels: pl.DataFrame) -> pl.DataFrame | None:
    """Per activity ``what`` it is, alike in all replays, and ``of_graph``; ``None`` for a trace without graphs."""
    graphs = nodes.launches_graph
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
