"""Kernels that beat their bound are listed, never clamped. The builder's GPU is an A100: 2039 GB/s, 40 MiB of L2."""

import pytest

import tracekit as tk
from tracekit.testing import TraceBuilder

SUM = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def over_bound(elements: int, dur_us: float) -> tuple:
    dims = [[elements], [elements], []]
    builder = TraceBuilder().op("aten::add", 0, 10, dims=dims, types=["float", "float", "Scalar"])
    return tk.report(builder.kernel(SUM, 20, dur_us, launch=1).load()).over_bound


def test_a_kernel_that_moves_more_than_the_memory_can():
    """1.2 GB take 589 µs; in 300 µs they would be 196 % of the roof."""
    (row,) = over_bound(100_000_000, 300)
    assert (row.op, row.family, row.cached) == ("aten::add", "elementwise", False)
    assert row.utilization == pytest.approx(100 * 1.2e9 / 2039e3 / 300, rel=0.01)


def test_what_may_partly_be_in_the_cache_is_marked():
    """120 MB are less than four times the cache."""
    (row,) = over_bound(10_000_000, 40)
    assert row.cached


def test_a_clock_too_coarse_for_a_kernel_says_nothing():
    assert over_bound(1_000, 0) == ()


def test_kernels_at_their_bound_are_not_listed():
    assert over_bound(100_000_000, 600) == ()
