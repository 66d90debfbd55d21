"""Calls that don't wait for the GPU any more."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph import spans
from tracekit.graph.change import without
from tracekit.graph.edges import EdgeKind
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import of_calls
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.replay.whatif.launches import blocking
from tracekit.replay.whatif.select import check_pattern
from tracekit.units import many


def no_sync(run: Run, call: str = "") -> Edited:
    """Calls go on without waiting for the GPU.

    Args:
        run: The run.
        call: A regular expression found in the name of the call, or of an op or annotation that it lies in, such as
            ``aten::item``; all calls that wait by default.

    Raises:
        WhatIfError: No such call waits.
    """
    check_pattern(call)
    nodes = run.graph.nodes
    waits = np.flatnonzero(blocking(run))
    around = spans.named(run.ranks, nodes, run.kernels, call)
    meant = nodes.names.gather(waits).str.contains(call).to_numpy() | around.contain(
        nodes.lane[waits], nodes.start_ns[waits]
    )
    calls = np.zeros(nodes.cpu, dtype=np.bool_)
    calls[waits[meant]] = True
    if not calls.any():
        raise WhatIfError(f"no call within {call!r} waits for the GPU." if call else "no call waits for the GPU.")
    count = int(calls.sum())
    graph = without(run.graph, of_calls(run.graph, EdgeKind.SYNC, calls))
    return Edited(with_graph(run, graph), count, f"no wait for the GPU in {many(count, 'call')}")
