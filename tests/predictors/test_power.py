"""What a GPU draws while it runs a kernel, and how far a power limit slows it down."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors import Batch, load_gpu, predict
from predictors.errors import WeightsError
from predictors.power import LAUNCH_US, POWER_FILE, load_power_law
from predictors.training.power import count_readings, fit_cap, fit_draw

LAW = load_power_law()
SHARES = st.floats(0, 1)
TIMES = st.floats(0.1, 1e6)


def draw(compute: float, memory: float, time_us: float) -> float:
    """Draw of one kernel."""
    return float(LAW.compute_draw(*(np.array([one]) for one in (compute, memory, time_us)))[0])


def test_draws_worked_out_by_hand() -> None:
    law = replace(LAW, idle=0.2, running=0.3, compute=1.0, memory=0.4, unknown_work=0.1)
    compute, memory = np.array([0.0, 0.1, np.nan, 1.0]), np.array([0.0, 0.5, np.nan, 0.1])
    time_us = np.array([LAUNCH_US, 1e9, 1e9, 1e9])
    # Half of running; 0.2 + 0.3 + 0.1 + 0.2, of which the bend into the limit takes a little; unknown; at the limit.
    assert law.compute_draw(compute, memory, time_us) == pytest.approx([0.35, 0.8, 0.6, 1.0], rel=0.02)


@given(compute=SHARES, memory=SHARES, time_us=TIMES, more=SHARES)
def test_more_work_never_draws_less_and_never_more_than_the_limit(
    compute: float, memory: float, time_us: float, more: float
) -> None:
    least = draw(compute, memory, time_us)
    assert LAW.idle * 0.999 <= least <= 1
    assert least <= draw(min(compute + more, 1), memory, time_us) + 1e-9
    assert least <= draw(compute, min(memory + more, 1), time_us) + 1e-9
    assert least <= draw(compute, memory, time_us * (1 + more)) + 1e-9


@given(drawn=st.floats(0.3, 1), cap=st.floats(0.3, 1))
def test_under_a_limit_the_clock_falls_until_the_draw_fits(drawn: float, cap: float) -> None:
    clock = 1 / float(LAW.compute_slowdown(np.array([drawn]), cap)[0])
    if cap >= drawn:
        assert clock == 1
    elif clock >= LAW.clock_knee:
        assert LAW.idle + (drawn - LAW.idle) * clock**LAW.clock_exponent == pytest.approx(cap)
    else:
        assert LAW.idle + (drawn - LAW.idle) * LAW.clock_knee**LAW.clock_exponent > cap


@given(drawn=st.floats(0.3, 1), cap=st.floats(0.3, 1), lower=st.floats(0.3, 1))
def test_a_lower_limit_is_never_faster(drawn: float, cap: float, lower: float) -> None:
    times = [LAW.compute_slowdown(np.array([drawn]), one)[0] for one in (min(cap, lower), max(cap, lower))]
    assert times[0] >= times[1]


def test_power_of_kernels() -> None:
    kernels = pl.DataFrame(
        [
            dict(family="gemm", dtype="bf16", m=8192, n=8192, k=8192),
            dict(family="gemm", dtype="bf16", m=16, n=128, k=128),
            dict(family="memcpy", copy_kind="DtoD", bytes=1e9),
            dict(family="memcpy", copy_kind="HtoD", bytes=1e9),
            dict(family="other"),
        ]
    )
    gemm, small, inside, over_link, unknown = predict(kernels, "h100-sxm")["power_w"]
    assert gemm == pytest.approx(700, rel=0.01)
    assert LAW.idle * 700 < small < 0.5 * 700
    assert over_link < small < inside < gemm
    assert unknown is None


def test_measured_kernels_without_a_shape_draw_what_others_do() -> None:
    kernels = pl.DataFrame([dict(family="other", measured_us=1e6)])
    expected = 700 * (LAW.idle + LAW.running + LAW.unknown_work)
    assert predict(kernels, "h100-sxm", source_gpu="h100-sxm")["power_w"][0] == pytest.approx(expected, rel=0.1)


def test_power_at_a_measured_time() -> None:
    kernels = pl.DataFrame([dict(family="gemm", dtype="bf16", m=8192, n=8192, k=8192)] * 2)
    fast, slow = Batch(kernels).predict_power_w(load_gpu("h100-sxm"), pl.Series([1.5e3, 15e3]))
    assert slow < 0.8 * fast


@pytest.mark.parametrize("text", ["", "law = 1", "[law]\nidle = 0.1", "[law", None])
def test_an_unreadable_file_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "power.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(WeightsError, match=r"no readable power\.toml"):
        load_power_law(path)


def test_readings_are_counted_by_the_decimals_of_their_mean() -> None:
    watts = pl.DataFrame({"watts": [261.297, 390.8475, (100.001 + 100.003 + 100.003) / 3, 691.0 + 3 / 1000 / 11]})
    assert watts.select(count_readings(pl.col("watts"))).to_series().to_list() == [1, 2, 3, 11]


def test_a_fit_finds_the_constants_that_made_its_data() -> None:
    random = np.random.default_rng(0)
    compute, memory, time_us = random.uniform(0, 0.4, 500), random.uniform(0, 0.4, 500), random.uniform(5, 500, 500)
    rows = pl.DataFrame(
        {"gpu": "a", "source": "b", "law": "c", "time_us": time_us, "compute": compute, "memory": memory}
    )
    truth = replace(LAW, running=0.2, compute=0.9, memory=0.5)
    fitted = fit_draw(rows.with_columns(draw=truth.compute_draw(compute, memory, time_us)), LAW)
    assert (fitted.running, fitted.compute, fitted.memory) == pytest.approx((0.2, 0.9, 0.5), rel=0.02)
    cap, drawn = random.uniform(0.4, 0.8, 200), random.uniform(0.8, 1, 200)
    truth = replace(LAW, clock_exponent=2.5, clock_knee=0.7)
    slowdown = [truth.compute_slowdown(np.array([one]), limit)[0] for one, limit in zip(drawn, cap, strict=True)]
    fitted = fit_cap(LAW, pl.DataFrame({"cap": cap, "draw": drawn, "slowdown": slowdown}))
    assert (fitted.clock_exponent, fitted.clock_knee) == pytest.approx((2.5, 0.7), rel=0.02)


def test_the_file_that_ships_says_how_far_off_it_was() -> None:
    text = POWER_FILE.read_text()
    assert "[[left_out.draw]]" in text
    assert "cap = [" in text
    assert 0 < LAW.half_width < LAW.half_width_elsewhere < 0.7
