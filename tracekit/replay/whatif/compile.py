"""Compiled code: the CPU does less between launches."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import of_calls, times_factor
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.replay.whatif.launches import calls_of
from tracekit.replay.whatif.select import Select
from tracekit.units import many

HOST = 0.1


def compiled(run: Run, select: Select, host: float = HOST) -> Edited:
    """The work of the CPU before each launch, since the thread's call before it, falls to a part of what it was.

    The launches stay, and the kernels: torch.compile also fuses kernels (:func:`fuse`).

    Args:
        run: The run.
        select: The kernels whose launches are compiled code.
        host: The part that is left.

    Raises:
        WhatIfError: No kernel is selected that the trace has a launch of, or the part is negative or not finite.
    """
    if not 0 <= host < np.inf:
        raise WhatIfError(f"the CPU's work can't fall to {host:g} of what it was.", "Give a part of 0 or more.")
    calls = calls_of(run, select.rows(run))
    if not calls.any():
        raise WhatIfError(f"the trace has no launch of {select}.")
    to_calls = of_calls(run.graph, EdgeKind.PROGRAM, calls)
    count = int(calls.sum())
    graph = times_factor(run.graph, np.where(to_calls, host, 1.0))
    told = f"the CPU's work before {many(count, 'launch')} falls to {host:g} of it"
    return Edited(with_graph(run, graph), count, told)
