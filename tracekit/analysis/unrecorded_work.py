"""How much of the measured steps the GPU spent on work that the trace doesn't hold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.graph.edit import compute_edge_destinations
from tracekit.program import Program


@dataclass(frozen=True, slots=True)
class UnrecordedTime:
    """Waits for work that isn't recorded, in the mean chosen step of the mean rank.

    Attributes:
        count: Number of all waits in the chosen steps.
        time_ns: How long they went on after all recorded work had ended.
        steps: Number of chosen steps, of all ranks.
    """

    count: int
    time_ns: int
    steps: int

    @property
    def waits(self) -> float:
        """Number of waits in a step."""
        return self.count / self.steps

    @property
    def time_us(self) -> float:
        """How long they go on in a step."""
        return self.time_ns / 1e3 / self.steps


def join_unrecorded_time(ranks: Sequence[UnrecordedTime | None], steps: int) -> UnrecordedTime | None:
    """Join what some ranks waited; None without any.

    Args:
        ranks: Of each rank.
        steps: Number of chosen steps, of all ranks.
    """
    found = [one for one in ranks if one is not None]
    if not found:
        return None
    return UnrecordedTime(sum(one.count for one in found), sum(one.time_ns for one in found), steps)


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
    return UnrecordedTime(int(within.sum()), int(lag_ns[within].sum()), steps)
