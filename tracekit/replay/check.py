"""How well a graph explains what was measured, edge by edge."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.replay.engine import measured, replay
from tracekit.replay.trail import NO_EDGE, binding_edges, vertex_times


@dataclass(frozen=True, slots=True)
class Check:
    """A graph against the measured times.

    Attributes:
        exact_error_ns: The largest error of a replay whose edges keep what was measured beyond them. Anything but 0 is
            a fault of the graph: a moment that nothing holds, or an edge that leads back in time.
        start_error_us: How far activities start from where they were measured in a replay without those, by share of
            the activities that are no further off: ``{0.5: ..., 0.99: ...}``.
        constants: Per kind of edge, ``edge``: ``edges``; ``lag_us``, ``low_us``, ``high_us``, the median and tenths of
            its lags; ``binds``, how many moments no other edge allowed as late; ``beyond_us``, how much later than
            allowed these came, the median.
        recorded_waits: Waits of streams and calls that the trace records.
        inferred_waits: Those guessed from times and names.
        dropped: Guessed edges left out because they contradict others.
    """

    exact_error_ns: int
    start_error_us: dict[float, float]
    constants: pl.DataFrame
    recorded_waits: int
    inferred_waits: int
    dropped: int


def check(graph: Graph) -> Check:
    """Hold a graph against the measured times."""
    recorded, derived = measured(graph), replay(graph)
    exact = replay(exactly(graph))
    nodes = graph.nodes
    late = np.abs(derived.activity_start_ns - recorded.activity_start_ns) / 1e3
    return Check(
        exact_error_ns=int(
            max(np.abs(exact.start_ns - nodes.start_ns).max(), np.abs(exact.end_ns - nodes.end_ns).max())
        ),
        start_error_us={part: float(np.quantile(late, part)) for part in (0.5, 0.99)},
        constants=_constants(graph),
        recorded_waits=graph.recorded_waits,
        inferred_waits=graph.inferred_waits,
        dropped=graph.dropped,
    )


def exactly(graph: Graph) -> Graph:
    """The graph with lags that give every measured time back: no edge allows more, and one each allows just as much."""
    times = vertex_times(graph, measured(graph))
    lag, _ = _exact_lags(graph, times)
    held = np.diff(graph.first) > 0
    return replace(
        graph,
        lag_ns=lag,
        release_ns=np.where(held, np.minimum(graph.release_ns, times), times),
        kept_ns=np.zeros_like(graph.kept_ns),
        transfer_edge=graph.transfer_edge[:0],
        transfer_activity=graph.transfer_activity[:0],
    )


def _constants(graph: Graph) -> pl.DataFrame:
    times = vertex_times(graph, measured(graph))
    _, binding = _exact_lags(graph, times)
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


def _exact_lags(graph: Graph, times: Ints) -> tuple[Ints, Ints]:
    """Lags that allow what was measured, and the edges of which each allowed its vertex last."""
    found = binding_edges(graph, graph.lag_ns, times)
    binding = found[found != NO_EDGE]
    apart = np.repeat(times, np.diff(graph.first)) - times[graph.src]
    exact = np.minimum(graph.lag_ns, apart)
    exact[binding] = apart[binding]
    return exact, binding
