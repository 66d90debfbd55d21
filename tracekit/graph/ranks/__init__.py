"""The ranks of a job together: matched collectives, arrivals of the ranks, and one graph of all ranks."""

from tracekit.graph.ranks.align_steps import align_steps
from tracekit.graph.ranks.link import link_ranks
from tracekit.graph.ranks.match import Collectives, join_ranks

__all__ = ["Collectives", "align_steps", "join_ranks", "link_ranks"]
