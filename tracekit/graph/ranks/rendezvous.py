"""Semantics: a collective proceeds when the ranks that it needs have arrived, and ends one transfer later on each rank.

A rendezvous is a node without duration between the arrivals and the ends::

    rank 0  start --0--> +------------+ --transfer--> end
    rank 1  start --0--> | rendezvous | --transfer--> end
    rank 2  start --0--> +------------+ --transfer--> end

There is one per collective or, where not every rank needs every other, one per number of arrivals that some rank needs.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, to_end_vertices, to_start_vertices
from tracekit.graph.ranks.join import Collectives


@dataclass(frozen=True, slots=True)
class RendezvousPoints:
    """Rendezvous of the ranks.

    Attributes:
        names: Kind of each collective.
        arrival_row: For every arrival, the row of the kernel table.
        arrival_point: The rendezvous of each arrival.
        end_row: For every rank's end, the row of the kernel table.
        end_point: The rendezvous that precedes each end.
    """

    names: pl.Series
    arrival_row: Ints
    arrival_point: Ints
    end_row: Ints
    end_point: Ints


def build_rendezvous_points(collectives: Collectives) -> RendezvousPoints:
    """Build the rendezvous of joined collectives."""
    table = collectives.table.with_columns(
        place=pl.int_range(1, pl.len() + 1).over("collective", order_by=["arrival_ns", "rank"])
    )
    needed = table.filter(pl.col("awaits") > 0)
    found = (
        needed.select("collective", "awaits", "kind").unique().sort("collective", "awaits").with_row_index("meeting")
    )
    arrivals = found.join(table, on="collective").filter(pl.col("place") <= pl.col("awaits"))
    after = needed.join(found, on=["collective", "awaits"], maintain_order="left")
    return RendezvousPoints(
        names=found["kind"],
        arrival_row=arrivals["row"].to_numpy(),
        arrival_point=arrivals["meeting"].cast(pl.Int64).to_numpy(),
        end_row=after["row"].to_numpy(),
        end_point=after["meeting"].cast(pl.Int64).to_numpy(),
    )


def build_rendezvous_edges(found: RendezvousPoints, meeting_node: int, activity_node: int, run_ns: Ints) -> Edges:
    """Build edges from arrivals to rendezvous, and from rendezvous to the ends of the collectives.

    Args:
        found: The rendezvous.
        meeting_node: Node number of the first rendezvous.
        activity_node: Node number of the first activity.
        run_ns: Duration of each activity without its waits.
    """
    arrive = to_start_vertices(activity_node + found.arrival_row), to_start_vertices(meeting_node + found.arrival_point)
    finish = to_end_vertices(meeting_node + found.end_point), to_end_vertices(activity_node + found.end_row)
    return Edges(
        EdgeKind.RENDEZVOUS,
        np.concatenate([arrive[0], finish[0]]),
        np.concatenate([arrive[1], finish[1]]),
        np.concatenate([np.zeros(found.arrival_row.size, dtype=np.int64), run_ns[found.end_row]]),
    )
