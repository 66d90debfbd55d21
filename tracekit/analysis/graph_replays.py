"""Count the nodes of CUDA graphs that their replays lack, as a profiler that lost kernels leaves them."""

from dataclasses import dataclass

import polars as pl

from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.trace import RankTrace


@dataclass(frozen=True, slots=True)
class ReplayCounts:
    """Replays of CUDA graphs whose nodes were recorded.

    Attributes:
        replays: Launches of graphs.
        incomplete: Replays that lack nodes which another replay of the same graph has.
        nodes: Recorded nodes of all replays.
        missing: Nodes that the incomplete replays lack.
    """

    replays: int
    incomplete: int
    nodes: int
    missing: int


def count_replayed_nodes(rank: RankTrace) -> ReplayCounts:
    """Count the nodes that each replay has, and those that it lacks.

    Replays belong to one graph if they share nodes, whose ids are unique in a process. Activities without the id of
    their node (ROCm, older profilers) don't count. Example: of a graph with nodes 1, 2, 3::

        launch 10: 1 2 3      launch 11: 1 3 (lacks 2)
    """
    if rank.activities["graph_node_id"].count() == 0:
        return ReplayCounts(replays=0, incomplete=0, nodes=0, missing=0)
    launches = rank.calls.filter(pl.col("name").str.contains(GRAPH_LAUNCH_CALLS)).select("correlation").unique()
    nodes = (
        rank.activities.drop_nulls("graph_node_id")
        .join(launches, on="correlation", how="semi")
        .select(replay="correlation", node="graph_node_id")
        .unique()
    )
    sizes = nodes.group_by("replay").agg(held=pl.len())
    # A graph is named by the largest replay that has its nodes.
    largest_first = nodes.join(sizes, on="replay").sort("held", "replay", descending=[True, False])
    graphs = largest_first.unique("node", keep="first", maintain_order=True).select("node", graph="replay")
    shared = nodes.join(graphs, on="node").group_by("replay", "graph").agg(shared=pl.len())
    most_shared_first = shared.sort("shared", "graph", descending=[True, False])
    graph_of_replay = most_shared_first.unique("replay", keep="first").select("replay", "graph")
    whole = nodes.join(graph_of_replay, on="replay").group_by("graph").agg(whole=pl.col("node").n_unique())
    counts = graph_of_replay.join(whole, on="graph").join(sizes, on="replay")
    missing = counts.select(pl.col("whole") - pl.col("held")).to_series()
    return ReplayCounts(sizes.height, int((missing > 0).sum()), nodes.height, int(missing.sum()))
