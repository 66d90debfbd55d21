"""Steps that are told by launches of CUDA or HIP graphs which repeat in the same order."""

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.rules import Rule
from tracekit.trace import RankTrace
from tracekit.workload.launched_work import LaunchedWork

RULE = Rule(
    "graph-launch-steps",
    "Without other marks, launches of graphs that repeat in the same order are the steps.",
    "vLLM of 2025 on an H100, whose nine decodes are 81 graph launches each: one step of 359 ms without the rule.",
)
GRAPH_LAUNCH = "GraphLaunch"
MAX_WORK_RATIO = 1.5
"""By how much the work of a round may differ from the median round's."""
MIN_EVEN_FRACTION = 0.8
"""Least part of the rounds that must be so."""
MIN_TRACE_FRACTION = 0.5
"""Least part of the trace's work that the rounds must hold."""


def find_graph_steps(trace: RankTrace) -> pl.DataFrame:
    """Find the rounds of graph launches, each from its first launch to that of the next.

    A round begins where the host waits longest between launches. Where rounds of several kinds follow each other, as
    with batches of two sizes, it begins at a graph that follows others than always the same one::

        a b c   a b c   a b c   d e f   d e f
        ^       ^       ^       ^       ^

    Returns:
        ``start_ns``, ``end_ns``, ``pid``, ``tid`` and ``found_name`` (launches in a round); no row if there are none.
    """
    launches = _list_launches(trace)
    starts, ends = _find_rounds(launches)
    if starts.size < 2:
        return _NO_STEPS
    start_ns, end_ns = _close_rounds(launches["ts_ns"].to_numpy(), starts, ends, trace)
    work = LaunchedWork.from_trace(trace)
    launched = work.measure(start_ns, end_ns)
    if launched.sum() < MIN_TRACE_FRACTION * work.total_ns or not _is_even(launched):
        return _NO_STEPS
    size = int(np.median(ends - starts))
    return pl.DataFrame({"start_ns": start_ns, "end_ns": end_ns}).hstack(
        launches.select("pid", "tid", found_name=pl.lit(str(size)))[starts]
    )


_NO_STEPS = pl.DataFrame(
    schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "pid": pl.Int64, "tid": pl.Int64, "found_name": pl.String}
)


def _list_launches(trace: RankTrace) -> pl.DataFrame:
    """List the launches of graphs in order, with a number for each graph: that of its nodes, else of its kernels."""
    calls = trace.calls.filter(pl.col("name").str.contains(GRAPH_LAUNCH)).drop_nulls("correlation")
    kernels = trace.activities.join(calls.select("correlation"), on="correlation", how="semi")
    nodes = pl.col("graph_node_id").min()
    names = pl.concat_str(pl.len(), pl.col("name").hash().sum(), separator=" ")
    graphs = kernels.group_by("correlation").agg(
        key=pl.when(pl.col("graph_node_id").null_count() == 0).then(nodes.cast(pl.String)).otherwise(names)
    )
    return (
        calls.sort("ts_ns")
        .join(graphs, on="correlation", maintain_order="left")
        .with_columns(graph=pl.col("key").rank("dense").cast(pl.Int64))
    )


def _find_rounds(launches: pl.DataFrame) -> tuple[Ints, Ints]:
    """Find the first launch of each whole round, and the first behind it."""
    graphs = launches["graph"].to_numpy()
    if graphs.size < 2:
        return graphs, graphs
    period = _find_period(graphs)
    if period is not None:
        starts = np.arange(_find_phase(launches, period), graphs.size, period)
        whole = starts + period <= graphs.size
        return starts[whole], starts[whole] + period
    starts = np.flatnonzero(np.isin(graphs, _find_heads(graphs)))
    ends = np.append(starts[1:], graphs.size)
    if starts.size < 2:
        return starts, ends
    usual = np.bincount(graphs[starts], weights=ends - starts) / np.maximum(np.bincount(graphs[starts]), 1)
    whole = ends - starts >= usual[graphs[starts]]
    whole[:-1] = True
    return starts[whole], ends[whole]


def _find_period(graphs: Ints) -> int | None:
    """Find after how many launches the sequence of graphs repeats; ``None`` if it doesn't."""
    numbers, counts = np.unique(graphs, return_counts=True)
    repeated = counts > 1
    if not repeated.any():
        return None
    rarest = numbers[repeated][np.argmin(counts[repeated])]
    places = np.flatnonzero(graphs == rarest)
    for period in (places[1:] - places[0]).tolist():
        if 2 * period <= graphs.size and (graphs[period:] == graphs[:-period]).all():
            return int(period)
    return None


def _find_heads(graphs: Ints) -> Ints:
    """Find the graphs that don't always follow one other graph."""
    follows = pl.DataFrame({"graph": graphs, "before": np.concatenate([[-1], graphs[:-1]])})
    before = follows.group_by("graph").agg(pl.col("before").n_unique())
    return before.filter(pl.col("before") > 1)["graph"].to_numpy()


def _find_phase(launches: pl.DataFrame, period: int) -> int:
    """Find which launch of a period comes after the longest wait."""
    ended = (pl.col("ts_ns") + pl.col("dur_ns")).shift(1)
    waits = launches.select(waited=pl.col("ts_ns") - ended, phase=pl.int_range(pl.len()) % period)
    phases = waits.group_by("phase").agg(pl.col("waited").median()).sort("waited", "phase", descending=[True, False])
    return int(phases["phase"][0])


def _close_rounds(at_ns: Ints, starts: Ints, ends: Ints, trace: RankTrace) -> tuple[Ints, Ints]:
    """Return begin and end of each round; the last one lasts as long as others, or until the trace ends."""
    start_ns = at_ns[starts]
    if ends[-1] < at_ns.size:
        return start_ns, np.append(start_ns[1:], at_ns[ends[-1]])
    last_call = int((trace.calls["ts_ns"] + trace.calls["dur_ns"]).to_numpy().max())
    usual = start_ns[-1] + int(np.median(np.diff(start_ns)))
    return start_ns, np.append(start_ns[1:], min(max(usual, at_ns[-1]), last_call) + 1)


def _is_even(work_ns: Ints) -> bool:
    """Return whether nearly all rounds have about the same work."""
    middle = float(np.median(work_ns))
    near = (work_ns <= MAX_WORK_RATIO * middle) & (work_ns * MAX_WORK_RATIO >= middle)
    return middle > 0 and float(near.mean()) >= MIN_EVEN_FRACTION
