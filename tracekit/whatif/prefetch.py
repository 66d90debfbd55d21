"""Edit: batches that are ready when the program asks for them."""

from tracekit.errors import WhatIfError
from tracekit.graph.recorded import host_spans
from tracekit.graph.recorded.host_spans import DATA_LOADER_RANGES
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph
from tracekit.whatif.host_work import compute_fraction_within, scale_lags


def prefetch(program: Program) -> EditedProgram:
    """Set the time to get a batch from the data loader to zero.

    Raises:
        WhatIfError: The trace has no data loader on a thread that launches something.
    """
    loads = host_spans.find_spans_by_name(program.ranks, program.launch_threads, DATA_LOADER_RANGES)
    if not loads.count:
        raise WhatIfError(messages.DATA_LOADER_NOT_FOUND())
    share = compute_fraction_within(program.graph, loads)
    return EditedProgram(
        replace_graph(program, scale_lags(program.graph, 1 - share)),
        loads.count,
        messages.BATCHES_PREFETCHED(batches=loads.count),
    )
