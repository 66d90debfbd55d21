"""The step without what the profiler itself was recorded to cost the CPU."""

from tracekit.errors import WhatIfError
from tracekit.graph import spans
from tracekit.replay.profiler import held_up
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import share_within, times_factor
from tracekit.replay.whatif.edited import Edited, with_graph
from tracekit.units import duration


def no_profiler(run: Run) -> Edited:
    """The profiler's own work that held up a thread takes no time.

    Raises:
        WhatIfError: The trace records none.
    """
    rows = [held_up(rank) for rank in run.ranks]
    held = spans.of_rows(rows, run.ranks, run.graph.nodes, run.kernels)
    if not held.count:
        raise WhatIfError(
            "the trace records no work of the profiler that held up a thread.",
            "--unprofiled-step takes out what all of it cost.",
        )
    us = sum(float(table["dur_ns"].sum()) for table in rows) / 1e3
    share = share_within(run.graph, held, calls=True)
    left = with_graph(run, times_factor(run.graph, 1 - share))
    return Edited(left, held.count, f"{duration(us)} of the profiler's own work are gone")
