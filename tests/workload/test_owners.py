"""Every activity finds the call, the op and the step that launched it."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.testing import MAIN_THREAD, TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.owners import find_innermost_ops


def test_the_innermost_op_owns_the_launch():
    builder = (
        TraceBuilder()
        .op("aten::linear", 0, 100)
        .op("aten::addmm", 5, 80)
        .op("aten::expand", 6, 4)
        .kernel("gemm", 60, 30, launch=40)
    )
    assert build_kernel_table(builder.load().rank())["op"].to_list() == ["aten::addmm"]


def test_ops_of_other_threads_own_nothing():
    builder = TraceBuilder().op("aten::mm", 0, 100, thread=7).kernel("gemm", 60, 30, launch=40, thread=MAIN_THREAD)
    assert build_kernel_table(builder.load().rank())["op"].to_list() == [None]


def test_a_child_that_ends_just_after_its_parent_still_owns():
    builder = TraceBuilder().op("aten::linear", 0, 50).op("aten::mm", 5, 45.001).kernel("gemm", 60, 30, launch=49.5)
    assert build_kernel_table(builder.load().rank())["op"].to_list() == ["aten::mm"]


def test_launches_are_joined_on_correlation_not_on_time():
    builder = TraceBuilder().kernel("second", 300, 10, launch=20).kernel("first", 100, 10, launch=40)
    kernels = build_kernel_table(builder.load().rank()).sort("name")
    assert kernels["call"].to_list() == [1, 0]


def test_work_from_before_the_trace_has_no_call():
    kernels = build_kernel_table(TraceBuilder().kernel("old", 5, 10).kernel("new", 30, 10, launch=20).load().rank())
    assert kernels["call"].to_list() == [None, 0]


def test_kernels_belong_to_the_step_that_launched_them():
    builder = (
        TraceBuilder()
        .step(7, 0, 100)
        .step(8, 100, 100)
        .kernel("late", 150, 40, launch=90)  # runs during step 8
        .kernel("next", 190, 40, launch=110)
        .kernel("after", 300, 5, launch=290)
        .kernel("before", 10, 5)
    )
    steps = dict(build_kernel_table(builder.load().rank()).select("name", "step").iter_rows())
    assert steps == {"late": 7, "next": 8, "after": None, "before": None}


def test_a_trace_without_steps_is_one_step():
    kernels = build_kernel_table(TraceBuilder().kernel("old", 5, 10).kernel("new", 30, 10, launch=20).load().rank())
    assert kernels["step"].to_list() == [0, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 3)), min_size=1, max_size=12))
def test_innermost_is_the_latest_started_op_that_is_still_open(spans):
    """Against the definition, on properly nested ops."""
    nested = []
    for start, dur, thread in spans:
        fits = all(
            thread != t or start + dur <= s or s + d <= start or (s <= start and start + dur <= s + d)
            for s, d, t in nested
        )
        if fits:
            nested.append((start, dur, thread))
    builder = TraceBuilder().kernel("k", 0.5, 1)
    for start, dur, thread in nested:
        builder.op(f"op {start} {dur} {thread}", start, dur, thread=thread)
    for thread in (1, 2, 3):
        for time in range(0, 95, 3):
            builder.call("cudaEventQuery", time + 0.5, 0.1, thread=thread)
    trace = builder.load().rank()
    for call, owner in zip(trace.calls.iter_rows(named=True), find_innermost_ops(trace.calls, trace.ops), strict=True):
        time = (call["ts_ns"] - trace.calls["ts_ns"].min()) / 1000 + 0.5
        open_ops = [(s, -d) for s, d, t in nested if t == call["tid"] and s <= time <= s + d]
        expected = max(open_ops, default=None)
        found = None if owner is None else trace.ops["name"][owner]
        assert found == (None if expected is None else f"op {expected[0]} {-expected[1]} {call['tid']}")


SPANS = {"ts_ns": pl.Int64, "dur_ns": pl.Int64, "pid": pl.Int64, "tid": pl.Int64}


def test_a_call_without_a_start_lies_in_no_op():
    """As the forward op of a node of the backward pass that has none; the others keep their ops."""
    ops = pl.DataFrame([(0, 100, 1, 1), (None, 5, 1, 1), (10, 20, 1, 1)], schema=SPANS, orient="row")
    calls = pl.DataFrame(
        [(50, 0, 1, 1), (None, 0, None, None), (12, None, 1, 1), (None, 0, 1, 1)], schema=SPANS, orient="row"
    )
    assert find_innermost_ops(calls, ops).to_list() == [0, None, 2, None]
    assert find_innermost_ops(calls.filter(pl.col("ts_ns").is_null()), ops).to_list() == [None, None]
