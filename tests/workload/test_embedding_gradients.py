"""Gradients of embedding tables: sorted indices, their segments, and the row that is drawn most often."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors import load_gpu, predict
from tracekit.models.lookups import ZipfPattern, get_distribution
from tracekit.workload.ops.embedding import LISTING_CLOCKS, SUMMING_CLOCKS, compute_gradient_work
from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.signature import Signature

ROWS, INDICES, WIDTH = 100_000, 163_840, 64
DENSE, BAG = "aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward"


def make_signature(op: str = DENSE, rows: str = str(ROWS), indices: int = INDICES) -> Signature:
    if op == DENSE:
        return Signature(
            op,
            [[indices, WIDTH], [indices], [], [], []],
            ["float", "long int", "Scalar", "Scalar", "Scalar"],
            ["", "", rows, "-1", "False"],
            [],
        )
    dims = [[indices // 20, WIDTH], [indices], [indices], [indices // 20], [indices // 20], [], [], [], [], []]
    types = ["float", *["long int"] * 4, *["Scalar"] * 5]
    return Signature(op, dims, types, ["", "", "", "", "", rows, "False", "0", "", "-1"], [])


def compute(kernel: str, signature: Signature | None = None) -> Columns:
    columns = compute_gradient_work(signature or make_signature(), kernel, 4)
    assert columns is not None
    return columns


@pytest.mark.parametrize(("rows", "alpha"), [(50, 0.0), (50, 1.05), (20_000, 0.0), (20_000, 1.05), (20_000, 1.2)])
def test_expected_draws_equal_drawn_ones(rows: int, alpha: float) -> None:
    chosen, draws, size = np.random.default_rng(0), 30_000, 10
    weights = np.arange(1.0, rows + 1) ** -alpha
    counts = chosen.multinomial(draws, weights / weights.sum(), size=5)
    expected = get_distribution(rows, alpha)
    assert expected.expect_unique(draws) == pytest.approx((counts > 0).sum(1).mean(), rel=0.01)
    assert expected.expect_parts(draws, size) == pytest.approx(np.ceil(counts / size).sum(1).mean(), rel=0.1)
    assert expected.expect_most_frequent(draws) == pytest.approx(counts[:, 0].mean(), rel=0.1, abs=0.5)


def test_draws_of_few_rows_by_hand() -> None:
    """25 draws of one row: two and a half parts of 10 and, in the mean, 0.45 for the last; 10 of 1,000 rows: one."""
    assert get_distribution(1, 0.0).expect_parts(25, 10) == pytest.approx(2.95)
    assert get_distribution(1, 0.0).expect_most_frequent(25) == pytest.approx(25)
    assert get_distribution(1000, 0.0).expect_most_frequent(10) == 1
    assert get_distribution(1000, 0.0).expect_most_frequent(0.5) == 0.5


def test_two_even_draws_of_two_rows_give_one_and_a_half_rows() -> None:
    assert get_distribution(2, 0.0).expect_unique(2) == pytest.approx(1.5)


def test_shares_of_few_rows_by_hand() -> None:
    # Shares of 6, 3 and 2 elevenths.
    assert get_distribution(3, 1.0).expect_most_frequent(110) == pytest.approx(60)


@given(
    rows=st.integers(1, 10**10),
    draws=st.integers(1, 10**9),
    alpha=st.floats(0, 3),
    size=st.integers(1, 100),
)
def test_expectations_keep_their_order(rows: int, draws: int, alpha: float, size: int) -> None:
    drawn = get_distribution(rows, alpha)
    unique, parts, most = drawn.expect_unique(draws), drawn.expect_parts(draws, size), drawn.expect_most_frequent(draws)
    assert 0 < unique <= min(rows, draws) * (1 + 1e-6)
    assert unique * (1 - 1e-6) <= parts <= draws
    assert draws / rows * (1 - 1e-6) <= most <= draws * (1 + 1e-6)


def test_sorting_passes_read_and_write_indices_with_their_positions() -> None:
    assert compute("DeviceRadixSortOnesweepKernel")["bytes"] == INDICES * (8 + 8) * 2
    assert compute("DeviceRadixSortHistogramKernel")["bytes"] == INDICES * 8


def test_parts_are_summed_from_the_gradients_rows() -> None:
    drawn = get_distribution(ROWS)
    parts, segments = round(drawn.expect_parts(INDICES, 10)), round(drawn.expect_unique(INDICES))
    first, second = compute("compute_grad_weight"), compute("sum_and_scatter")
    assert first["bytes"] == 4 * WIDTH * (INDICES + parts) + 2 * 8 * INDICES
    assert second["bytes"] == 4 * WIDTH * (parts + segments)
    assert (first["rows"], second["rows"], second["cols"]) == (INDICES, parts, WIDTH)


def test_one_thread_takes_all_parts_of_the_row_that_is_drawn_most_often() -> None:
    longest = math.ceil(round(get_distribution(ROWS).expect_most_frequent(INDICES)) / 10)
    assert compute("sum_and_scatter")["serial_clocks"] == longest * SUMMING_CLOCKS
    assert compute("krn_partial_segment_offset")["serial_clocks"] == longest * LISTING_CLOCKS
    assert "serial_clocks" not in compute("compute_grad_weight")


def test_an_unknown_distribution_is_a_bracket() -> None:
    columns = compute("sum_and_scatter")
    low, high = columns["work_low"], columns["work_high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low < 1 < high
    assert "work_low" not in compute("DeviceRadixSortOnesweepKernel")


@pytest.mark.parametrize("kernel", ["sum_and_scatter", "DeviceRadixSortOnesweepKernel", "krn_partials_per_segment"])
def test_bags_have_as_many_indices_as_they_list(kernel: str) -> None:
    assert compute(kernel, make_signature(BAG)) == compute(kernel)


def test_a_table_of_unknown_size_counts_as_one_of_as_many_rows_as_indices() -> None:
    assert compute("sum_and_scatter", make_signature(rows="")) == compute(
        "sum_and_scatter", make_signature(rows=str(INDICES))
    )


def test_counts_that_no_gpu_holds_are_no_error() -> None:
    signature = make_signature(rows=str(10**40), indices=10**30)
    assert compute_gradient_work(signature, "sum_and_scatter", 4) is not None
    assert compute_gradient_work(make_signature(rows=str(-5)), "sum_and_scatter", 4) is not None


@pytest.mark.parametrize(
    ("signature", "kernel"),
    [
        (make_signature(), "embedding_backward_feature_kernel"),
        (Signature("aten::sort", [[8]], ["float"], [], []), "DeviceRadixSortOnesweepKernel"),
        (Signature(DENSE, [], [], [], []), "sum_and_scatter"),
        (make_signature(indices=0), "sum_and_scatter"),
        (Signature(DENSE, [[], [8]], ["float", "long int"], [], []), "sum_and_scatter"),
    ],
)
def test_other_kernels_and_ops_have_no_part_in_it(signature: Signature, kernel: str) -> None:
    assert compute_gradient_work(signature, kernel, 4) is None


def test_clocks_of_one_thread_bound_the_time_whatever_the_bandwidth() -> None:
    row = {"family": "embedding", "dtype": "fp32", "rows": 1000, "cols": 64, "bytes": 512_000, "flops": 64_000}
    kernels = pl.DataFrame([row, row | {"serial_clocks": 1_000_000}])
    for name in ("h100-sxm", "a100-sxm-80gb", "mi300x"):
        short, long = predict(kernels, load_gpu(name))["time_us"]
        clock_mhz = load_gpu(name).boost_clock_mhz
        assert short < 50
        assert long >= 0.7 * 1e6 / clock_mhz


@pytest.mark.parametrize("zipf", [0.0, 0.8, 1.5])
def test_a_given_exponent_leaves_no_bracket(zipf: float) -> None:
    columns = compute_gradient_work(make_signature(), "sum_and_scatter", 4, ZipfPattern(zipf))
    assert columns is not None
    drawn = get_distribution(ROWS, zipf)
    assert columns["rows"] == round(drawn.expect_parts(INDICES, 10))
    assert columns["serial_clocks"] == math.ceil(round(drawn.expect_most_frequent(INDICES)) / 10) * SUMMING_CLOCKS
    assert "work_low" not in columns
