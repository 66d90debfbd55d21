"""A faster or slower host."""

import numpy as np

from tracekit.errors import WhatIfError
from tracekit.graph import spans
from tracekit.graph.change import destinations
from tracekit.graph.edges import EdgeKind
from tracekit.replay.run import Run
from tracekit.replay.whatif.cpu import share_within, times_factor
from tracekit.replay.whatif.edited import Edited, with_graph

LEAST = 1e-6


def host_speed(run: Run, *, python: float = 1.0, op: float = 1.0, launch: float = 1.0) -> Edited:
    """The CPU's own work is done faster.

    Args:
        run: The run.
        python: Speed between ops, and of handing over to another thread, as a multiple of the measured one.
        op: Speed within ops, outside of calls to CUDA or HIP.
        launch: Speed of those calls.

    Raises:
        WhatIfError: A speed is below ``LEAST``.
    """
    check_speeds(python, op, launch)
    graph = run.graph
    within = share_within(graph, spans.of_rows([rank.ops for rank in run.ranks], run.ranks, graph.nodes, run.kernels))
    on_cpu = destinations(graph) < 2 * graph.nodes.cpu
    factor = np.ones(graph.kind.size)
    program = graph.kind == EdgeKind.PROGRAM
    factor[program] = (within / op + (1 - within) / python)[program]
    factor[graph.kind == EdgeKind.HANDOVER] = 1 / python
    factor[on_cpu & (graph.kind == EdgeKind.RUN)] = 1 / launch
    speeds = {"Python": python, "ops": op, "launches": launch}
    changed = [f"{name} {speed:g}x" for name, speed in speeds.items() if speed != 1.0] or ["unchanged"]
    told = f"the CPU: {', '.join(changed)}" if len(set(speeds.values())) > 1 else f"the CPU is {python:g} times as fast"
    return Edited(with_graph(run, times_factor(graph, factor)), int((factor != 1).sum()), told)


def check_speeds(*speeds: float) -> None:
    """Refuse speeds at which nothing would ever end.

    Raises:
        WhatIfError: A speed is below ``LEAST``, or no number.
    """
    if not all(speed >= LEAST for speed in speeds):
        raise WhatIfError("the CPU's speed has to be positive.", f"Give {LEAST:g} or more.")
