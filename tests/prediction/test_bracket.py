"""The interval of a kernel allows for what its bracket leaves open."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tracekit.parallelism.unknown_work import apply_work_bounds, widen_intervals


def by_bytes(kernels: pl.DataFrame) -> pl.DataFrame:
    """A floor of 2 µs and 1 µs per kilobyte of each product of a batch, give or take a tenth."""
    time = 2 + kernels["bytes"] * kernels["batch"].fill_null(1.0) / 1000
    return pl.DataFrame({"time_us": time, "low_us": 0.9 * time, "high_us": 1.1 * time})


def with_bracket(kernels: pl.DataFrame) -> pl.DataFrame:
    """Times by bytes, the bracket in their interval."""
    low, high = apply_work_bounds(kernels)
    return widen_intervals(by_bytes(kernels), low["row"], (by_bytes(low)["time_us"], by_bytes(high)["time_us"]))


def test_both_ends_of_the_bracket_are_predicted():
    kernels = pl.DataFrame(
        {
            "bytes": [8000, 8000],
            "batch": None,
            "host_bytes": None,
            "serial_clocks": [None, 100],
            "work_low": [None, 0.25],
            "work_high": [None, 2.0],
        },
        schema_overrides={
            "batch": pl.Float64,
            "host_bytes": pl.Float64,
            "work_low": pl.Float64,
            "work_high": pl.Float64,
        },
    )
    assert [end["serial_clocks"].to_list() for end in apply_work_bounds(kernels)] == [[25], [200]]
    times = with_bracket(kernels)
    assert times["time_us"].to_list() == [10, 10]
    assert times["low_us"].to_list() == [9, 0.9 * 4]  # 2 kB: 4 µs
    assert times["high_us"].to_list() == [11, 1.1 * 18]  # 16 kB: 18 µs


def test_bounds_on_one_side_leave_the_other_end():
    """The likely work is the most, or the least, that it may be: that end of the interval stays."""
    times = pl.DataFrame({"time_us": [100.0] * 2, "low_us": [90.0] * 2, "high_us": [120.0] * 2})
    bounds = (pl.Series([50.0, 150.0]), pl.Series([80.0, 300.0]))
    found = widen_intervals(times, pl.Series([0, 1], dtype=pl.UInt32), bounds)
    assert found["low_us"].to_list() == [45, 90]
    assert found["high_us"].to_list() == [120, 360]


@given(st.lists(st.tuples(st.floats(1, 1e9), st.floats(0.001, 1), st.floats(1, 4)), min_size=1, max_size=20))
def test_intervals_only_grow(rows):
    kernels = pl.DataFrame(rows, schema=["bytes", "work_low", "work_high"], orient="row").with_columns(
        batch=pl.lit(None, pl.Float64), host_bytes=pl.lit(None, pl.Float64), serial_clocks=pl.lit(None, pl.Int64)
    )
    before, after = by_bytes(kernels), with_bracket(kernels)
    assert (after["low_us"] <= before["low_us"]).all()
    assert (after["high_us"] >= before["high_us"]).all()
    assert (after["time_us"] == before["time_us"]).all()
