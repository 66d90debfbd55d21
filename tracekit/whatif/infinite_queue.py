"""Edit: a launch queue that is never full."""

from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import remove_edges
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph


def infinite_queue(program: Program) -> EditedProgram:
    """Remove all waits of launches for a free place in their stream's launch queue.

    Raises:
        WhatIfError: No stream has enough launches to fill its queue.
    """
    queue = program.graph.kind == EdgeKind.QUEUE
    if not queue.any():
        raise WhatIfError(messages.QUEUE_NEVER_FULL())
    count = int(queue.sum())
    return EditedProgram(
        replace_graph(program, remove_edges(program.graph, queue)),
        count,
        messages.QUEUE_UNLIMITED(launches=count),
    )
