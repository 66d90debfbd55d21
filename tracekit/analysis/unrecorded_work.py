"""How much of the measured steps the GPU spent on work that the trace doesn't hold."""

from dataclasses import dataclass

import numpy as np

from tracekit.graph.edit import compute_edge_destinations
from tracekit.program import Program


@dataclass(frozen=True, slots=True)
class UnrecordedTime:
    """Waits for work that isn't recorded, in the mean chosen step of the mean rank.

    Attributes:
        waits: Their number.
        time_us: How long they went on after all recorded work had ended.
    """

    waits: float
    time_us: float


def measure_unrecorded_time(program: Program) -> UnrecordedTime | None:
    """Measure the waits of the chosen steps for work that isn't recorded; ``None`` without any."""
    graph = program.graph
    if not graph.unrecorded_edges.size:
        return None
    # The work may be behind several streams, and counts once.
    ends, first = np.unique(compute_edge_destinations(graph)[graph.unrecorded_edges], return_index=True)
    lag_ns = graph.lag_ns[graph.unrecorded_edges[first]]
    ended_ns = graph.nodes.get_vertex_times(ends)
    spans = program.step_timer.compute_step_spans(program.measured_timeline)
    chosen = spans.has_duration & program.step_timer.is_chosen
    begin, end = spans.previous_end_ns[chosen], spans.end_ns[chosen]
    within = ((ended_ns[:, None] > begin) & (ended_ns[:, None] <= end)).any(axis=1)
    if not within.any():
        return None
    steps = program.chosen_steps["step"].n_unique() * len(program.ranks)
    return UnrecordedTime(float(within.sum()) / steps, float(lag_ns[within].sum()) / 1e3 / steps)
