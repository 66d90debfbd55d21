"""The critical path: the chain of work, latencies and waits that determines the duration of the chosen steps.

Shortening anything on the path shortens the run, until another chain becomes the longest; shortening anything else
doesn't. The segments follow one another from the start of the first chosen step to the end of the last one.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import (
    NO_EDGE,
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
    EdgeKind.STALL: LATENCY,
}


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path of the chosen steps.

    Attributes:
        segments: In order of time: ``begin_ns``, ``end_ns``, ``time_ns``, ``on`` (gpu, host, latency or unexplained),
            ``edge`` (kind of edge), ``kernel`` (row of the kernel that ran, was launched or was waited for), ``op``,
            ``family``, and ``phase`` and ``module`` if the kernel table has them.
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
    spans = _find_spans_in_a_row(program, timeline)
    begin, end = spans["begin_ns"].to_numpy(), spans["end_ns"].to_numpy()
    last = spans.select("step", "row", "end_ns").iter_rows()
    vertex = np.array([_find_last_vertex(program, timeline, *one) for one in last])
    trail = follow_binding_edges(program.graph, timeline, TimeRanges(begin, end, vertex))
    return CriticalPath(_describe_segments(program.graph, program.kernels, trail).reverse(), int((end - begin).sum()))


def _find_spans_in_a_row(program: Program, timeline: Timeline) -> pl.DataFrame:
    """Find the spans of chosen steps in a row, all ranks together: ``begin_ns``, ``end_ns``, last ``step`` and ``row``.

    Example: of the steps 5, 6, 7 and 8, the chosen ones 5, 6 and 8 make two spans.
    """
    spans = program.step_timer.compute_step_spans(timeline)
    rows = np.flatnonzero(spans.has_duration & program.step_timer.is_chosen)
    times = {"row": rows, "begin_ns": spans.previous_end_ns[rows], "end_ns": spans.end_ns[rows]}
    numbers = pl.DataFrame({"step": program.step_timer.numbers}, schema={"step": pl.Int64}).with_row_index("place")
    table = pl.DataFrame({"step": program.steps["step"][rows], **times}).join(numbers, on="step").sort("place", "row")
    in_a_row = pl.col("place").cast(pl.Int64).diff().fill_null(0) <= 1
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
    ends_at = get_nodes(graph, trail.vertex)
    kernel = _map_nodes_to_kernels(graph)[ends_at]
    kind = get_edge_kinds(graph, trail)
    on_gpu = (kind == EdgeKind.RUN) & (ends_at >= graph.nodes.n_host)
    names = {int(k): k.name.lower() for k in EdgeKind} | {NO_EDGE: UNEXPLAINED}
    places = {int(k): place for k, place in _RESOURCE_BY_EDGE_KIND.items()} | {NO_EDGE: UNEXPLAINED}
    pieces = pl.DataFrame(
        {
            "begin_ns": trail.begin_ns,
            "end_ns": trail.end_ns,
            "time_ns": trail.dur_ns,
            "kind": kind,
            "gpu": on_gpu,
            "far": find_long_stream_gaps(graph, trail),
            "kernel": pl.Series(kernel).replace(NONE, None),
            "call": graph.nodes.names.gather(pl.Series(ends_at).set(pl.Series(ends_at >= graph.nodes.n_host), None)),
        }
    )
    places_of = {column: column for column in LOCATION_COLUMNS if column in kernels.columns}
    ops = kernels.select(
        kernel=pl.int_range(pl.len(), dtype=pl.Int64), op=pl.coalesce("op", "name"), family="family", **places_of
    )
    return pieces.join(ops, on="kernel", how="left", maintain_order="left").select(
        "begin_ns",
        "end_ns",
        "time_ns",
        on=pl.when("gpu")
        .then(pl.lit(GPU))
        .when("far")
        .then(pl.lit(UNEXPLAINED))
        .otherwise(pl.col("kind").replace_strict(places, return_dtype=pl.String)),
        edge=pl.col("kind").replace_strict(names, return_dtype=pl.String),
        kernel="kernel",
        op=pl.coalesce("op", "call"),
        family="family",
        **places_of,
    )


def _map_nodes_to_kernels(graph: Graph) -> Ints:
    """Map every node to the activity that it is or that it launched first; ``NONE`` for other calls."""
    nodes = graph.nodes
    kernel = np.full(nodes.start_ns.size, NONE)
    launched = nodes.launcher != NONE
    rows = np.arange(nodes.launcher.size)
    kernel[nodes.launcher[launched][::-1]] = rows[launched][::-1]
    kernel[nodes.n_host :] = rows
    return kernel
