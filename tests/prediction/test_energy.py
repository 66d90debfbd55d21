"""Energy of a step, and what a power limit changes."""

import json
from dataclasses import replace
from math import exp, hypot
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import tracekit as tk
from predictors import load_gpu
from predictors.power import load_power_law
from tests.codes import has_code, list_codes
from tracekit.cli.app import app
from tracekit.errors import RequestError
from tracekit.prediction.clock import parse_power_cap, resolve_power_cap
from tracekit.prediction.energy import (
    KernelEnergy,
    average_kernel_energy,
    compute_idle_w,
    estimate_step_energy,
    list_kernel_energies,
)
from tracekit.replay.step_time import StepTime
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

H100 = load_gpu("h100-sxm")
SAMPLE = Path("sample_traces/synthetic_transformer_train.json.gz")
STEP = StepTime(
    step_time_us=10e3, kernel_time_us=8e3, exposed_comm_us=0, waiting_us=0, steps=1, span_us=10e3, mean_us=10e3
)


def build_trace(launches: int = 10) -> Trace:
    """Build large products of 2.2 ms each on the A100 of the builder, launched at once."""
    builder = TraceBuilder()
    for number in range(launches):
        at = 50.0 * number
        builder.op("aten::mm", at, 40, dims=[[8192, 4096], [4096, 8192]], types=["c10::BFloat16", "c10::BFloat16"])
        builder.kernel("ampere_bf16_s16816gemm", 20 + 2200 * number, 2200, launch=at + 10)
    return builder.call("cudaDeviceSynchronize", 50.0 * launches, 2200.0 * launches - 50 * launches + 30).load()


def test_energy_worked_out_by_hand() -> None:
    """133 W for 10 ms, and 400 W more for 8 ms."""
    energy = estimate_step_energy(KernelEnergy(400.0, 0.2), STEP, (9e3, 12e3), H100, 700.0)
    assert compute_idle_w(H100) == 133
    assert energy.joules == pytest.approx(1.33 + 3.2)
    assert energy.power_w == pytest.approx(453)
    assert (energy.low_w, energy.high_w) == pytest.approx((453 * exp(-0.2), 453 * exp(0.2)))


def test_what_kernels_draw_above_idle_power_by_hand() -> None:
    """433 W for 1,000 us are 300 W above idle, 300 mJ; 100 W are less than idle, which no kernel draws less than."""
    kernels = pl.DataFrame({"time_us": [1000.0, 100.0], "power_w": [433.0, 100.0], "bound_us": [500.0, None]})
    drawn_uj, time_ns, unknown_ns = list_kernel_energies(kernels, H100)
    assert drawn_uj.tolist() == [300_000, 0]
    assert time_ns.tolist() == [1_000_000, 100_000]
    assert unknown_ns.tolist() == [0, 100_000]


def test_unknown_work_widens_the_interval_of_power() -> None:
    """3.2 J in 8 ms are 400 W; of half of the time the work is unknown, which adds half of 0.5 as a logarithm."""
    known, half = (average_kernel_energy(3200.0, 8e3, unknown_us, STEP, H100) for unknown_us in (0.0, 4e3))
    assert known.power_w == half.power_w == pytest.approx(400)
    assert half.half_width == pytest.approx(hypot(known.half_width, 0.25))


def test_overlapping_kernels_draw_no_more_than_the_limit() -> None:
    energy = estimate_step_energy(KernelEnergy(5000.0, 0.2), STEP, (10e3, 10e3), H100, 500.0)
    assert energy.power_w == pytest.approx(133 + 0.8 * (500 - 133))
    assert energy.high_joules <= 500 * 10e3 / 1e6


@given(
    above=st.floats(0, 2000),
    half_width=st.floats(0.01, 1),
    busy=st.floats(0, 1),
    ends=st.tuples(st.floats(0.3, 1), st.floats(1, 3)),
)
def test_an_interval_holds_the_estimate_and_stays_within_idle_and_limit(
    above: float, half_width: float, busy: float, ends: tuple[float, float]
) -> None:
    step = replace(STEP, kernel_time_us=busy * STEP.step_time_us)
    low_us, high_us = (end * STEP.step_time_us for end in ends)
    energy = estimate_step_energy(KernelEnergy(above, half_width), step, (low_us, high_us), H100, 700.0)
    assert 133 * low_us <= energy.low_joules * 1e6 * 1.0001
    assert energy.low_joules <= energy.joules <= energy.high_joules <= 700 * high_us / 1e6 * 1.0001
    assert 133 <= energy.low_w <= energy.power_w * 1.0001
    assert energy.power_w <= energy.high_w * 1.0001 <= 700.1


def test_large_products_run_at_the_limit() -> None:
    predicted = tk.predict(build_trace(), gpu="h100-sxm")["h100-sxm"]
    assert predicted.energy.power_w == pytest.approx(700, rel=0.05)
    assert predicted.energy.joules == pytest.approx(700 * predicted.step.step_time_us / 1e6, rel=0.05)


def test_under_a_limit_large_products_take_as_long_as_the_law_says() -> None:
    trace = build_trace()
    free, capped = (tk.predict(trace, gpu="h100-sxm", power_cap=cap)["h100-sxm"] for cap in (None, "500W"))
    law = load_power_law()
    clock = ((500 / 700 - law.idle) / (1 - law.idle)) ** (1 / law.clock_exponent)
    assert capped.kernels["time_us"][0] / free.kernels["time_us"][0] == pytest.approx(1 / clock, rel=0.01)
    assert capped.step.step_time_us > 1.1 * free.step.step_time_us
    assert capped.low_us < capped.step.step_time_us < capped.high_us
    assert capped.energy.power_w <= 500 == capped.energy.limit_w
    assert "power-capped" in list_codes(capped.notes)


def test_a_limit_that_nothing_reaches_changes_nothing() -> None:
    trace = build_trace()
    free, above = (tk.predict(trace, gpu="h100-sxm", power_cap=cap)["h100-sxm"] for cap in (None, 900))
    assert above.step == free.step
    assert above.energy == free.energy
    assert "power-cap-without-effect" in list_codes(above.notes)


def test_a_lower_limit_makes_no_step_shorter() -> None:
    trace = tk.load(SAMPLE)
    steps = [tk.predict(trace, gpu="l40s", power_cap=cap)["l40s"] for cap in (350, 300, 250, 200, 150)]
    times = [one.step.step_time_us for one in steps]
    assert times == sorted(times)
    assert all(one.energy.power_w <= one.energy.limit_w for one in steps)


@pytest.mark.parametrize(
    ("text", "watts"), [("500W", 500), (" 500 w ", 500), ("350.5", 350.5), (400, 400), (None, None)]
)
def test_a_limit_is_watts(text: str | float | None, watts: float | None) -> None:
    assert parse_power_cap(text) == watts


@pytest.mark.parametrize("text", ["", "W", "0", "-1", "nan", "inf", "5e2", "500 kW", "٥٠٠", "500W600W", True, [500]])
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(RequestError, check=has_code("power-cap-malformed")):
        parse_power_cap(text)  # type: ignore[arg-type]


def test_a_limit_lower_than_a_driver_allows_is_refused() -> None:
    with pytest.raises(RequestError, check=has_code("power-cap-too-low")):
        resolve_power_cap(100.0, H100)


def test_the_command_line_answers_in_watts_and_joules(tmp_path: Path) -> None:
    out = tmp_path / "answer.json"
    run = CliRunner().invoke(app, ["predict", str(SAMPLE), "--gpu", "h100-sxm", "--power-cap", "400W", "-o", str(out)])
    assert run.exit_code == 0, run.output
    answer = json.loads(out.read_text())
    energy = answer["targets"][0]["energy"]
    assert energy["limit_w"] == 400
    assert 0 < energy["low_joules"] < energy["joules"] < energy["high_joules"]
    assert "power-capped" in [note["code"] for note in answer["targets"][0]["notes"]]
    refused = CliRunner().invoke(app, ["predict", str(SAMPLE), "--gpu", "h100-sxm", "--power-cap", "4W"])
    assert refused.exit_code == 1
    assert isinstance(refused.exception, RequestError)


def test_an_unknown_gpu_has_no_energy() -> None:
    builder = TraceBuilder(device=None).op("aten::mm", 0, 40)
    unknown, known = tk.report(builder.kernel("gemm", 20, 100, launch=10).load()), tk.report(build_trace())
    assert unknown.source.energy is None
    assert known.source.energy is not None
    assert known.source.energy.limit_w == 400
