"""Edit: compiled code, with less host work between launches."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph
from tracekit.whatif.host_work import find_edges_to_calls, scale_lags
from tracekit.whatif.launches import find_launch_calls
from tracekit.whatif.select import KernelSelection

REMAINING_HOST_FRACTION = 0.1


def compile_host_work(
    program: Program, select: KernelSelection, host: float = REMAINING_HOST_FRACTION
) -> EditedProgram:
    """Scale the host work before each launch, back to the thread's previous call.

    Launches and kernels stay. ``torch.compile`` also fuses kernels (:func:`fuse`).

    Args:
        program: The program.
        select: The kernels whose launches are compiled code.
        host: Fraction of the host work that remains.

    Raises:
        WhatIfError: The trace has no launch of a selected kernel, or the fraction is negative or not finite.
    """
    if not 0 <= host < np.inf:
        raise WhatIfError(messages.HOST_FRACTION_INVALID(fraction=host))
    calls = find_launch_calls(program, select.find_rows(program))
    if not calls.any():
        raise WhatIfError(messages.LAUNCHES_NOT_FOUND(selection=str(select)))
    to_calls = find_edges_to_calls(program.graph, EdgeKind.PROGRAM, calls)
    count = int(calls.sum())
    graph = scale_lags(program.graph, np.where(to_calls, host, 1.0))
    return EditedProgram(
        replace_graph(program, graph), count, messages.HOST_WORK_COMPILED(launches=count, fraction=host)
    )
