"""Slack: how much longer each node could take before the chosen steps end later."""

import numba
import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.replay.engine import Timeline, replay
from tracekit.replay.measure import per_step
from tracekit.replay.run import Run
from tracekit.replay.trail import vertex_times

UNBOUNDED = np.iinfo(np.int64).max
"""Slack of what the chosen steps don't wait for at all."""


def slack_ns(run: Run) -> Ints:
    """Slack of every node in the wait-free replay, for the chosen steps to end no later.

    Returns:
        By node, in nanoseconds; 0 on the critical path.
    """
    graph = run.graph
    timeline = replay(graph)
    latest = _latest(graph.first, graph.src, timeline.lag_ns, _deadlines(run, timeline))
    end = graph.vertex[1::2]
    free = latest[end] == UNBOUNDED
    slack: Ints = np.where(free, UNBOUNDED, latest[end] - vertex_times(graph, timeline)[end])
    return slack


def by_op(run: Run, slack: Ints) -> pl.DataFrame:
    """Ops by the least slack of their kernels: ``op``, ``time_us`` in a mean step of a mean rank, ``slack_us``.

    Args:
        run: The run.
        slack: As :func:`slack_ns` gives it.
    """
    of_kernels = pl.Series(slack[run.graph.nodes.cpu :])
    table = run.kernels.select("dur_ns", op=pl.coalesce("op", "name"), slack=of_kernels)
    in_steps = table.filter(run.in_steps, pl.col("slack") != UNBOUNDED)
    grouped = in_steps.group_by("op").agg(
        time_us=pl.col("dur_ns").sum() / 1e3 / max(run.chosen.height, 1), slack_us=pl.col("slack").min() / 1e3
    )
    return grouped.sort("slack_us", "time_us", "op", descending=[False, True, False])


def _deadlines(run: Run, timeline: Timeline) -> Ints:
    """By vertex, the end of the last chosen step where a chosen step waits for it."""
    keys = [key for key in ("rank", "step") if key in run.steps.columns]
    table = per_step(timeline, run.kernels, run.steps).with_row_index("index")
    table = table.join(run.chosen.select(keys), on=keys, how="semi", maintain_order="left")
    end = table.select(pl.col("end_ns").max()).item()
    vertex = run.graph.vertex
    deadline = np.full(vertex.size, UNBOUNDED)
    own = run.in_steps.to_numpy() & (timeline.activity_end_ns <= end)
    deadline[vertex[2 * (timeline.cpu + np.flatnonzero(own)) + 1]] = end
    if timeline.marks:
        marks = timeline.end_marks(table["index"].cast(pl.Int64).to_numpy())
        deadline[vertex[2 * marks]] = end
    return deadline


@numba.njit(cache=True)
def _latest(first: Ints, src: Ints, lag_ns: Ints, deadline_ns: Ints) -> Ints:  # pragma: no cover - compiled
    """The latest time of every vertex with which all deadlines behind it are kept."""
    latest = deadline_ns.copy()
    for vertex in range(latest.size - 1, -1, -1):
        if latest[vertex] == np.iinfo(np.int64).max:
            continue
        for edge in range(first[vertex], first[vertex + 1]):
            latest[src[edge]] = min(latest[src[edge]], latest[vertex] - lag_ns[edge])
    return latest
