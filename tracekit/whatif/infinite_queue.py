"""Edit: a launch queue that is never full."""

from tracekit.errors import WhatIfError
from tracekit.format import format_quantity
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import remove_edges
from tracekit.run import MeasuredRun
from tracekit.whatif.edited import EditedRun, replace_graph


def infinite_queue(run: MeasuredRun) -> EditedRun:
    """Remove all waits of launches for a free place in their stream's launch queue.

    Raises:
        WhatIfError: No stream has enough launches to fill its queue.
    """
    queue = run.graph.kind == EdgeKind.QUEUE
    if not queue.any():
        raise WhatIfError("no stream is given enough launches to fill its queue.")
    count = int(queue.sum())
    return EditedRun(
        replace_graph(run, remove_edges(run.graph, queue)),
        count,
        f"the launch queue has room for {format_quantity(count, 'launch')} that could have to wait",
    )
