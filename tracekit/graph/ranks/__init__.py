"""The ranks of a job together: which collectives are one, when each rank arrived, and one graph of all."""

from tracekit.graph.ranks.join import Collectives, join
from tracekit.graph.ranks.link import link_ranks

__all__ = ["Collectives", "join", "link_ranks"]
