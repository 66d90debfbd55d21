"""Traces of odd shapes: memory and work grow with the trace, not with its square."""

import tracemalloc

import pytest

from tracekit.analysis import idle
from tracekit.replay.engine import build_measured_timeline
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder


def measure_stream_idle_peak(streams: int) -> int:
    """Return the peak memory of explaining the idle time of so many streams with a kernel each."""
    builder = TraceBuilder()
    for number in range(streams):
        builder.kernel("gemm", 10 * number + 9, 8, launch=10 * number, stream=7 + number)
    run = prepare_run(builder.load())
    timeline = build_measured_timeline(run.graph)
    tracemalloc.start()
    idle.attribute_stream_idle_time(run, timeline)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_the_idle_time_of_many_streams_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream's gap leads back over the launches of all before: a quarter million segments for 500 streams."""
    monkeypatch.setattr(idle, "MAX_SEGMENTS_AT_ONCE", 1 << 10)
    measure_stream_idle_peak(10)
    assert measure_stream_idle_peak(500) < 3 * measure_stream_idle_peak(250)
    assert measure_stream_idle_peak(500) < 8_000_000
