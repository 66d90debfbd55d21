"""Which marks are steps."""

import polars as pl

from tracekit.replay.run import prepare
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace
from tracekit.workload import steps


def marked(*, launches: dict[int, float], marks: tuple[tuple[int, float, float], ...]) -> Trace:
    """Steps by number, start and length, and a kernel launched at each of some times."""
    builder = TraceBuilder()
    for number, start, dur in marks:
        builder.step(number, start, dur)
    for launch, start in launches.items():
        builder.kernel("k", start, 10, launch=launch)
    return builder.load()


def numbers(trace: Trace) -> list[int]:
    return steps.find(trace.ranks[0])["step"].to_list()


def test_a_mark_in_which_nothing_was_launched_is_no_step() -> None:
    trace = marked(launches={10: 20, 110: 120}, marks=((3, 0, 100), (4, 100, 100), (5, 200, 1)))
    assert numbers(trace) == [3, 4]


def test_marks_that_all_launch_are_all_steps() -> None:
    trace = marked(launches={10: 20, 110: 120, 201: 300}, marks=((3, 0, 100), (4, 100, 100), (5, 200, 100)))
    assert numbers(trace) == [3, 4, 5]


def test_marks_stay_where_no_launch_lies_in_any() -> None:
    trace = marked(launches={900: 920}, marks=((3, 0, 100), (4, 100, 100)))
    assert numbers(trace) == [3, 4]
    assert steps.find(trace.ranks[0]).schema["start_ns"] == pl.Int64


def test_a_step_around_others_takes_nothing_from_them():
    builder = TraceBuilder().step(50, 0, 200).step(1, 0, 100).step(2, 100, 100)
    builder.kernel("gemm", 20, 10, launch=10).kernel("gemm", 120, 10, launch=110)
    found = [steps.find(builder.load().rank())["step"].to_list() for _ in range(5)]
    assert found == [[1, 2]] * 5


def test_a_step_number_beyond_integers_is_cut():
    trace = TraceBuilder().annotation("ProfilerStep#" + "9" * 20, 0, 100).kernel("gemm", 20, 10, launch=10).load()
    assert steps.find(trace.rank())["step"].to_list() == [int("9" * 18)]


def test_a_single_mark_of_number_0_is_a_mark():
    builder = TraceBuilder().kernel("before", 20, 10, launch=10).step(0, 100, 100).kernel("within", 120, 10, launch=110)
    kernels = prepare(builder.load()).kernels
    assert dict(kernels.select("name", "step").iter_rows()) == {"before": None, "within": 0}
    assert not steps.is_whole_trace(builder.load().rank())
