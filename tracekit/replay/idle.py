"""Why the GPU was idle: every nanosecond in which nothing ran, by its cause.

The activity that ends an idle stretch came no earlier because of what the edges that bind say, all the way back to
the beginning of the stretch (:mod:`tracekit.replay.trail`). A synchronisation is to blame for as much of the work
of the CPU after it as it kept the CPU from doing earlier; the rest of that work is the CPU's own slowness.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.replay.engine import Timeline, lags
from tracekit.replay.measure import per_step
from tracekit.replay.trail import NO_EDGE, Stretches, Trail, far_apart, follow, kinds, nodes_of, vertex_times

Ints = npt.NDArray[np.int64]

NO_KERNEL = -1


END_OF_STEP = "end of the step"
"""Stands for an op where no kernel ended an idle stretch."""


class Cause(StrEnum):
    """Why the GPU had nothing to run."""

    LAUNCH_BOUND = "launch_bound"
    SYNC_BOUND = "sync_bound"
    DEPENDENCY = "dependency"
    LAUNCH_LATENCY = "launch_latency"
    KERNEL_GAP = "kernel_gap"
    IN_GRAPH = "in_graph"
    UNEXPLAINED = "unexplained"


MEANING = {
    Cause.LAUNCH_BOUND: "the CPU was still working towards the next launch",
    Cause.SYNC_BOUND: "the CPU had waited for the GPU before it went on to the next launch",
    Cause.DEPENDENCY: "the next kernel waited for an event of another stream",
    Cause.LAUNCH_LATENCY: "from the launch call to the start of its kernel",
    Cause.KERNEL_GAP: "between two kernels that were both in the queue",
    Cause.IN_GRAPH: "within a CUDA graph: work or waits that come back in every replay but are not recorded",
    Cause.UNEXPLAINED: "nothing in the trace says what the next kernel waited for",
}

_CAUSE = {
    EdgeKind.RUN: Cause.LAUNCH_BOUND,
    EdgeKind.PROGRAM: Cause.LAUNCH_BOUND,
    EdgeKind.HANDOVER: Cause.LAUNCH_BOUND,
    EdgeKind.LAUNCH: Cause.LAUNCH_LATENCY,
    EdgeKind.STREAM: Cause.KERNEL_GAP,
    EdgeKind.EVENT: Cause.DEPENDENCY,
    EdgeKind.SYNC: Cause.SYNC_BOUND,
    EdgeKind.QUEUE: Cause.SYNC_BOUND,
    EdgeKind.RENDEZVOUS: Cause.DEPENDENCY,
}


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time of the GPU, or of each rank's, in the chosen steps; the pieces add up to it exactly.

    Attributes:
        pieces: ``step``, ``cause``, ``kernel`` (row of the kernel table that the idle stretch ended with; null: the
            step ended instead), ``time_ns``.
        steps: ``step``, ``time_ns``, ``busy_ns`` (anything ran, whichever step launched it), ``idle_ns``.
    """

    pieces: pl.DataFrame
    steps: pl.DataFrame

    def by_cause(self) -> pl.DataFrame:
        """Per cause, longest first: ``cause``, ``time_us`` in a mean step, ``share`` of the idle time."""
        return self._shares(self.pieces, "cause")

    def by_op(self, kernels: pl.DataFrame, *causes: Cause) -> pl.DataFrame:
        """Per op whose launch came late, longest first: ``op``, ``time_us`` in a mean step, ``share``.

        Args:
            kernels: The kernel table.
            causes: Which causes to count; launch-bound and sync-bound by default.
        """
        wanted = causes or (Cause.LAUNCH_BOUND, Cause.SYNC_BOUND)
        ops = kernels.select(kernel=pl.int_range(pl.len(), dtype=pl.Int64), op=pl.coalesce("op", "name"))
        pieces = self.pieces.filter(pl.col("cause").is_in(wanted)).join(ops, on="kernel", how="left")
        return self._shares(pieces.with_columns(pl.col("op").fill_null(END_OF_STEP)), "op")

    def _shares(self, pieces: pl.DataFrame, key: str) -> pl.DataFrame:
        idle_ns = max(self.steps["idle_ns"].sum(), 1)
        summed = pieces.group_by(key).agg(pl.col("time_ns").sum()).sort("time_ns", key, descending=[True, False])
        return summed.select(
            key, time_us=pl.col("time_ns") / 1e3 / max(self.steps.height, 1), share=pl.col("time_ns") / idle_ns
        )


def attribute(
    graph: Graph,
    timeline: Timeline,
    kernels: pl.DataFrame,
    steps: pl.DataFrame,
    chosen: pl.DataFrame,
    lag_ns: Ints | None = None,
) -> Idle:
    """Attribute the GPU's idle time in the chosen steps.

    Args:
        graph: The dependency graph.
        timeline: Measured or replayed.
        kernels: The kernel table.
        steps: All steps of the trace.
        chosen: Those to look at.
        lag_ns: The lags that the timeline was replayed with; those of the graph by default.
    """
    lag = lags(graph) if lag_ns is None else lag_ns
    windows = _windows(timeline, kernels, steps, chosen)
    stretches, window, kernel = _idle_stretches(graph, timeline, kernels, windows)
    trail = follow(graph, timeline, lag, stretches)
    pieces = _label(graph, timeline, lag, stretches, trail)
    labelled = pl.DataFrame(
        {
            "step": windows["step"].gather(pl.Series(window[trail.stretch])),
            "kernel": pl.Series(kernel[trail.stretch]).replace(NO_KERNEL, None),
        }
    ).with_columns(pieces)
    idle_ns = np.zeros(windows.height, dtype=np.int64)
    np.add.at(idle_ns, window, stretches.end_ns - stretches.begin_ns)
    summary = windows.select("step", time_ns=pl.col("end_ns") - pl.col("begin_ns"), idle_ns=pl.Series(idle_ns))
    return Idle(
        pieces=_long(labelled),
        steps=summary.select("step", "time_ns", busy_ns=pl.col("time_ns") - pl.col("idle_ns"), idle_ns="idle_ns"),
    )


def _windows(timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """The chosen steps as ``step``, ``index`` among all, ``begin_ns``, ``end_ns``: from the end of the one before.

    Of several ranks each one's own, with ``rank``.
    """
    table = per_step(timeline, kernels, steps).with_row_index("index").drop_nulls("time_ns")
    windows = table.join(chosen.select("step"), on="step", how="semi", maintain_order="left")
    rank = ["rank"] if "rank" in steps.columns else []
    return windows.select(*rank, "step", "index", begin_ns=pl.col("end_ns") - pl.col("time_ns"), end_ns="end_ns")


def _idle_stretches(
    graph: Graph, timeline: Timeline, kernels: pl.DataFrame, windows: pl.DataFrame
) -> tuple[Stretches, Ints, Ints]:
    """Stretches in which nothing ran, cut at the windows; the window of each, and the activity it ended with."""
    if "rank" not in windows.columns:
        found = [_of_one_gpu(timeline, windows, np.arange(windows.height), np.arange(kernels.height))]
    else:
        found = [
            _of_one_gpu(timeline, windows, *(np.flatnonzero(table["rank"] == rank) for table in (windows, kernels)))
            for rank in windows["rank"].unique().sort()
        ]
    begin, end, window, kernel = (np.concatenate(parts) for parts in zip(*found, strict=True))
    node = np.where(kernel == NO_KERNEL, _end_mark(timeline, windows)[window], timeline.cpu + kernel)
    return Stretches(begin, end, graph.vertex[2 * node]), window, kernel


def _of_one_gpu(
    timeline: Timeline, windows: pl.DataFrame, mine: Ints, activities: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Begin, end, window and next activity of the stretches in some windows in which none of some activities ran."""
    begin, end = (windows[name].to_numpy()[mine] for name in ("begin_ns", "end_ns"))
    gap_begin, gap_end, next_activity = _gaps(timeline, activities)
    first = np.searchsorted(gap_end, begin, side="right")
    last = np.searchsorted(gap_begin, end)
    count = np.maximum(last - first, 0)
    window = np.repeat(np.arange(begin.size), count)
    gap = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return (
        np.maximum(gap_begin[gap], begin[window]),
        np.minimum(gap_end[gap], end[window]),
        mine[window],
        next_activity[gap],
    )


def _end_mark(timeline: Timeline, windows: pl.DataFrame) -> Ints:
    """The mark at each step's end on the CPU; any node where there are none, as steps then end with the GPU's work."""
    if not timeline.marks:
        return np.zeros(windows.height, dtype=np.int64)
    return timeline.cpu - timeline.marks // 2 + windows["index"].cast(pl.Int64).to_numpy()


def _gaps(timeline: Timeline, activities: Ints) -> tuple[Ints, Ints, Ints]:
    """All stretches in which none of some activities ran: begin, end and next activity, in order of time."""
    start, end = timeline.activity_start_ns[activities], timeline.activity_end_ns[activities]
    order = np.lexsort((end, start))
    never, forever = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    covered = np.concatenate([[never], np.maximum.accumulate(end[order])])
    begins = np.concatenate([start[order], [forever]])
    following = np.concatenate([activities[order], [NO_KERNEL]])
    idle = begins > covered
    return covered[idle], begins[idle], following[idle]


def _label(graph: Graph, timeline: Timeline, lag_ns: Ints, stretches: Stretches, trail: Trail) -> pl.DataFrame:
    """Per piece its ``cause``, and how much of it, ``sync_ns``, a synchronisation is to blame for instead."""
    kind = kinds(graph, trail)
    node = nodes_of(graph, trail.vertex)
    names = {int(k): str(c) for k, c in _CAUSE.items()} | {NO_EDGE: str(Cause.UNEXPLAINED)}
    launched = graph.nodes.launcher[np.maximum(node - graph.nodes.cpu, 0)] != NONE
    far = pl.Series(far_apart(graph, trail))
    cause = (
        pl.Series("cause", kind)
        .replace_strict(names, return_dtype=pl.String)
        .set(far & pl.Series(launched), str(Cause.IN_GRAPH))
        .set(far & ~pl.Series(launched), str(Cause.UNEXPLAINED))
    )
    until = _blamed_until(graph, timeline, lag_ns, stretches, trail, node)[trail.stretch]
    by_cpu = (cause == Cause.LAUNCH_BOUND).to_numpy()
    sync_ns = np.where(by_cpu, np.clip(until - trail.begin_ns, 0, trail.dur_ns), 0)
    return pl.DataFrame({"cause": cause, "time_ns": trail.dur_ns - sync_ns, "sync_ns": sync_ns})


def _blamed_until(
    graph: Graph, timeline: Timeline, lag_ns: Ints, stretches: Stretches, trail: Trail, node: Ints
) -> Ints:
    """Per stretch: until when the CPU is late for having waited: from its synchronisation on, as long as it waited."""
    until = stretches.begin_ns.copy()
    waits = np.flatnonzero(np.isin(kinds(graph, trail), (EdgeKind.SYNC, EdgeKind.QUEUE)))
    node_end = trail.vertex[waits]
    times = vertex_times(graph, timeline)
    call = node[waits]
    own = np.zeros(graph.vertex.size, dtype=np.int64)
    dst = np.repeat(np.arange(graph.first.size - 1), np.diff(graph.first))
    run = graph.kind == EdgeKind.RUN
    own[dst[run]] = lag_ns[run]
    waited = np.maximum(times[node_end] - timeline.start_ns[call] - own[node_end], 0)
    np.maximum.at(until, trail.stretch[waits], trail.begin_ns[waits] + waited)
    return until


def _long(labelled: pl.DataFrame) -> pl.DataFrame:
    """One row per piece and cause, without empty ones."""
    columns = ("step", "cause", "kernel", "time_ns")
    blamed = labelled.with_columns(cause=pl.lit(str(Cause.SYNC_BOUND)), time_ns="sync_ns")
    return pl.concat([labelled.select(columns), blamed.select(columns)]).filter(pl.col("time_ns") > 0)
