"""Slack: how much longer each node could take before the chosen steps end later."""

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import get_vertex_times
from tracekit.arrays import IN_ORDER, Ints, coalesce
from tracekit.compiled import compile_lazily
from tracekit.program import Program
from tracekit.replay.engine import Timeline, replay

UNBOUNDED_SLACK_NS = np.iinfo(np.int64).max
"""Slack of nodes that the chosen steps don't wait for."""


def compute_slack_ns(program: Program) -> Ints:
    """Compute the slack of every node in the replay without measured waits, such that the chosen steps end no later.

    Returns:
        By node, in nanoseconds; 0 on the critical path.
    """
    graph = program.graph
    timeline = replay(graph)
    latest = _compute_latest_times(graph.first, graph.src, timeline.lag_ns, _find_deadlines(program, timeline))
    end = graph.vertex[1::2]
    free = latest[end] == UNBOUNDED_SLACK_NS
    slack: Ints = np.where(free, UNBOUNDED_SLACK_NS, latest[end] - get_vertex_times(graph, timeline)[end])
    return slack


def summarize_by_op(program: Program, slack: Ints) -> pl.DataFrame:
    """Tabulate the least slack of each op's kernels: ``op``, ``time_us`` in a mean step of a mean rank, ``slack_us``.

    Args:
        program: The program.
        slack: Of :func:`compute_slack_ns`.
    """
    columns = {
        "dur_ns": program.kernels["dur_ns"],
        "op": coalesce(program.kernels["op"], program.kernels["name"]),
        "slack": slack[program.graph.nodes.n_host :],
    }
    table = pl.DataFrame(columns).lazy()
    in_steps = table.filter(program.is_in_chosen_steps, pl.col("slack") != UNBOUNDED_SLACK_NS)
    grouped = in_steps.group_by("op").agg(
        time_us=pl.col("dur_ns").sum() / 1e3 / max(program.chosen_steps.height, 1), slack_us=pl.col("slack").min() / 1e3
    )
    return grouped.sort("slack_us", "time_us", "op", descending=[False, True, False]).collect(engine=IN_ORDER)


def _find_deadlines(program: Program, timeline: Timeline) -> Ints:
    """Return the deadline of every vertex: the end of the last chosen step if the vertex ends a chosen step's work."""
    spans = program.step_timer.compute_step_spans(timeline)
    chosen = np.flatnonzero(program.step_timer.is_chosen)
    end = spans.end_ns[chosen[spans.has_times[chosen]]].max()
    vertex = program.graph.vertex
    deadline = np.full(vertex.size, UNBOUNDED_SLACK_NS)
    own = program.is_in_chosen_steps.to_numpy() & (timeline.activity_end_ns <= end)
    deadline[vertex[2 * (timeline.host_node_count + np.flatnonzero(own)) + 1]] = end
    if timeline.mark_count:
        deadline[vertex[2 * timeline.find_end_marks(chosen)]] = end
    return deadline


def _compute_latest_times(first: Ints, src: Ints, lag_ns: Ints, deadline_ns: Ints) -> Ints:
    """Compute the latest time of every vertex that still meets all deadlines after it."""
    latest = deadline_ns.copy()
    _advance_by_edges(latest.size, first, src, lag_ns, UNBOUNDED_SLACK_NS, latest)
    return latest


@compile_lazily
def _advance_by_edges(
    vertices: int, first: Ints, src: Ints, lag_ns: Ints, unbounded: int, latest: Ints
) -> int:  # pragma: no cover - compiled
    for vertex in range(vertices - 1, -1, -1):
        if latest[vertex] != unbounded:
            for edge in range(first[vertex], first[vertex + 1]):
                latest[src[edge]] = min(latest[src[edge]], latest[vertex] - lag_ns[edge])
    return 0
