"""Batches that are there when the program asks for them."""

from tracekit.errors import WhatIfError
from tracekit.graph import spans
from tracekit.graph.spans import LOADS_DATA
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import share_within, times_factor
from tracekit.replay.whatif.edited import Edited, with_graph


def prefetch(run: Run) -> Edited:
    """Getting a batch from the data loader takes no time.

    Raises:
        WhatIfError: The trace has no data loader on a thread that launches something.
    """
    loads = spans.named(run.ranks, run.graph.nodes, run.kernels, LOADS_DATA)
    if not loads.count:
        raise WhatIfError("the trace has no data loader.", "PyTorch marks its own as enumerate(DataLoader)#...")
    share = share_within(run.graph, loads)
    return Edited(
        with_graph(run, times_factor(run.graph, 1 - share)), loads.count, f"{loads.count:,} batches take no time to get"
    )
