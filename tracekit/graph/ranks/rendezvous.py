"""A collective goes on when the ranks that it needs have arrived, and ends a transfer later, on each rank.

A meeting is a node without duration that stands between the arrivals and the ends; there is one per collective, or,
where not every rank needs every other, one per number of arrivals that somebody needs.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph.edges import EdgeKind, Edges, ends, starts
from tracekit.graph.ranks.join import Collectives


@dataclass(frozen=True, slots=True)
class Meetings:
    """Meetings of ranks.

    Attributes:
        names: What kind of collective each is.
        row: For every arrival, the row of the kernel table.
        meets: The meeting that it comes to.
        ends_row: For every rank's end, the row of the kernel table.
        ends_after: The meeting that it follows.
    """

    names: pl.Series
    row: Ints
    meets: Ints
    ends_row: Ints
    ends_after: Ints


def meetings(collectives: Collectives) -> Meetings:
    """The meetings of joined collectives."""
    table = collectives.table.with_columns(
        place=pl.int_range(1, pl.len() + 1).over("collective", order_by=["arrival_ns", "rank"])
    )
    needed = table.filter(pl.col("awaits") > 0)
    found = (
        needed.select("collective", "awaits", "kind").unique().sort("collective", "awaits").with_row_index("meeting")
    )
    arrivals = found.join(table, on="collective").filter(pl.col("place") <= pl.col("awaits"))
    after = needed.join(found, on=["collective", "awaits"], maintain_order="left")
    return Meetings(
        names=found["kind"],
        row=arrivals["row"].to_numpy(),
        meets=arrivals["meeting"].cast(pl.Int64).to_numpy(),
        ends_row=after["row"].to_numpy(),
        ends_after=after["meeting"].cast(pl.Int64).to_numpy(),
    )


def edges(found: Meetings, meeting_node: int, activity_node: int, run_ns: Ints) -> Edges:
    """Edges from arrivals to meetings, and from meetings to the ends of the collectives.

    Args:
        found: The meetings.
        meeting_node: Number of the first meeting's node.
        activity_node: Number of the first activity's node.
        run_ns: How long each activity takes without its waits.
    """
    arrive = starts(activity_node + found.row), starts(meeting_node + found.meets)
    finish = ends(meeting_node + found.ends_after), ends(activity_node + found.ends_row)
    return Edges(
        EdgeKind.RENDEZVOUS,
        np.concatenate([arrive[0], finish[0]]),
        np.concatenate([arrive[1], finish[1]]),
        np.concatenate([np.zeros(found.row.size, dtype=np.int64), run_ns[found.ends_row]]),
    )
