"""Slack: how much longer each node could take before the chosen steps end later."""

import numba
import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.replay.engine import Timeline, lags, replay
from tracekit.replay.measure import per_step
from tracekit.replay.trail import vertex_times

UNBOUNDED = np.iinfo(np.int64).max
"""Slack of what the chosen steps don't wait for at all."""


def slack_ns(graph: Graph, kernels: pl.DataFrame, steps: pl.DataFrame, chosen: pl.DataFrame) -> Ints:
    """Slack of every node in the wait-free replay; 0 on the critical path.

    Args:
        graph: The dependency graph.
        kernels: The kernel table.
        steps: All steps of the trace.
        chosen: Those that are to end no later.

    Returns:
        By node, in nanoseconds.
    """
    timeline, lag = replay(graph), lags(graph)
    latest = _latest(graph.first, graph.src, lag, _deadlines(graph, timeline, kernels, steps, chosen))
    end = graph.vertex[1::2]
    free = latest[end] == UNBOUNDED
    slack: Ints = np.where(free, UNBOUNDED, latest[end] - vertex_times(graph, timeline)[end])
    return slack


def by_op(slack: Ints, kernels: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """Ops by the least slack of their kernels: ``op``, ``time_us`` in a mean step of a mean rank, ``slack_us``.

    Args:
        slack: As :func:`slack_ns` gives it.
        kernels: The kernel table.
        chosen: The chosen steps.
    """
    of_kernels = pl.Series(slack[slack.size - kernels.height :])
    table = kernels.select("step", "dur_ns", op=pl.coalesce("op", "name"), slack=of_kernels)
    in_steps = table.filter(pl.col("step").is_in(chosen["step"].implode()), pl.col("slack") != UNBOUNDED)
    grouped = in_steps.group_by("op").agg(
        time_us=pl.col("dur_ns").sum() / 1e3 / max(chosen.height, 1), slack_us=pl.col("slack").min() / 1e3
    )
    return grouped.sort("slack_us", "time_us", "op", descending=[False, True, False])


def _deadlines(
    graph: Graph, timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame, chosen: pl.DataFrame
) -> Ints:
    """By vertex, the end of the last chosen step where a chosen step waits for it."""
    keys = [key for key in ("rank", "step") if key in steps.columns]
    table = per_step(timeline, kernels, steps).with_row_index("index")
    table = table.join(chosen.select(keys), on=keys, how="semi", maintain_order="left")
    end = table.select(pl.col("end_ns").max()).item()
    deadline = np.full(graph.vertex.size, UNBOUNDED)
    own = kernels["step"].is_in(chosen["step"].implode()).fill_null(False).to_numpy() & (
        timeline.activity_end_ns <= end
    )
    deadline[graph.vertex[2 * (timeline.cpu + np.flatnonzero(own)) + 1]] = end
    if timeline.marks:
        marks = timeline.end_marks(table["index"].cast(pl.Int64).to_numpy())
        deadline[graph.vertex[2 * marks]] = end
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
