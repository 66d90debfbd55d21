"""Check how well a graph explains the measured times, edge by edge."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import NO_EDGE, find_binding_edges, get_vertex_times
from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.replay.engine import build_measured_timeline, replay


@dataclass(frozen=True, slots=True)
class GraphSelfCheck:
    """A graph compared with the measured times.

    Attributes:
        exact_error_ns: Largest error of a replay whose lags reproduce the measurement. A value other than 0 is an
            error of the graph: a vertex without a binding edge, or an edge that points back in time.
        start_error_us: Distance between replayed and measured starts of activities, by quantile: ``{0.5: ..., 0.99:
            ...}``.
        edge_kind_stats: One row per kind of edge, ``edge``: ``edges``, their number; ``lag_us``, ``low_us``,
            ``high_us``, median and 10 % and 90 % quantiles of the lag; ``binds``, number of vertices that such an
            edge binds; ``beyond_us``, median time by which these vertices came later than the edge allows.
        recorded_waits: Number of waits of streams and calls that the trace records.
        inferred_waits: Number of waits inferred from times and names.
        dropped: Number of inferred edges that were left out because they contradict others.
    """

    exact_error_ns: int
    start_error_us: dict[float, float]
    edge_kind_stats: pl.DataFrame
    recorded_waits: int
    inferred_waits: int
    dropped: int


def run_self_check(graph: Graph) -> GraphSelfCheck:
    """Compare a graph with the measured times."""
    recorded, derived = build_measured_timeline(graph), replay(graph)
    exact = replay(make_exact_graph(graph))
    nodes = graph.nodes
    late = np.abs(derived.activity_start_ns - recorded.activity_start_ns) / 1e3
    return GraphSelfCheck(
        exact_error_ns=int(
            max(np.abs(exact.start_ns - nodes.start_ns).max(), np.abs(exact.end_ns - nodes.end_ns).max())
        ),
        start_error_us={part: float(np.quantile(late, part)) for part in (0.5, 0.99)},
        edge_kind_stats=_summarize_edge_kinds(graph),
        recorded_waits=graph.recorded_waits,
        inferred_waits=graph.inferred_waits,
        dropped=graph.dropped,
    )


def make_exact_graph(graph: Graph) -> Graph:
    """Return the graph with lags that reproduce every measured time.

    No edge then allows a later time than measured, and one edge per vertex allows exactly the measured time.
    """
    times = get_vertex_times(graph, build_measured_timeline(graph))
    lag, _ = _compute_exact_lags(graph, times)
    held = np.diff(graph.first) > 0
    return replace(
        graph,
        lag_ns=lag,
        release_ns=np.where(held, np.minimum(graph.release_ns, times), times),
        kept_ns=np.zeros_like(graph.kept_ns),
        transfer_edge=graph.transfer_edge[:0],
        transfer_activity=graph.transfer_activity[:0],
    )


def _summarize_edge_kinds(graph: Graph) -> pl.DataFrame:
    times = get_vertex_times(graph, build_measured_timeline(graph))
    _, binding = _compute_exact_lags(graph, times)
    binds = np.zeros(graph.src.size, dtype=np.bool_)
    binds[binding] = True
    table = pl.DataFrame(
        {
            "kind": graph.kind,
            "lag": graph.lag_ns / 1e3,
            "binds": binds,
            "beyond": (times[graph.dst] - times[graph.src] - graph.lag_ns) / 1e3,
        }
    )
    names = {int(kind): kind.name.lower() for kind in EdgeKind}
    summed = table.group_by("kind").agg(
        edges=pl.len(),
        lag_us=pl.col("lag").median(),
        low_us=pl.col("lag").quantile(0.1),
        high_us=pl.col("lag").quantile(0.9),
        binds=pl.col("binds").sum(),
        beyond_us=pl.col("beyond").filter("binds").median(),
    )
    return summed.sort("kind").with_columns(pl.col("kind").replace_strict(names)).rename({"kind": "edge"})


def _compute_exact_lags(graph: Graph, times: Ints) -> tuple[Ints, Ints]:
    """Return the lags that allow the measured times, and the binding edges."""
    found = find_binding_edges(graph, graph.lag_ns, times)
    binding = found[found != NO_EDGE]
    apart = np.repeat(times, np.diff(graph.first)) - times[graph.src]
    exact = np.minimum(graph.lag_ns, apart)
    exact[binding] = apart[binding]
    return exact, binding
