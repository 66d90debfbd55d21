"""Edit: remove the recorded overhead of the profiler."""

from tracekit.analysis.profiler_overhead import find_stalls_of_steps
from tracekit.errors import WhatIfError
from tracekit.graph.recorded import host_spans
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph
from tracekit.whatif.host_work import compute_fraction_within, scale_lags


def no_profiler(program: Program) -> EditedProgram:
    """Set the profiler's own work that delayed a thread in the chosen steps to zero time.

    Raises:
        WhatIfError: The trace records no such work in them.
    """
    rows = find_stalls_of_steps(program)
    held = host_spans.build_spans(rows, program.launch_threads)
    if not held.count:
        raise WhatIfError(messages.PROFILER_WORK_NOT_RECORDED())
    us = sum(float(table["dur_ns"].sum()) for table in rows) / 1e3
    share = compute_fraction_within(program.graph, held, calls=True)
    left = replace_graph(program, scale_lags(program.graph, 1 - share))
    return EditedProgram(left, held.count, messages.PROFILER_WORK_REMOVED(removed_us=us))
