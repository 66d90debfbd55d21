"""Traces of odd shapes: memory and work grow with the trace, not with its square."""

import tracemalloc

import polars as pl
import pytest

from tests.benchmarks.timing import best
from tracekit.analysis import idle
from tracekit.graph.ranks import Collectives, join_ranks
from tracekit.replay.engine import build_measured_timeline
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table


def measure_stream_idle_peak(streams: int) -> int:
    """Return the peak memory of explaining the idle time of so many streams with a kernel each."""
    builder = TraceBuilder()
    for number in range(streams):
        builder.kernel("gemm", 10 * number + 9, 8, launch=10 * number, stream=7 + number)
    run = prepare_run(builder.load()).program
    timeline = build_measured_timeline(run.graph)
    tracemalloc.start()
    idle.attribute_stream_idle_time(run, timeline)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_the_idle_time_of_many_streams_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream's gap leads back over the launches of all before: a quarter million segments, 72 MB at once."""
    monkeypatch.setattr(idle, "MAX_SEGMENTS_AT_ONCE", 1 << 10)
    measure_stream_idle_peak(10)
    assert measure_stream_idle_peak(500) < 8_000_000


def join_broadcast(kernels: pl.DataFrame, ranks: int) -> Collectives:
    """Join the ranks of one broadcast; rank n arrives n us after the first."""
    rank = pl.DataFrame({"rank": range(ranks)}, schema={"rank": pl.Int64})
    table = rank.join(kernels.with_columns(ranks=ranks), how="cross")
    return join_ranks(table.with_columns(pl.col("ts_ns") + 1000 * pl.col("rank")))


def test_a_broadcast_of_many_ranks_takes_time_in_proportion() -> None:
    """Whose arrivals a rank awaited is counted, not listed: pairs of 8,000 ranks would be 64 million."""
    args = {"Collective name": "broadcast", "dtype": "Float", "In msg nelems": 1000, "Group size": 2}
    trace = TraceBuilder().kernel("ncclDevKernel_Broadcast_RING_LL()", 20, 10, launch=0, **args).load()
    kernels = build_kernel_table(trace.rank())
    table = join_broadcast(kernels, 100).table
    # Each takes 10 us: at its end all who came up to 10 us later have arrived. The first to end is the root.
    assert table["awaits"].to_list()[:3] == [0, 12, 13]
    assert table["awaits"].to_list()[-2:] == [100, 100]
    assert best(lambda: join_broadcast(kernels, 8000)) < 10 * best(lambda: join_broadcast(kernels, 2000))
