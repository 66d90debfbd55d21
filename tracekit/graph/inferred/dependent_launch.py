"""Kernels that start before the previous kernel of their stream ends: programmatic dependent launch.

Such a kernel waits inside for the previous kernel's end (CUDA C++ Programming Guide). The waiting is not work: the
kernel's work begins with that end, and there is no gap. The trace doesn't record which kernels were launched so.
"""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.nodes import Nodes
from tracekit.rules import Rule

RULE = Rule(
    "dependent-launch",
    "A kernel that starts before the previous one ends, and outlasts it, waited for that end.",
    "SGLang on a GB300: 2 % too long without the rule.",
)
# Kernels that end closer together ran side by side (branches of a graph): a kernel that waits for another outlasts it
# by more.
MIN_OUTLAST_NS = 500


def measure_early_ns(nodes: Nodes, before: Ints, after: Ints) -> Ints:
    """Measure how long each activity ran before the end of the previous one, if it outlasted that one; else 0."""
    early = nodes.end_ns[before] - nodes.start_ns[after]
    waited = (early > 0) & (nodes.end_ns[after] >= nodes.end_ns[before] + MIN_OUTLAST_NS)
    return np.where(waited, early, 0)
