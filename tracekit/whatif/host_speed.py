"""Edit: a faster or slower host."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph.edges import EdgeKind
from tracekit.graph.edit import compute_edge_destinations
from tracekit.graph.recorded import host_spans
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, replace_graph
from tracekit.whatif.host_work import compute_fraction_within, scale_lags

MIN_SPEED = 1e-6


def host_speed(program: Program, *, python: float = 1.0, op: float = 1.0, launch: float = 1.0) -> EditedProgram:
    """Scale the speed of the host's own work.

    Args:
        program: The program.
        python: Speed between ops, and of handing over to another thread, as a multiple of the measured one.
        op: Speed within ops, outside of calls to CUDA or HIP.
        launch: Speed of calls to CUDA or HIP.

    Raises:
        WhatIfError: A speed is below ``MIN_SPEED``.
    """
    check_speeds(python, op, launch)
    graph = program.graph
    within = compute_fraction_within(
        graph, host_spans.build_spans([rank.ops for rank in program.ranks], program.launch_threads)
    )
    on_cpu = compute_edge_destinations(graph) < 2 * graph.nodes.n_host
    factor = np.ones(graph.kind.size)
    between_calls = graph.kind == EdgeKind.PROGRAM
    factor[between_calls] = (within / op + (1 - within) / python)[between_calls]
    factor[graph.kind == EdgeKind.HANDOVER] = 1 / python
    factor[on_cpu & (graph.kind == EdgeKind.RUN)] = 1 / launch
    change = messages.HOST_SPEED_CHANGED(speed=python)
    if not python == op == launch:
        change = messages.HOST_SPEEDS_CHANGED(python=python, op=op, launch=launch)
    return EditedProgram(replace_graph(program, scale_lags(graph, factor)), int((factor != 1).sum()), change)


def check_speeds(*speeds: float) -> None:
    """Refuse speeds at which a replay would never end.

    Raises:
        WhatIfError: A speed is below ``MIN_SPEED``, or not a number.
    """
    if not all(speed >= MIN_SPEED for speed in speeds):
        raise WhatIfError(messages.HOST_SPEED_TOO_LOW(least=MIN_SPEED))
