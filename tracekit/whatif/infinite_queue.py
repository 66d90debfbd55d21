"""Edit: a launch queue that is never full."""

from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import remove_edges
from tracekit.messages import what_ifs as messages
from tracekit.run import MeasuredRun
from tracekit.whatif.edited import EditedRun, replace_graph


def infinite_queue(run: MeasuredRun) -> EditedRun:
    """Remove all waits of launches for a free place in their stream's launch queue.

    Raises:
        WhatIfError: No stream has enough launches to fill its queue.
    """
    queue = run.graph.kind == EdgeKind.QUEUE
    if not queue.any():
        raise WhatIfError(messages.QUEUE_NEVER_FULL())
    count = int(queue.sum())
    return EditedRun(
        replace_graph(run, remove_edges(run.graph, queue)),
        count,
        messages.QUEUE_UNLIMITED(launches=count),
    )
