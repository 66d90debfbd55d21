"""The dependency graph of a trace: which vertex has to wait for which.

Each module says which of three it is. **Semantics**: what CUDA, HIP or torch.distributed guarantee. **Recorded**: what
the trace records. **Heuristics**: rules that infer what the trace does not record, with their evidence.
"""

from tracekit.graph.build import build_graph
from tracekit.graph.graph import Graph

__all__ = ["Graph", "build_graph"]
