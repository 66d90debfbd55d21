"""The clock that a step keeps under its board's power limit."""

from math import log
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from predictors import load_gpu
from predictors.power import load_power_law
from tests.codes import find_message, list_codes
from tests.prediction.test_energy import build_trace
from tracekit.prediction.clock import (
    change_clock,
    compute_demands_us,
    compute_source_slowdown,
    compute_target_slowdown,
    regulates_clock,
    spread_slowdown,
)
from tracekit.testing import A100, TraceBuilder
from tracekit.trace import Trace

H100 = load_gpu("h100-sxm")
LAW = load_power_law()


def tabulate_kernels(**columns: list[object]) -> pl.DataFrame:
    """Tabulate kernels of one second's product in bf16, with other columns where they are given."""
    plain = {
        "family": ["gemm"], "dtype": ["bf16"], "runs_as": [None], "limiter": ["compute"], "time_us": [100.0],
        "low_us": [90.0], "high_us": [120.0], "demand_w": [980.0],
    }  # fmt: skip
    count = max((len(values) for values in columns.values()), default=1)
    table = {name: values * count for name, values in plain.items()} | columns
    return pl.DataFrame(table, schema_overrides={"runs_as": pl.String, "time_us": pl.Float64, "demand_w": pl.Float64})


@pytest.mark.parametrize(
    ("gpu", "regulates"),
    [("h100-sxm", True), ("h200-sxm", True), ("b200", True), ("gb200", True), ("a100-sxm-80gb", False),
     ("h100-pcie", False), ("h20", False), ("mi300x", False), ("l40s", False), ("rtx-pro-6000-server", False)],
)  # fmt: skip
def test_gpus_whose_clock_is_known(gpu: str, regulates: bool) -> None:
    assert regulates_clock(load_gpu(gpu)) == regulates


def test_a_demand_worked_out_by_hand() -> None:
    """980 W of 700 W for 100 us, above an idle power of 133 W: 1.21 times the limit."""
    assert compute_demands_us(tabulate_kernels(), H100) == pytest.approx([100 * (980 - 133) / 700])


def test_a_step_within_the_limit_keeps_its_clock() -> None:
    assert compute_target_slowdown(demand_us=80.0, step_us=100.0) == 1
    assert compute_source_slowdown(demand_us=80.0, step_us=100.0) == 1
    assert compute_target_slowdown(0.0, 0.0) == compute_source_slowdown(0.0, 0.0) == 1


@given(demand=st.floats(0.9, 1.5))
def test_the_measured_slowdown_is_the_predicted_one(demand: float) -> None:
    """A step that demands so much at the boost clock seems to demand less as it ran, and tells the same slowdown."""
    slowdown = compute_target_slowdown(100 * demand, 100.0)
    told = compute_source_slowdown(100 * demand / slowdown, 100.0)
    assert told == pytest.approx(slowdown, rel=1e-6)


def test_vector_units_demand_little_more_than_the_limit() -> None:
    kernels = tabulate_kernels(dtype=["fp32", "bf16"], runs_as=[None, "fp32"], demand_w=[1200.0, 700.0])
    assert compute_demands_us(kernels, H100) == pytest.approx([115 - 19, 100 - 19])


def test_only_what_matrix_units_limit_is_slowed() -> None:
    kernels = tabulate_kernels(
        family=["gemm", "gemm", "gemm", "norm", "collective"],
        limiter=["compute", "memory", "compute", "compute", "compute"],
        dtype=["bf16", "bf16", "fp32", "bf16", "bf16"],
        time_us=[1e-3] * 5,
    )
    assert spread_slowdown(kernels, 1.1) == pytest.approx([1.1, 1, 1, 1, 1], rel=1e-5)


def test_long_kernels_are_slowed_less() -> None:
    """The laws of long kernels were fitted to runs that were throttled already."""
    kernels = tabulate_kernels(time_us=[2000.0, 6000.0])
    assert spread_slowdown(kernels, 1.2) == pytest.approx([1.1, 1.05])


def test_another_clock_keeps_the_work_and_widens_the_interval() -> None:
    before = tabulate_kernels()
    after = change_clock(before, spread_slowdown(before, 1.2), H100)
    assert compute_demands_us(after, H100) == pytest.approx(compute_demands_us(before, H100))
    ratio = after["time_us"][0] / before["time_us"][0]
    assert log(after["high_us"][0] / after["time_us"][0]) == pytest.approx((log(1.2) ** 2 + log(ratio) ** 2) ** 0.5)
    assert after["low_us"][0] >= before["low_us"][0]


def test_products_that_fill_a_step_take_longer_than_in_a_benchmark() -> None:
    """The factor on the whole step follows from the kernels' draw; the note says so."""
    trace = build_short_products(gap_us=0)
    predicted = tk.predict(trace, gpu="h100-sxm")["h100-sxm"]
    told = find_message(predicted.notes, "clock-lowered").values
    assert float(str(told["demand"])) > 700
    assert 3 < float(str(told["longer_pct"])) < 25
    alone = tk.predict(build_short_products(gap_us=2000), gpu="h100-sxm")["h100-sxm"]
    assert "clock-lowered" not in list_codes(alone.notes)
    assert predicted.kernels["time_us"].sum() > 1.03 * alone.kernels["time_us"].sum()


def test_the_own_gpu_and_gpus_of_unknown_clock_keep_their_times() -> None:
    for gpu in ("a100-sxm-80gb", "l40s"):
        assert "clock-lowered" not in list_codes(tk.predict(build_trace(), gpu=gpu)[gpu].notes)


H100_DEVICE = A100 | {"name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "numSms": 132}


def test_an_own_gpu_that_lowers_its_clock_was_measured_at_it() -> None:
    """Products of 250 us one after the other: 412 us before the first and behind the last."""
    predicted = tk.predict(build_short_products(gap_us=0, device=H100_DEVICE, duration_us=250), gpu="h100-sxm")
    assert predicted["h100-sxm"].step.step_time_us == 40 * 250 + 412
    assert "clock-lowered" not in list_codes(predicted["h100-sxm"].notes)


def test_two_gpus_of_one_limit_cancel() -> None:
    """From an H100 that lowered its clock to an H200 that does likewise, products keep their time."""
    trace = build_short_products(gap_us=0, device=H100_DEVICE, duration_us=210)
    predicted = tk.predict(trace, gpu="h200-sxm")["h200-sxm"]
    assert predicted.kernels["time_us"].sum() == pytest.approx(210 * 40, rel=0.06)


def build_short_products(gap_us: float, device: dict[str, Any] = A100, duration_us: float = 500) -> Trace:
    """Build 40 products of 4,096 x 4,096 x 4,096 one after the other, or with gaps."""
    builder = TraceBuilder(device)
    for number in range(40):
        at = number * (duration_us + gap_us)
        launch = at - 15 if gap_us else 10 * number
        builder.op("aten::mm", launch - 2, 8, dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
        builder.kernel("ampere_bf16_s16816gemm", at + 400, duration_us, launch=launch)
    start, end = launch + 10, 39 * (duration_us + gap_us) + duration_us + 410
    return builder.call("cudaDeviceSynchronize", start, end - start).load()
