"""Edit: remove synchronizations of the host with the GPU."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import remove_edges
from tracekit.graph.recorded import host_spans
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph
from tracekit.whatif.host_work import find_edges_to_calls
from tracekit.whatif.launches import find_blocking_calls
from tracekit.whatif.select import check_pattern


def no_sync(program: Program, call: str = "") -> EditedProgram:
    """Let calls return without waiting for the GPU; a wait for work that isn't in the trace stays.

    Args:
        program: The program.
        call: A regular expression found in the name of the call, or of an op or annotation around it, such as
            ``aten::item``; all calls that wait by default.

    Raises:
        WhatIfError: No such call waits.
    """
    check_pattern(call)
    nodes = program.graph.nodes
    waits = np.flatnonzero(find_blocking_calls(program))
    if call:
        around = host_spans.find_spans_by_name(program.ranks, program.launch_threads, call)
        named = nodes.names.gather(waits).str.contains(call).to_numpy()
        waits = waits[named | around.contain(nodes.lane[waits], nodes.start_ns[waits])]
    calls = np.zeros(nodes.n_host, dtype=np.bool_)
    calls[waits] = True
    if not calls.any():
        raise WhatIfError(messages.SYNCS_NOT_FOUND_WITHIN(call=call) if call else messages.SYNCS_NOT_FOUND())
    count = int(calls.sum())
    graph = remove_edges(program.graph, find_edges_to_calls(program.graph, EdgeKind.SYNC, calls))
    return EditedProgram(replace_graph(program, graph), count, messages.SYNCS_REMOVED(calls=count))
