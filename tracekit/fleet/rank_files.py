"""One rank on disk or object storage: its kernel table and its dependency graph, as Parquet files."""

import io
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.graph import MeasuredWaits
from tracekit.graph.nodes import EMPTY_NODES, Nodes

HOST_KIND, MARK_KIND, ACTIVITY_KIND = range(3)
"""Kinds of nodes, in the order in which they are numbered."""


@dataclass(frozen=True, slots=True)
class StoredRank:
    """What later rounds need of a rank.

    Attributes:
        kernels: The kernel table.
        graph: The dependency graph, without other ranks.
        unexplained: Nodes that start when they were measured, regardless of their edges.
    """

    kernels: pl.DataFrame
    graph: Graph
    unexplained: Ints


def write_rank(folder: str, rank: StoredRank) -> None:
    """Write a rank's files; the last one makes them complete.

    Args:
        folder: Path or URI.
        rank: What to write.
    """
    graph, nodes = rank.graph, rank.graph.nodes
    kind = np.repeat(
        (HOST_KIND, MARK_KIND, ACTIVITY_KIND), (nodes.n_host - nodes.n_marks, nodes.n_marks, len(rank.kernels))
    )
    is_unexplained = np.zeros(nodes.start_ns.size, np.bool_)
    is_unexplained[rank.unexplained] = True
    tables = {
        "kernels": rank.kernels.with_columns(run_edge=graph.run_edge),
        "edges": pl.DataFrame({"src": graph.src, "lag_ns": graph.lag_ns, "kind": graph.kind}),
        "vertices": pl.DataFrame({"vertex": graph.vertex, "edges": np.diff(graph.first)}),
        "nodes": pl.DataFrame(
            {"start_ns": nodes.start_ns, "end_ns": nodes.end_ns, "kind": kind, "is_unexplained": is_unexplained}
        ),
    }
    for name, table in tables.items():
        write_table(folder, name, table)


def read_rank(folder: str) -> StoredRank:
    """Read a rank's files.

    Args:
        folder: Path or URI.

    Raises:
        FileNotFoundError: They aren't all there.
    """
    nodes, vertices, edges, kernels = (read_table(folder, name) for name in ("nodes", "vertices", "edges", "kernels"))
    graph = _build_graph(nodes, vertices, edges, kernels["run_edge"].to_numpy())
    return StoredRank(kernels.drop("run_edge"), graph, nodes["is_unexplained"].arg_true().cast(pl.Int64).to_numpy())


def write_table(folder: str, name: str, table: pl.DataFrame) -> None:
    """Write one table of a rank."""
    system, path = _locate(folder)
    system.makedirs(path, exist_ok=True)
    # Whoever reads meanwhile, another worker at the same rank, sees all of it or nothing.
    unfinished = f"{path}/.{name}-{np.random.default_rng().integers(1 << 62)}"
    encoded = io.BytesIO()  # polars tells no cause of a write that fails, such as a full disk
    table.write_parquet(encoded, compression="lz4")
    with system.open(unfinished, "wb") as file:
        file.write(encoded.getbuffer())
    system.mv(unfinished, f"{path}/{name}.parquet")


def read_table(folder: str, name: str) -> pl.DataFrame:
    """Read one table of a rank.

    Raises:
        FileNotFoundError: It isn't there.
    """
    system, path = _locate(folder)
    with system.open(f"{path}/{name}.parquet", "rb") as file:
        return pl.read_parquet(file)


def remove_files(folder: str) -> None:
    """Remove a folder of ranks, which another worker may be removing too."""
    system, path = _locate(folder)
    with suppress(FileNotFoundError):
        system.rm(path, recursive=True)


def _locate(folder: str) -> tuple[Any, str]:
    import fsspec

    system, path = fsspec.core.url_to_fs(folder)
    return system, str(path)


def _build_graph(nodes: pl.DataFrame, vertices: pl.DataFrame, edges: pl.DataFrame, run_edge: Ints) -> Graph:
    """Build the graph; of its nodes only times and kinds are known."""
    count, activities = nodes.height, run_edge.size
    nothing = np.zeros(count, np.int64)
    vertex = vertices["vertex"].to_numpy()
    found = Nodes(
        start_ns=nodes["start_ns"].to_numpy(),
        end_ns=nodes["end_ns"].to_numpy(),
        lane=nothing,
        n_host=count - activities,
        n_marks=int((nodes["kind"] == MARK_KIND).sum()),
        launcher=EMPTY_NODES,
        names=pl.Series("name", [], pl.String),
        correlation=EMPTY_NODES,
        is_nvidia=False,
        busy_lane=EMPTY_NODES,
        busy_start_ns=EMPTY_NODES,
        busy_end_ns=EMPTY_NODES,
        origin_ns=0,
    )
    return Graph(
        nodes=found,
        vertex=vertex,
        first=np.concatenate([[0], np.cumsum(vertices["edges"].to_numpy())]),
        src=edges["src"].to_numpy(),
        lag_ns=edges["lag_ns"].to_numpy(),
        kind=edges["kind"].to_numpy(),
        release_ns=np.zeros(vertex.size, np.int64),
        run_edge=run_edge,
        transfer_edge=EMPTY_NODES,
        transfer_activity=EMPTY_NODES,
        kept_ns=np.zeros(activities, np.int64),
        waits=MeasuredWaits(nothing, nothing[:activities], nothing[:activities]),
        dropped=0,
    )


NO_GRAPH = _build_graph(
    pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "kind": pl.Int64}),
    pl.DataFrame(schema={"vertex": pl.Int64, "edges": pl.Int64}),
    pl.DataFrame(schema={"src": pl.Int64, "lag_ns": pl.Int64, "kind": pl.Int8}),
    EMPTY_NODES,
)
"""The graph of a job whose ranks have theirs."""
