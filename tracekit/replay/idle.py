"""Why the GPU was idle: every nanosecond in which it did no work, by its cause.

The activity that ends an idle stretch came no earlier because of what the edges that bind say, all the way back to
the beginning of the stretch (:mod:`tracekit.replay.trail`). A synchronisation is to blame for as much of the work
of the CPU after it as it kept the CPU from doing earlier; the rest of that work is the CPU's own slowness. Getting
memory and getting a batch are told apart first. A collective that waits for other ranks does no work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.replay.engine import Timeline, lags
from tracekit.replay.gaps import NO_KERNEL, Gaps, find, windows
from tracekit.replay.host_work import HostWork, host_work, within_ns
from tracekit.replay.measure import works_from_ns
from tracekit.replay.trail import NO_EDGE, Stretches, Trail, far_apart, follow, kinds, nodes_of, vertex_times
from tracekit.trace import RankTrace

Ints = npt.NDArray[np.int64]

END_OF_STEP = "end of the step"
"""Stands for an op where no kernel ended an idle stretch."""


class Cause(StrEnum):
    """Why the GPU had nothing to run."""

    LAUNCH_BOUND = "launch_bound"
    SYNC_BOUND = "sync_bound"
    ALLOCATOR = "allocator"
    DATA_LOADING = "data_loading"
    DEPENDENCY = "dependency"
    RENDEZVOUS = "rendezvous"
    LAUNCH_LATENCY = "launch_latency"
    KERNEL_GAP = "kernel_gap"
    IN_GRAPH = "in_graph"
    UNEXPLAINED = "unexplained"


MEANING = {
    Cause.LAUNCH_BOUND: "the CPU was still working towards the next launch",
    Cause.SYNC_BOUND: "the CPU had waited for the GPU before it went on to the next launch",
    Cause.ALLOCATOR: "the CPU got or freed memory (cudaMalloc, cudaFree, cudaHostAlloc, ...) before the next launch",
    Cause.DATA_LOADING: "the CPU waited for the next batch of the data loader",
    Cause.DEPENDENCY: "the next kernel waited for an event of another stream",
    Cause.RENDEZVOUS: "a collective waited for other ranks, and nothing else ran",
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
    EdgeKind.RENDEZVOUS: Cause.RENDEZVOUS,
    EdgeKind.OCCUPIED: Cause.DEPENDENCY,
}


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time of the GPU, or of each rank's, in the chosen steps; the pieces add up to it exactly.

    Attributes:
        pieces: ``step``, ``cause``, ``kernel`` (row of the kernel table that the idle stretch ended with; null: the
            step ended instead), ``time_ns``.
        steps: ``step``, ``time_ns``, ``busy_ns`` (anything worked, whichever step launched it), ``idle_ns``.
    """

    pieces: pl.DataFrame
    steps: pl.DataFrame

    def by_cause(self) -> pl.DataFrame:
        """Per cause, longest first: ``cause``, ``time_us`` in a mean step, ``share`` of the idle time."""
        return self._shares(self.pieces, "cause")

    def by_op(self, kernels: pl.DataFrame, *causes: Cause, column: str = "op") -> pl.DataFrame:
        """Per op whose launch came late, longest first: ``op``, ``time_us`` in a mean step, ``share``.

        Args:
            kernels: The kernel table.
            causes: Which causes to count; launch-bound and sync-bound by default.
            column: ``op``, or what else the kernel table tells of who launched: ``module``, ``python_line``.
        """
        wanted = causes or (Cause.LAUNCH_BOUND, Cause.SYNC_BOUND)
        launched = pl.coalesce("op", "name") if column == "op" else pl.col(column)
        rows = kernels.select(kernel=pl.int_range(pl.len(), dtype=pl.Int64), told=launched)
        pieces = self.pieces.filter(pl.col("cause").is_in(wanted)).join(rows, on="kernel", how="left")
        ended = pl.when(pl.col("kernel").is_null()).then(pl.lit(END_OF_STEP)).otherwise("told")
        return self._shares(pieces.with_columns(ended.alias(column)), column)

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
    ranks: Sequence[RankTrace] = (),
) -> Idle:
    """Attribute the GPU's idle time in the chosen steps.

    Args:
        graph: The dependency graph.
        timeline: Measured or replayed.
        kernels: The kernel table.
        steps: All steps of the trace.
        chosen: Those to look at.
        lag_ns: The lags that the timeline was replayed with; those of the graph by default.
        ranks: What each rank recorded; without it the work of the CPU isn't told apart.
    """
    lag = lags(graph) if lag_ns is None else lag_ns
    within = windows(timeline, kernels, steps, chosen)
    empty = find(timeline.activity_start_ns, timeline.activity_end_ns, kernels, within)
    without_work = find(works_from_ns(timeline, kernels), timeline.activity_end_ns, kernels, within)
    stretches = _stretches(graph, timeline, within, empty)
    trail = follow(graph, timeline, lag, stretches)
    work = host_work(ranks, graph, kernels)
    place = {"window": empty.window[trail.stretch], "kernel": empty.kernel[trail.stretch]}
    causes = _label(graph, timeline, lag, stretches, trail, work).with_columns(**place)
    pieces = pl.concat([_long(causes), _rendezvous(without_work, empty)])
    idle_ns = np.zeros(within.height, dtype=np.int64)
    np.add.at(idle_ns, without_work.window, without_work.dur_ns)
    summary = within.select("step", time_ns=pl.col("end_ns") - pl.col("begin_ns"), idle_ns=pl.Series(idle_ns))
    return Idle(
        pieces=pieces.select(
            step=within["step"].gather(pieces["window"]),
            cause="cause",
            kernel=pl.col("kernel").replace(NO_KERNEL, None),
            time_ns="time_ns",
        ),
        steps=summary.select("step", "time_ns", busy_ns=pl.col("time_ns") - pl.col("idle_ns"), idle_ns="idle_ns"),
    )


def _rendezvous(without_work: Gaps, empty: Gaps) -> pl.DataFrame:
    """What of each stretch without work isn't empty either: collectives ran then, and waited."""
    outer, inner = (
        pl.DataFrame({"window": gaps.window, "begin_ns": gaps.begin_ns, "kernel": gaps.kernel, "dur_ns": gaps.dur_ns})
        for gaps in (without_work, empty)
    )
    stretches = outer.with_row_index("stretch").sort("begin_ns")
    lies_in = inner.sort("begin_ns").join_asof(
        stretches.select("window", "begin_ns", "stretch"), on="begin_ns", by="window", check_sortedness=False
    )
    empty_ns = lies_in.group_by("stretch").agg(empty_ns=pl.col("dur_ns").sum())
    return (
        stretches.join(empty_ns, on="stretch", how="left")
        .select(
            "window",
            "kernel",
            cause=pl.lit(str(Cause.RENDEZVOUS)),
            time_ns=pl.col("dur_ns") - pl.col("empty_ns").fill_null(0),
        )
        .filter(pl.col("time_ns") > 0)
    )


def _stretches(graph: Graph, timeline: Timeline, within: pl.DataFrame, empty: Gaps) -> Stretches:
    """The gaps, with the moment that ended each: the start of the next activity, or the end of the step."""
    mark = _end_mark(timeline, within)[empty.window]
    node = np.where(empty.kernel == NO_KERNEL, mark, timeline.cpu + empty.kernel)
    return Stretches(empty.begin_ns, empty.end_ns, graph.vertex[2 * node])


def _end_mark(timeline: Timeline, windows: pl.DataFrame) -> Ints:
    """The mark at each step's end on the CPU; any node where there are none, as steps then end with the GPU's work."""
    if not timeline.marks:
        return np.zeros(windows.height, dtype=np.int64)
    return timeline.cpu - timeline.marks // 2 + windows["index"].cast(pl.Int64).to_numpy()


def _label(
    graph: Graph, timeline: Timeline, lag_ns: Ints, stretches: Stretches, trail: Trail, work: HostWork
) -> pl.DataFrame:
    """Per piece its ``cause``, and how long it lasts for that and other reasons.

    Args:
        graph: The dependency graph.
        timeline: Measured or replayed.
        lag_ns: The lags that it was replayed with.
        stretches: The idle stretches.
        trail: Their pieces.
        work: Work of the CPU to tell apart.

    Returns:
        ``cause``, ``time_ns``, and what isn't in it: ``sync_bound``, ``allocator``, ``data_loading``, in nanoseconds.
    """
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
    cpu_end = np.where(by_cpu, trail.end_ns, trail.begin_ns)
    blamed_end = np.clip(until, trail.begin_ns, cpu_end)
    allocator_ns = within_ns(graph, timeline, trail, work.allocations, trail.begin_ns, cpu_end)
    named_ns = np.maximum(within_ns(graph, timeline, trail, work.all, trail.begin_ns, cpu_end), allocator_ns)
    named_of_blamed_ns = within_ns(graph, timeline, trail, work.all, trail.begin_ns, blamed_end)
    other_ns = cpu_end - trail.begin_ns - named_ns
    sync_ns = np.clip(blamed_end - trail.begin_ns - named_of_blamed_ns, 0, other_ns)
    return pl.DataFrame(
        {
            "cause": cause,
            "time_ns": trail.dur_ns - sync_ns - named_ns,
            str(Cause.SYNC_BOUND): sync_ns,
            str(Cause.ALLOCATOR): allocator_ns,
            str(Cause.DATA_LOADING): named_ns - allocator_ns,
        }
    )


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
    columns = ("window", "kernel", "cause", "time_ns")
    others = (Cause.SYNC_BOUND, Cause.ALLOCATOR, Cause.DATA_LOADING)
    parts = [labelled.with_columns(cause=pl.lit(str(cause)), time_ns=str(cause)).select(columns) for cause in others]
    return pl.concat([labelled.select(columns), *parts]).filter(pl.col("time_ns") > 0)
