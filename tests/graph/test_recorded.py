"""Waits that CUPTI recorded, on small traces; times in microseconds."""

from typing import Any

from tests.graphs import graph_of, play
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.testing import TraceBuilder


def correlation(builder: TraceBuilder) -> int:
    """Of the call added last."""
    found: int = builder.events[-1]["args"]["correlation"]
    return found


def sync(builder: TraceBuilder, name: str, at: float, **args: Any) -> TraceBuilder:
    """A cuda_sync event, in the form of an event that the builder makes itself."""
    event = dict(builder.events[-1])
    stream = args.pop("stream", -1)
    event |= {"cat": "cuda_sync", "name": name, "ts": at, "dur": 1, "pid": 0, "tid": stream}
    event["args"] = {"cuda_sync_kind": name, "stream": stream, "device": 0, **args}
    builder.events.append(event)
    return builder


def waiting(kernel_start: float) -> TraceBuilder:
    """Stream 9 is told at 30 to wait for what stream 7 had been given until 20; its kernel starts as given."""
    builder = TraceBuilder().kernel("gemm", 10, 100, launch=0).call("cudaEventRecord", 20, 2)
    record = correlation(builder)
    builder.call("cudaStreamWaitEvent", 30, 2)
    sync(
        builder,
        "Stream Wait Event",
        30,
        stream=9,
        correlation=correlation(builder),
        wait_on_stream=7,
        wait_on_cuda_event_record_corr_id=record,
    )
    return builder.kernel("copy", kernel_start, 10, launch=40, stream=9)


def activity_starts(graph: Graph, durations: list[float]) -> list[float]:
    timeline = play(graph, *durations)
    times: list[float] = (timeline.activity_start_ns / 1000).tolist()
    return times


def test_a_recorded_wait_is_an_edge_even_where_it_never_bound():
    graph = graph_of(waiting(500))
    assert (graph.recorded_waits, graph.inferred_waits) == (1, 0)
    assert int((graph.kind == EdgeKind.EVENT).sum()) == 1
    # A kernel of 900 ends at 910; 2 us is what a wait takes where the trace has none to learn it from.
    assert activity_starts(graph, [900, 10])[1] == 912


def test_the_lag_is_learnt_from_waits_that_bound():
    graph = graph_of(waiting(115))
    assert activity_starts(graph, [900, 10])[1] == 915


def test_a_wait_that_the_times_contradict_is_left_out():
    assert graph_of(waiting(60)).recorded_waits == 0


def test_a_call_waits_for_the_recorded_stream():
    """Both streams end within the call; the record says that it was for the one that ended first."""
    builder = TraceBuilder().kernel("short", 10, 40, launch=0).call("cudaEventRecord", 6, 1)
    record = correlation(builder)
    builder.kernel("long", 20, 60, launch=8, stream=9).call("cudaEventSynchronize", 20, 63)
    sync(
        builder,
        "Event Sync",
        20,
        correlation=correlation(builder),
        wait_on_stream=7,
        wait_on_cuda_event_record_corr_id=record,
    )
    builder.op("aten::add", 84, 8).kernel("add", 94, 5, launch=84)
    graph = graph_of(builder)
    assert (graph.recorded_waits, graph.inferred_waits) == (1, 0)
    assert activity_starts(graph, [40, 900, 5])[2] < 100
    assert activity_starts(graph, [900, 60, 5])[2] > 900


def test_without_a_record_the_wait_is_a_guess():
    builder = TraceBuilder().kernel("short", 10, 40, launch=0).call("cudaStreamSynchronize", 20, 34)
    graph = graph_of(builder)
    assert (graph.recorded_waits, graph.inferred_waits) == (0, 1)


def test_two_gpus_in_one_trace_share_stream_numbers():
    builder = waiting(500).kernel("other", 600, 10, launch=590, device=1)
    assert graph_of(builder).recorded_waits == 0
