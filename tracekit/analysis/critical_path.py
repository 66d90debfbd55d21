"""The critical path, which determines the duration of the chosen steps, and slack: how much longer a node may take.

Shortening anything on the path shortens the run, until another chain becomes the longest; shortening anything else
doesn't. The segments follow one another from the start of the first chosen step to the end of the last one.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import (
    BindingPath,
    TimeRanges,
    find_long_stream_gaps,
    follow_binding_edges,
    get_edge_kinds,
    get_nodes,
    get_vertex_times,
)
from tracekit.arrays import IN_ORDER, Ints, coalesce, gather_rows, make_column
from tracekit.compiled import compile_lazily
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.kept import keep_on_first
from tracekit.program import Program
from tracekit.replay.engine import Timeline, replay

LOCATION_COLUMNS = ("phase", "module")
GPU, HOST, LATENCY, UNEXPLAINED = "gpu", "host", "latency", "unexplained"
COMMUNICATION = "communication"
UNRECORDED_WORK = "work that isn't in the trace"
"""What the path shows instead of an op where the GPU ran something that isn't recorded."""
RESOURCES = (GPU, HOST, LATENCY, UNEXPLAINED, COMMUNICATION)
_RESOURCE_BY_EDGE_KIND = {
    EdgeKind.RUN: HOST,
    EdgeKind.PROGRAM: HOST,
    EdgeKind.HANDOVER: HOST,
    EdgeKind.LAUNCH: LATENCY,
    EdgeKind.STREAM: LATENCY,
    EdgeKind.EVENT: LATENCY,
    EdgeKind.SYNC: LATENCY,
    EdgeKind.QUEUE: LATENCY,
    EdgeKind.RENDEZVOUS: GPU,
    EdgeKind.OCCUPIED: LATENCY,
    EdgeKind.STALL: UNEXPLAINED,
    EdgeKind.UNRECORDED: GPU,
}
_EDGE_NAMES = pl.Series([*(kind.name.lower() for kind in EdgeKind), UNEXPLAINED])
_RESOURCE_CODES = np.array(
    [RESOURCES.index(_RESOURCE_BY_EDGE_KIND[kind]) for kind in EdgeKind] + [RESOURCES.index(UNEXPLAINED)]
)
"""By kind of edge; the last entry, which ``NO_EDGE`` selects, is for segments without an edge."""


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path of the chosen steps.

    Attributes:
        segments: In order of time: ``begin_ns``, ``end_ns``, ``time_ns``, ``on`` (one of ``RESOURCES``), ``edge`` (kind
            of edge), ``kernel`` (row of the kernel that ran, was launched or was waited for), ``op``, ``family``, and
            ``phase`` and ``module`` if the kernel table has them.
        span_ns: From the start of the first chosen step to the end of the last one; equals the sum of the segments.
    """

    segments: pl.DataFrame
    span_ns: int

    def sum_by(self, *columns: str) -> pl.DataFrame:
        """Sum the path's time by columns of the segments.

        Returns:
            The columns, ``time_us``, ``share`` (fraction of the path), ``pieces`` (number of segments).
        """
        summed = self.segments.lazy().group_by(columns).agg(pl.col("time_ns").sum(), pieces=pl.len())
        ordered = summed.sort("time_ns", *columns, descending=[True, *[False] * len(columns)])
        return ordered.select(
            *columns, time_us=pl.col("time_ns") / 1e3, share=pl.col("time_ns") / max(self.span_ns, 1), pieces="pieces"
        ).collect(engine=IN_ORDER)


def compute_critical_path(program: Program, timeline: Timeline) -> CriticalPath:
    """Compute the critical path of the chosen steps.

    ``timeline`` is one of the program's graph, measured or replayed.
    """
    trail, span_ns = _follow_critical_path(program, timeline)
    # The path is latest first within each span of steps in a row, the spans earliest first.
    in_time = trail.begin_ns.size - 1 - np.argsort(trail.begin_ns[::-1], kind="stable")
    return CriticalPath(_describe_segments(program.graph, program.kernels, trail)[in_time], span_ns)


@keep_on_first
def compute_measured_path(program: Program) -> CriticalPath:
    """Compute the critical path of a program's chosen steps as they were measured."""
    return compute_critical_path(program, program.measured_timeline)


def compute_resource_shares(program: Program, timeline: Timeline) -> dict[str, float]:
    """Compute the percent of the critical path by resource, in order of the alphabet; arguments as above.

    Returns:
        Shares of ``RESOURCES``, without those that take nothing.
    """
    trail, span_ns = _follow_critical_path(program, timeline)
    resource = _classify_resources(program.graph, program.kernels, trail)
    time_ns = np.zeros(len(RESOURCES), dtype=np.int64)
    np.add.at(time_ns, resource, trail.dur_ns)
    found = sorted(zip(RESOURCES, time_ns.tolist(), strict=True))
    return {name: 100 * time / max(span_ns, 1) for name, time in found if time}


def _follow_critical_path(program: Program, timeline: Timeline) -> tuple[BindingPath, int]:
    """Return the segments of the critical path, latest first, and the duration of the chosen steps."""
    spans = _find_spans_in_a_row(program, timeline)
    vertex = np.array(
        [_find_last_vertex(program, timeline, row, end) for row, end in zip(spans.last_row, spans.end_ns, strict=True)]
    )
    ranges = TimeRanges(spans.begin_ns, spans.end_ns, vertex)
    return follow_binding_edges(program.graph, timeline, ranges), int((spans.end_ns - spans.begin_ns).sum())


@dataclass(frozen=True, slots=True)
class _Spans:
    """Chosen steps in a row, all ranks together: begin and end, and the row of the step that ends last."""

    begin_ns: Ints
    end_ns: Ints
    last_row: Ints


def _find_spans_in_a_row(program: Program, timeline: Timeline) -> _Spans:
    """Find the spans of chosen steps in a row, in order of time.

    Example: of the steps 5, 6, 7 and 8, the chosen ones 5, 6 and 8 make two spans. A step that begins at its mark, as
    steps before it weren't recorded, begins a span, too.
    """
    timer = program.step_timer
    spans = timer.compute_step_spans(timeline)
    rows = np.flatnonzero(spans.has_duration & timer.is_chosen)
    place = timer.job.place[rows]
    order = np.argsort(place, kind="stable")
    rows, place = rows[order], place[order]
    is_cut = np.bincount(place, ~timer.job.begins_at_mark[rows])[place] == 0
    apart = np.diff(place, prepend=place[:1])
    begins_span = (apart > 1) | ((apart == 1) & is_cut)
    begins_span[:1] = True
    first = np.flatnonzero(begins_span)
    begin, end = spans.previous_end_ns[rows], spans.end_ns[rows]
    ends_last = np.lexsort((-end, np.cumsum(begins_span)))[first]
    begin_ns = np.minimum.reduceat(begin, first)
    in_time = np.argsort(begin_ns, kind="stable")
    return _Spans(begin_ns[in_time], end[ends_last][in_time], rows[ends_last][in_time])


def _find_last_vertex(program: Program, timeline: Timeline, row: int, end: int) -> int:
    """Find the vertex at which a step ends: its end mark on the CPU, or the end of its last activity."""
    if timeline.mark_count:
        mark = int(timeline.find_end_marks(np.array(row)))
        if timeline.start_ns[mark] >= end:
            return int(program.graph.vertex[2 * mark])
    own = (program.step_timer.step_place == program.step_timer.job.place[row]) & (timeline.activity_end_ns <= end)
    latest = np.argmax(np.where(own, timeline.activity_end_ns, np.iinfo(np.int64).min))
    return int(program.graph.vertex[2 * (timeline.host_node_count + latest) + 1])


def _describe_segments(graph: Graph, kernels: pl.DataFrame, trail: BindingPath) -> pl.DataFrame:
    """Describe the segments as in :class:`CriticalPath`, in the order of the binding path."""
    ends_at, kind = get_nodes(graph, trail.vertex), get_edge_kinds(graph, trail)
    is_unrecorded = kind == EdgeKind.UNRECORDED
    kernel = np.where(is_unrecorded, NONE, _map_nodes_to_kernels(graph)[ends_at])
    kernel_row = make_column("kernel", kernel, NONE)
    call_row = make_column("call", np.where(ends_at >= graph.nodes.n_host, NONE, ends_at), NONE)
    call = gather_rows(graph.nodes.names, call_row).set(pl.Series(is_unrecorded), UNRECORDED_WORK)
    op = gather_rows(coalesce(kernels["op"], kernels["name"]), kernel_row)
    return pl.DataFrame(
        {
            "begin_ns": trail.begin_ns,
            "end_ns": trail.end_ns,
            "time_ns": trail.dur_ns,
            "on": pl.Series(RESOURCES)[_classify_resources(graph, kernels, trail)],
            "edge": _EDGE_NAMES[kind % _EDGE_NAMES.len()],
            "kernel": kernel_row,
            "op": op.zip_with(pl.Series(kernel != NONE), call),
            "family": gather_rows(kernels["family"], kernel_row),
            **{name: gather_rows(kernels[name], kernel_row) for name in LOCATION_COLUMNS if name in kernels.columns},
        }
    )


def _classify_resources(graph: Graph, kernels: pl.DataFrame, trail: BindingPath) -> Ints:
    """Return the resource of each segment as a position in ``RESOURCES``; a running collective is communication."""
    kind, ends_at = get_edge_kinds(graph, trail), get_nodes(graph, trail.vertex)
    resource = _RESOURCE_CODES[kind]
    resource[find_long_stream_gaps(graph, trail)] = RESOURCES.index(UNEXPLAINED)
    resource[(kind == EdgeKind.RUN) & (ends_at >= graph.nodes.n_host)] = RESOURCES.index(GPU)
    kernel = _map_nodes_to_kernels(graph)[ends_at]
    collective = (kernel != NONE) & (kernels["family"] == "collective").to_numpy()[kernel]
    resource[collective & (resource == RESOURCES.index(GPU))] = RESOURCES.index(COMMUNICATION)
    return resource


def _map_nodes_to_kernels(graph: Graph) -> Ints:
    """Map every node to the activity that it is or that it launched first; ``NONE`` for other calls."""
    nodes = graph.nodes
    kernel = np.full(nodes.start_ns.size, NONE)
    launched = nodes.launcher != NONE
    rows = np.arange(nodes.launcher.size)
    kernel[nodes.launcher[launched][::-1]] = rows[launched][::-1]
    kernel[nodes.n_host :] = rows
    return kernel


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

    ``slack`` is from :func:`compute_slack_ns`.
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
