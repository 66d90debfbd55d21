"""The critical path: the chain of work, latencies and waits that makes the chosen steps take as long as they do.

Shortening anything on it shortens the run, up to where another chain becomes the longest; shortening anything else
doesn't. Its pieces follow each other from the beginning of the first chosen step to the end of the last one.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.graph.nodes import NONE
from tracekit.replay.engine import Timeline
from tracekit.replay.measure import per_step
from tracekit.replay.run import Run
from tracekit.replay.trail import NO_EDGE, Stretches, Trail, far_apart, follow, kinds, nodes_of

PLACES = ("phase", "module")
GPU, HOST, LATENCY, UNEXPLAINED = "gpu", "host", "latency", "unexplained"
_ON = {
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
        pieces: In order of time: ``begin_ns``, ``end_ns``, ``time_ns``, ``on`` (gpu, host, latency or unexplained),
            ``edge`` (kind of edge), ``kernel`` (row of the kernel table that ran, was launched or was waited for),
            ``op``, ``family``, and ``phase`` and ``module`` where the kernel table has them.
        span_ns: From the beginning of the first chosen step to the end of the last one; the pieces add up to it.
    """

    pieces: pl.DataFrame
    span_ns: int

    def by(self, *columns: str) -> pl.DataFrame:
        """Time on the path per ``on``, ``edge``, or what else the pieces have: ``time_us``, ``share``, ``pieces``."""
        summed = self.pieces.group_by(columns).agg(pl.col("time_ns").sum(), pieces=pl.len())
        ordered = summed.sort("time_ns", *columns, descending=[True, *[False] * len(columns)])
        return ordered.select(
            *columns, time_us=pl.col("time_ns") / 1e3, share=pl.col("time_ns") / max(self.span_ns, 1), pieces="pieces"
        )


def critical_path(run: Run, timeline: Timeline) -> CriticalPath:
    """The critical path of the chosen steps.

    Args:
        run: The run.
        timeline: Of its graph, measured or replayed.
    """
    table = per_step(timeline, run.kernels, run.steps).with_row_index("index")
    table = table.join(run.chosen.select("step"), on="step", how="semi", maintain_order="left").drop_nulls("time_ns")
    begin, end = table.select(pl.col("begin_ns").min(), pl.col("end_ns").max()).row(0)
    last = table.row(int(table["end_ns"].arg_max() or 0), named=True)
    vertex = _last_vertex(run, timeline, last["step"], last["index"], end)
    trail = follow(run.graph, timeline, Stretches(np.array([begin]), np.array([end]), np.array([vertex])))
    return CriticalPath(_describe(run.graph, run.kernels, trail).reverse(), end - begin)


def _last_vertex(run: Run, timeline: Timeline, step: int, index: int, end: int) -> int:
    """The vertex that a step ends with: its last mark on the CPU, or the end of its last activity."""
    if timeline.marks:
        mark = int(timeline.end_marks(np.array(index)))
        if timeline.start_ns[mark] >= end:
            return int(run.graph.vertex[2 * mark])
    own = (run.kernels["step"] == step).fill_null(False).to_numpy() & (timeline.activity_end_ns <= end)
    latest = np.argmax(np.where(own, timeline.activity_end_ns, np.iinfo(np.int64).min))
    return int(run.graph.vertex[2 * (timeline.cpu + latest) + 1])


def _describe(graph: Graph, kernels: pl.DataFrame, trail: Trail) -> pl.DataFrame:
    """The pieces of a trail as :class:`CriticalPath` holds them, in the trail's order."""
    ends_at = nodes_of(graph, trail.vertex)
    kernel = _kernel_of(graph)[ends_at]
    kind = kinds(graph, trail)
    on_gpu = (kind == EdgeKind.RUN) & (ends_at >= graph.nodes.cpu)
    names = {int(k): k.name.lower() for k in EdgeKind} | {NO_EDGE: UNEXPLAINED}
    places = {int(k): place for k, place in _ON.items()} | {NO_EDGE: UNEXPLAINED}
    pieces = pl.DataFrame(
        {
            "begin_ns": trail.begin_ns,
            "end_ns": trail.end_ns,
            "time_ns": trail.dur_ns,
            "kind": kind,
            "gpu": on_gpu,
            "far": far_apart(graph, trail),
            "kernel": pl.Series(kernel).replace(NONE, None),
            "call": graph.nodes.names.gather(pl.Series(ends_at).set(pl.Series(ends_at >= graph.nodes.cpu), None)),
        }
    )
    places_of = {column: column for column in PLACES if column in kernels.columns}
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


def _kernel_of(graph: Graph) -> Ints:
    """Of every node, the activity that it is or that it launched first; ``NONE`` for other calls."""
    nodes = graph.nodes
    kernel = np.full(nodes.start_ns.size, NONE)
    launched = nodes.launcher != NONE
    rows = np.arange(nodes.launcher.size)
    kernel[nodes.launcher[launched][::-1]] = rows[launched][::-1]
    kernel[nodes.cpu :] = rows
    return kernel
