"""Launches of CUDA graphs that a recorder wrote as one row, whatever runs in them."""

import polars as pl

WHOLE_GRAPH = "CUDA graph"
"""Begin of their names; the graph's number follows, where it is known."""
WHOLE_GRAPH_NAME = rf"^{WHOLE_GRAPH}(?: \d+)?$"


def is_whole_graph() -> pl.Expr:
    """Whether an activity is the launch of a whole graph."""
    return pl.col("name").str.contains(WHOLE_GRAPH_NAME)
