"""A launch queue that is never full."""

from tracekit.errors import WhatIfError
from tracekit.graph.change import without
from tracekit.graph.edges import EdgeKind
from tracekit.replay.run import Run
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.units import many


def infinite_queue(run: Run) -> Edited:
    """No launch waits for a place in its stream's queue.

    Raises:
        WhatIfError: No stream is ever given enough launches for that.
    """
    queue = run.graph.kind == EdgeKind.QUEUE
    if not queue.any():
        raise WhatIfError("no stream is given enough launches to fill its queue.")
    count = int(queue.sum())
    return Edited(
        with_graph(run, without(run.graph, queue)),
        count,
        f"the launch queue has room for {many(count, 'launch')} that could have to wait",
    )
