"""Edit: batches that are ready when the program asks for them."""

from tracekit.errors import WhatIfError
from tracekit.graph.recorded import host_spans
from tracekit.graph.recorded.host_spans import DATA_LOADER_RANGES
from tracekit.run import MeasuredRun
from tracekit.whatif.edited import EditedRun, replace_graph
from tracekit.whatif.host_work import compute_fraction_within, scale_lags


def prefetch(run: MeasuredRun) -> EditedRun:
    """Set the time to get a batch from the data loader to zero.

    Raises:
        WhatIfError: The trace has no data loader on a thread that launches something.
    """
    loads = host_spans.find_spans_by_name(run.ranks, run.graph.nodes, run.kernels, DATA_LOADER_RANGES)
    if not loads.count:
        raise WhatIfError("the trace has no data loader.", "PyTorch marks its own as enumerate(DataLoader)#...")
    share = compute_fraction_within(run.graph, loads)
    return EditedRun(
        replace_graph(run, scale_lags(run.graph, 1 - share)),
        loads.count,
        f"{loads.count:,} batches take no time to get",
    )
