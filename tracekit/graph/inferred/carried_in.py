"""Activities that waited for work from before the trace: the first of their streams. They are released as measured."""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.edges import Edges
from tracekit.graph.nodes import NONE, Nodes
from tracekit.rules import Rule

RULE = Rule(
    "carried-in",
    "The first activity of a stream that starts late without a cause waited for work from before the trace.",
    "One or two activities in each of six traces of vLLM, SGLang and HTA that begin amid a step; their steps change by "
    "less than 0.01 % without the rule.",
)
# Longer delays of a stream's first activity are due to work from before the trace, not to launch latency.
MIN_CARRIED_IN_NS = 50_000


def find_carried_in(nodes: Nodes, unexplained: Ints, ready: Ints, stream: Edges) -> Ints:
    """Return the activities with an unexplained delay that are the first of their stream.

    In a trace without earlier work, an activity that starts while its launch call still runs is not one of them: the
    call was staging memory.
    """
    has_predecessor = np.zeros(nodes.start_ns.size, dtype=np.bool_)
    has_predecessor[stream.dst // 2] = True
    late = nodes.start_ns[unexplained] - ready[unexplained] > MIN_CARRIED_IN_NS
    launcher = nodes.launcher[unexplained - nodes.n_host]
    staged = (nodes.launcher != NONE).all() & (nodes.start_ns[unexplained] < nodes.end_ns[launcher])
    carried_in: Ints = unexplained[late & ~has_predecessor[unexplained] & ~staged]
    return carried_in
