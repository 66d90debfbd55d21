"""Gaps beside copies and memsets, which differ from those between kernels."""

import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.nodes import Nodes
from tracekit.rules import Rule

RULE = Rule(
    "copy-gaps",
    "The usual gap beside a copy or memset is measured apart from that between kernels.",
    "Public traces with many memsets are 1 to 4 % short without the rule.",
)


def find_copy_neighbours(nodes: Nodes, kernels: pl.DataFrame, before: Ints, after: Ints) -> Bools:
    """Return which pairs of consecutive activities have a copy or memset among them."""
    moves = (kernels["kind"] != "kernel").to_numpy()
    beside: Bools = moves[before - nodes.n_host] | moves[after - nodes.n_host]
    return beside
