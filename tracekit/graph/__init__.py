"""What has to wait for what: the dependency graph of a trace."""

from tracekit.graph.graph import Graph
from tracekit.graph.link import link

__all__ = ["Graph", "link"]
