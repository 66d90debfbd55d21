"""Long delays after which nothing had just ended: the activity still waited for another stream."""

import numpy as np

from tracekit.arrays import Ints
from tracekit.graph.last_ended import find_last_ended
from tracekit.graph.nodes import NONE, Nodes
from tracekit.rules import Rule

RULE = Rule(
    "long-delays",
    "An activity that is long delayed waited for the last activity to end among those launched earlier.",
    "HTA's trace_diff on a V100: 4.6 % short without the rule, 0.4 % with it. It orders activities right, but may "
    "name the wrong one.",
)
# A long delay has a cause even if nothing ended right before its end. At most this fraction of it may have another
# cause, mostly a kernel that left no room.
MIN_LONG_DELAY_NS = 100_000
MAX_UNEXPLAINED_FRACTION = 0.1
MAX_CANDIDATES = 32


def find_long_delay_causes(nodes: Nodes, device: Ints, waiting: Ints, ready: Ints) -> Ints:
    """Return the likely cause of long delays: the last activity to end on another stream, among those launched earlier.

    It may have ended a while before: activities that followed it on its stream can have delayed the waiter further.
    """
    found = np.full(waiting.size, NONE)
    start = nodes.start_ns[waiting]
    delay = start - ready[waiting]
    long = delay > MIN_LONG_DELAY_NS
    since = np.ceil(start[long] - MAX_UNEXPLAINED_FRACTION * delay[long]).astype(np.int64)
    found[long] = find_last_ended(
        nodes, device, waiting[long], since, start[long], MAX_CANDIDATES, nodes.launch_start_ns
    )
    return found
