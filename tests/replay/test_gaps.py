"""Idle gaps of several GPUs, worked out by hand; times in nanoseconds."""

import numpy as np
import polars as pl

from tracekit.analysis.idle import NO_KERNEL, Windows, find_gaps


def test_gaps_of_many_windows_of_two_gpus_are_in_order_of_time():
    """Each GPU is busy for 10 from 100, 200, ... on, the second one 5 later; windows of both alternate."""
    steps = np.arange(1, 101)
    lane = np.tile([0, 1], steps.size)
    start = np.repeat(100 * steps, 2) + 5 * lane
    table = pl.DataFrame({"begin_ns": np.repeat(100 * steps - 90, 2), "end_ns": np.repeat(100 * steps + 10, 2)})
    gaps = find_gaps(start, start + 10, Windows(table, lane, lane))
    for gpu, windows in ((0, np.arange(0, 200, 2)), (1, np.arange(1, 200, 2))):
        mine = gpu == gaps.window % 2
        assert gaps.window[mine].tolist() == windows.tolist()
        assert gaps.kernel[mine].tolist() == windows.tolist()
        assert gaps.end_ns[mine].tolist() == start[windows].tolist()
    assert gaps.dur_ns[gaps.window % 2 == 0].tolist() == [90] * 100
    assert gaps.dur_ns[gaps.window % 2 == 1].tolist() == [95] + [90] * 99


def test_the_time_behind_the_last_kernel_has_no_kernel_that_ends_it():
    one = np.zeros(1, dtype=np.int64)
    windows = Windows(pl.DataFrame({"begin_ns": [0], "end_ns": [100]}), one, one)
    gaps = find_gaps(np.array([20]), np.array([30]), windows)
    assert [*zip(gaps.begin_ns, gaps.end_ns, gaps.kernel, strict=True)] == [(0, 20, 0), (30, 100, NO_KERNEL)]
