"""Kernels that start before the one before them on their stream is over; microseconds."""

import numpy as np
import pytest

from tracekit.replay.engine import replay
from tracekit.reporting.sections import communication
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import A100, TraceBuilder

HOPPER = A100 | {"computeMajor": 9}
DEPENDENT_LAUNCH = "cudaLaunchKernelExC"
"""The call that may ask for programmatic dependent launch."""


def overlapping(end: float = 206, before: str = "gemm") -> MeasuredRun:
    """A kernel from 10 to 200, and one that started at 30, ended at ``end``, and had another after it."""
    builder = TraceBuilder(HOPPER).step(1, 0, 300).kernel(before, 10, 190, launch=0)
    builder.kernel("norm", 30, end - 30, launch=10, call=DEPENDENT_LAUNCH).kernel("next", 208, 10, launch=20)
    return prepare_run(builder.load())


def test_waiting_for_the_one_before_is_no_work_and_derived_anew():
    run = overlapping()
    assert (run.kernels["dur_ns"] / 1000).to_list() == [190, 6, 10]
    assert (run.kernels["wait_ns"] / 1000).to_list() == [0, 170, 0]
    assert run.self_replay.derived_wait_us == 170
    assert run.self_replay.error_pct == pytest.approx(0, abs=0.5)
    shorter = replay(run.graph, (np.array([90, 6, 10]) * 1000).astype(np.int64))
    assert (shorter.activity_end_ns / 1000).tolist()[:2] == [100, 107]


def test_kernels_that_end_together_ran_side_by_side():
    assert (overlapping(end=200).kernels["dur_ns"] / 1000).to_list() == [190, 170, 10]


def test_a_chain_of_early_starts():
    """Six kernels of 50, each 2 before the one before it is over: each takes 48 more."""
    builder = TraceBuilder(HOPPER).step(1, 0, 400)
    for i in range(6):
        builder.kernel("gemm", 8 + 48 * i, 50, launch=5 * i)
    run = prepare_run(builder.load())
    assert (run.kernels["dur_ns"] / 1000).to_list() == [50] + [48] * 5
    assert (replay(run.graph).activity_end_ns / 1000).tolist() == [58 + 48 * i for i in range(6)]


def test_what_waits_for_a_collective_doesnt_hide_it():
    run = overlapping(before="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)")
    [collective] = communication.build_collective_times(run.kernels, steps=1)
    assert collective.exposed_us == 190


def test_waits_are_those_of_the_measured_steps():
    """The host waits 5,000 in the warm-up step, and 80 in each of the others."""
    builder, now = TraceBuilder(), 0.0
    for step, length in enumerate([5000, 100, 100]):
        builder.step(step, now, length + 40).kernel("gemm", now + 20, length, launch=now + 5)
        builder.call("cudaDeviceSynchronize", now + 40, length - 20)
        now += length + 50
    run = prepare_run(builder.load())
    assert run.self_replay.derived_wait_us == pytest.approx(80, abs=10)
