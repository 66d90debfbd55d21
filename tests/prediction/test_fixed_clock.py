"""Targets held at a lower clock, and traces whose GPU's clock is told."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from predictors import load_gpu
from predictors.power import load_power_law
from tests.codes import find_message, has_code, list_codes
from tests.prediction.test_sustained_clock import H100_DEVICE, build_short_products
from tracekit.errors import RequestError
from tracekit.prediction.clock import apply_clock, get_highest_mhz, parse_clock, parse_source_clock, resolve_clock
from tracekit.testing import A100

SAMPLE = Path("sample_traces/synthetic_transformer_train.json.gz")
H100 = load_gpu("h100-sxm")


@pytest.mark.parametrize(
    ("text", "mhz"),
    [("1200MHz", 1200), (" 1200 mhz ", 1200), ("1.2GHz", 1200), ("1350.5", 1350.5), (990, 990), (None, None)],
)
def test_a_clock_is_megahertz(text: str | float | None, mhz: float | None) -> None:
    assert parse_clock(text) == mhz


@pytest.mark.parametrize("text", ["", "MHz", "0", "-1", "nan", "inf", "1e3", "1200 kHz", "١٢٠٠", "12MHz3", True, [1]])
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(RequestError, check=has_code("clock-malformed")):
        parse_clock(text)  # type: ignore[arg-type]


def test_a_clock_lower_than_a_driver_allows_is_refused() -> None:
    assert get_highest_mhz(H100) == 1980
    for check in (lambda: resolve_clock(100.0, H100), lambda: parse_source_clock(100, H100)):
        with pytest.raises(RequestError, check=has_code("clock-too-low")):
            check()
    assert resolve_clock(990.0, H100) == 0.5
    assert resolve_clock(3000.0, H100) == 1


def test_half_the_clock_takes_products_twice_the_time_and_copies_none() -> None:
    builder = tk.testing.TraceBuilder(A100)
    builder.op("aten::mm", 0, 8, dims=[[8192, 8192]] * 2, types=["c10::BFloat16"] * 2)
    builder.kernel("ampere_bf16_s16816gemm", 30, 4200, launch=4)
    builder.op("aten::add", 10, 8, dims=[[1 << 28], [1 << 28]], types=["c10::BFloat16"] * 2)
    builder.kernel("at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add", 4300, 950, launch=14)
    trace = builder.call("cudaDeviceSynchronize", 30, 5300).load()
    free, held = (tk.predict(trace, gpu="l40s", clock=clock)["l40s"] for clock in (None, 1260))
    ratio = (held.kernels["time_us"] / free.kernels["time_us"]).to_list()
    assert 1.8 < ratio[0] <= 2.01  # at its own clock power limits the product a little
    assert 1 <= ratio[1] < 1.1
    assert held.low_us < held.step.step_time_us < held.high_us
    assert find_message(held.notes, "clock-fixed").values["highest"] == 2520


def test_a_clock_is_wrong_by_a_third_of_what_it_changes() -> None:
    """A product of twice the time may take 2 ** 1.3 to 2 ** 0.7 times as long; collectives wait for their links."""
    times = pl.DataFrame({"family": ["gemm", "collective"], "power_w": [500.0] * 2, "demand_w": [500.0] * 2})
    times = times.with_columns(time_us=100.0, low_us=100.0, high_us=100.0)
    held = apply_clock(times, np.array([2.0, 2.0]), 0.5, H100)
    assert held["time_us"].to_list() == [200, 100]
    assert held["low_us"].to_list() == pytest.approx([100 * 2**0.7, 100])
    assert held["high_us"].to_list() == pytest.approx([100 * 2**1.3, 100])


def test_a_lower_clock_draws_less_and_makes_no_step_shorter() -> None:
    trace = tk.load(SAMPLE)
    clocks = (1980, 1600, 1200, 800, 400)
    steps = [tk.predict(trace, gpu="h100-sxm", clock=clock, host="same")["h100-sxm"] for clock in clocks]
    times = [one.step.step_time_us for one in steps]
    watts = [one.energy.power_w for one in steps]
    assert times == sorted(times)
    assert watts == sorted(watts, reverse=True)
    assert "clock-fixed-without-effect" in list_codes(steps[0].notes)


def test_the_traces_own_gpu_at_its_own_clock_keeps_the_measured_step() -> None:
    trace = tk.load(SAMPLE)
    own = tk.predict(trace, gpu="a100-sxm-80gb", clock=1410)
    assert own["a100-sxm-80gb"].step.step_time_us == own.run.measured_step.step_time_us
    assert tk.predict(trace, gpu="a100-sxm-80gb", clock=1000)["a100-sxm-80gb"].speedup < 1


def test_power_above_idle_falls_with_clock_and_voltage_and_then_with_the_clock() -> None:
    law = load_power_law()
    assert law.compute_power_fraction(1.0) == 1
    at_knee = law.compute_power_fraction(law.clock_knee)
    assert at_knee == pytest.approx(law.clock_knee**law.clock_exponent)
    assert law.compute_power_fraction(law.clock_knee / 2) == pytest.approx(at_knee / 2)


def test_the_clock_that_the_traces_gpu_had_is_taken_out_of_its_products() -> None:
    """An H100 at 1,650 of 1,980 MHz: at its full clock its products would take 1.2 times less."""
    trace = build_short_products(gap_us=2000, device=H100_DEVICE, duration_us=250)
    plain, told = (
        tk.predict(trace, gpu="b200", source_clock=clock)["b200"].kernels["time_us"].sum()
        for clock in (None, "1650MHz")
    )
    assert told / plain == pytest.approx(1 / (1 + 0.2 / (1 + 250 / 2000)), rel=0.02)
