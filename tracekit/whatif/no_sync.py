"""Edit: remove synchronizations of the host with the GPU."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import remove_edges
from tracekit.graph.recorded import host_spans
from tracekit.messages import what_ifs as messages
from tracekit.run import MeasuredRun
from tracekit.whatif.edited import EditedRun, replace_graph
from tracekit.whatif.host_work import find_edges_to_calls
from tracekit.whatif.launches import find_blocking_calls
from tracekit.whatif.select import check_pattern


def no_sync(run: MeasuredRun, call: str = "") -> EditedRun:
    """Let calls return without waiting for the GPU.

    Args:
        run: The run.
        call: A regular expression found in the name of the call, or of an op or annotation around it, such as
            ``aten::item``; all calls that wait by default.

    Raises:
        WhatIfError: No such call waits.
    """
    check_pattern(call)
    nodes = run.graph.nodes
    waits = np.flatnonzero(find_blocking_calls(run))
    around = host_spans.find_spans_by_name(run.ranks, nodes, run.kernels, call)
    meant = nodes.names.gather(waits).str.contains(call).to_numpy() | around.contain(
        nodes.lane[waits], nodes.start_ns[waits]
    )
    calls = np.zeros(nodes.n_host, dtype=np.bool_)
    calls[waits[meant]] = True
    if not calls.any():
        raise WhatIfError(messages.SYNCS_NOT_FOUND_WITHIN(call=call) if call else messages.SYNCS_NOT_FOUND())
    count = int(calls.sum())
    graph = remove_edges(run.graph, find_edges_to_calls(run.graph, EdgeKind.SYNC, calls))
    return EditedRun(replace_graph(run, graph), count, messages.SYNCS_REMOVED(calls=count))
