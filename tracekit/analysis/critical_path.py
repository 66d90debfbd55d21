"""The critical path: the chain of work, latencies and waits that determines the duration of the chosen steps.

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
)
from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.program import Program
from tracekit.replay.engine import Timeline

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
        summed = self.segments.group_by(columns).agg(pl.col("time_ns").sum(), pieces=pl.len())
        ordered = summed.sort("time_ns", *columns, descending=[True, *[False] * len(columns)])
        return ordered.select(
            *columns, time_us=pl.col("time_ns") / 1e3, share=pl.col("time_ns") / max(self.span_ns, 1), pieces="pieces"
        )


def compute_critical_path(program: Program, timeline: Timeline) -> CriticalPath:
    """Compute the critical path of the chosen steps.

    Args:
        program: The program.
        timeline: A timeline of the program's graph, measured or replayed.
    """
    trail, span_ns = _follow_critical_path(program, timeline)
    # The path is latest first within each span of steps in a row, the spans earliest first.
    segments = _describe_segments(program.graph, program.kernels, trail).reverse()
    return CriticalPath(segments.sort("begin_ns", maintain_order=True), span_ns)


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
    begin, end = spans["begin_ns"].to_numpy(), spans["end_ns"].to_numpy()
    last = spans.select("step", "row", "end_ns").iter_rows()
    vertex = np.array([_find_last_vertex(program, timeline, *one) for one in last])
    return follow_binding_edges(program.graph, timeline, TimeRanges(begin, end, vertex)), int((end - begin).sum())


def _find_spans_in_a_row(program: Program, timeline: Timeline) -> pl.DataFrame:
    """Find the spans of chosen steps in a row, all ranks together: ``begin_ns``, ``end_ns``, last ``step`` and ``row``.

    Example: of the steps 5, 6, 7 and 8, the chosen ones 5, 6 and 8 make two spans. A step that begins at its mark, as
    steps before it weren't recorded, begins a span, too.
    """
    spans = program.step_timer.compute_step_spans(timeline)
    rows = np.flatnonzero(spans.has_duration & program.step_timer.is_chosen)
    times = {"row": rows, "begin_ns": spans.previous_end_ns[rows], "end_ns": spans.end_ns[rows]}
    numbers = pl.DataFrame({"step": program.step_timer.numbers}, schema={"step": pl.Int64}).with_row_index("place")
    anew = program.step_timer.job.begins_at_mark[rows]
    steps = pl.DataFrame({"step": program.steps["step"][rows], "anew": anew, **times})
    table = steps.join(numbers, on="step").sort("place", "row")
    later = pl.col("place").cast(pl.Int64).diff().fill_null(0)
    in_a_row = (later == 0) | ((later == 1) & ~pl.col("anew").all().over("place"))
    return (
        table.group_by(span=(~in_a_row).cum_sum(), maintain_order=True)
        .agg(
            pl.col("step", "row").get(pl.col("end_ns").arg_max()),
            begin_ns=pl.col("begin_ns").min(),
            end_ns=pl.col("end_ns").max(),
        )
        .sort("begin_ns")
    )


def _find_last_vertex(program: Program, timeline: Timeline, step: int, index: int, end: int) -> int:
    """Find the vertex at which a step ends: its end mark on the CPU, or the end of its last activity."""
    if timeline.mark_count:
        mark = int(timeline.find_end_marks(np.array(index)))
        if timeline.start_ns[mark] >= end:
            return int(program.graph.vertex[2 * mark])
    own = (program.kernels["step"] == step).fill_null(False).to_numpy() & (timeline.activity_end_ns <= end)
    latest = np.argmax(np.where(own, timeline.activity_end_ns, np.iinfo(np.int64).min))
    return int(program.graph.vertex[2 * (timeline.host_node_count + latest) + 1])


def _describe_segments(graph: Graph, kernels: pl.DataFrame, trail: BindingPath) -> pl.DataFrame:
    """Describe the segments as in :class:`CriticalPath`, in the order of the binding path."""
    ends_at, kind = get_nodes(graph, trail.vertex), get_edge_kinds(graph, trail)
    is_unrecorded = pl.Series(kind == EdgeKind.UNRECORDED)
    kernel = np.where(is_unrecorded, NONE, _map_nodes_to_kernels(graph)[ends_at])
    kernel_row = pl.Series(kernel).set(pl.Series(kernel == NONE), None)
    call = graph.nodes.names.gather(pl.Series(ends_at).set(pl.Series(ends_at >= graph.nodes.n_host), None))
    call = call.set(is_unrecorded, UNRECORDED_WORK)
    places_of = [column for column in LOCATION_COLUMNS if column in kernels.columns]
    of_kernel = kernels.select("family", *places_of, op=pl.coalesce("op", "name"))
    return pl.DataFrame(
        {
            "begin_ns": trail.begin_ns,
            "end_ns": trail.end_ns,
            "time_ns": trail.dur_ns,
            "on": pl.Series(RESOURCES).gather(_classify_resources(graph, kernels, trail)),
            "edge": _EDGE_NAMES.gather(kind % _EDGE_NAMES.len()),
            "kernel": kernel_row,
            "op": of_kernel["op"].gather(kernel_row).zip_with(pl.Series(kernel != NONE), call),
            **{name: of_kernel[name].gather(kernel_row) for name in ("family", *places_of)},
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
