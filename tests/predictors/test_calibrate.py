"""Calibration: measurements move a GPU's predictions to where they say, near and far, and keep GPUs in order."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.calibrate import (
    calibrate,
    cross_validate_calibration,
    list_adjustable_constants,
    select_distinct_kernels,
)
from predictors.columns import build_law_inputs, prepare_kernels
from predictors.errors import KernelTableError
from predictors.laws.law import LAWS
from predictors.model import compute_architecture_shifts
from predictors.weights_file import load_hardware, load_weights

GPU = load_gpu("h200-sxm")
SHAPES = pl.DataFrame({"m": [1024, 2048, 4096, 8192] * 5, "n": 4096, "k": [1024, 2048, 4096, 8192, 12288] * 4})
KERNELS = SHAPES.with_columns(family=pl.lit("gemm"), dtype=pl.lit("bf16"))
DRAW = np.random.default_rng(0)


def times(kernels: pl.DataFrame, gpu: str = GPU.slug, calibrations=None, **more) -> np.ndarray:
    return predict(kernels, gpu, calibrations=calibrations, **more)["time_us"].to_numpy()


def measured(kernels: pl.DataFrame, factor, gpu: str = GPU.slug) -> pl.DataFrame:
    return kernels.with_columns(measured_us=pl.Series(times(kernels, gpu) * factor))


def test_a_gpu_that_runs_slower_is_predicted_slower():
    noise = np.exp(DRAW.normal(scale=0.05, size=KERNELS.height))
    now = times(KERNELS, calibrations={GPU: measured(KERNELS, 1.3 * noise)})
    assert np.median(now / times(KERNELS)) == pytest.approx(1.3, abs=0.06)


def test_one_wild_measurement_hardly_matters():
    wild = np.where(np.arange(KERNELS.height) == 3, 20.0, 1.0)
    now = times(KERNELS, calibrations={GPU: measured(KERNELS, wild)})
    assert np.median(now / times(KERNELS)) == pytest.approx(1.0, abs=0.03)


def test_what_is_slow_in_one_corner_is_slow_near_it_only():
    small = pl.DataFrame({"m": [8, 16, 32] * 3, "n": [2048] * 3 + [4096] * 3 + [8192] * 3, "k": 4096})
    both = pl.concat([small, SHAPES], how="vertical_relaxed").with_columns(family=pl.lit("gemm"), dtype=pl.lit("bf16"))
    slow = np.where(both["m"] <= 32, 1.4, 1.0)
    asked = both.head(1).vstack(both.tail(1)).with_columns(m=pl.Series([24, 6000]))
    near, far = times(asked, calibrations={GPU: measured(both, slow)}) / times(asked)
    assert near == pytest.approx(1.4, abs=0.12)
    assert far == pytest.approx(1.0, abs=0.06)


def test_a_part_of_an_op_is_as_much_slower_as_the_whole():
    large = np.where(SHAPES["m"] * SHAPES["k"] > 2**24, 1.5, 1.0)
    asked = KERNELS.filter(pl.col("m") == 8192, pl.col("k") == 12288).with_columns(share=pl.Series([0.1]))
    whole = asked.with_columns(share=pl.lit(1.0))
    slower = [times(rows, calibrations={GPU: measured(KERNELS, large)}) / times(rows) for rows in (asked, whole)]
    assert slower[0] == pytest.approx(slower[1], abs=0.05)


def test_two_stacks_of_one_trace_are_kept_apart():
    shape = {"heads": 16, "head_dim": 128, "causal": True, "family": "attention", "dtype": "bf16"}
    sizes = [{"batch": b, "q_len": q, "kv_len": q} for b in (1, 4, 16) for q in (512, 1024, 2048, 4096)]
    of = {name: pl.DataFrame([shape | s | {"framework": name} for s in sizes]) for name in ("flashinfer", "triton")}
    both = pl.concat([measured(of["flashinfer"], 1.0), measured(of["triton"], 1.5)])
    ratio = {name: np.median(times(rows, calibrations={GPU: both}) / times(rows)) for name, rows in of.items()}
    assert ratio["flashinfer"] == pytest.approx(1.0, abs=0.1)
    assert ratio["triton"] == pytest.approx(1.5, abs=0.15)


def test_products_tell_something_of_attention_and_nothing_of_norms():
    norm = pl.DataFrame({"family": ["norm"], "dtype": ["bf16"], "bytes": [1e8]})
    shape = {"heads": 32, "q_len": 8192, "kv_len": 8192, "head_dim": 128, "causal": True}
    prefill = pl.DataFrame([{"family": "attention", "dtype": "bf16", **shape}])
    calibration = {GPU: measured(KERNELS, 1.3)}
    assert times(norm, calibrations=calibration) == pytest.approx(times(norm))
    assert 1.03 < times(prefill, calibrations=calibration)[0] / times(prefill)[0] < 1.2


def test_calibrated_intervals_are_those_of_the_calibrated():
    new = load_gpu("gb10")
    before, after = (predict(KERNELS, new, calibrations=c) for c in (None, {new: measured(KERNELS, 1.1, new.slug)}))
    assert (after["high_us"] / after["time_us"]).max() < (before["high_us"] / before["time_us"]).min()


def test_measurements_as_predicted_leave_predictions_as_they_are():
    sibling = "a100-sxm-40gb"
    assert load_weights().find_twin("gemm half", load_hardware(sibling))
    now = times(KERNELS, sibling, {load_gpu(sibling): measured(KERNELS, 1.0, sibling)})
    assert now == pytest.approx(times(KERNELS, sibling), rel=1e-9)


def test_a_gpu_without_a_sibling_is_found_to_be_like_another_architecture(monkeypatch):
    new, law = load_hardware("rtx-3090"), "prefill"
    shape = {"heads": 16, "kv_heads": 8, "head_dim": 128, "causal": True, "family": "attention", "dtype": "bf16"}
    sizes = [{"batch": b, "q_len": q, "kv_len": q} for b in (1, 2, 4, 8, 16) for q in (512, 1024, 2048, 4096)]
    attention = pl.DataFrame([shape | size for size in sizes])
    rows = build_law_inputs(prepare_kernels(attention, new))
    shifts = compute_architecture_shifts(rows, law, new, load_weights())
    assert compute_architecture_shifts(rows, law, load_hardware(GPU.slug), load_weights()) == {}
    truth = times(attention, new.slug) * np.exp(shifts["9"])
    chosen = np.arange(attention.height) % 3 == 0
    told = attention.with_columns(measured_us=pl.Series(truth)).filter(pl.Series(chosen))

    def compute_missed() -> float:
        now = times(attention, new.slug, {new.gpu: told})
        return float(np.abs(np.log(now / truth))[~chosen].mean())

    by_architecture = compute_missed()
    monkeypatch.setattr("predictors.calibrate.ARCHITECTURE_SD", 1e-6)
    assert by_architecture < 0.9 * compute_missed()


def test_nothing_beats_the_bound():
    result = predict(KERNELS, GPU, calibrations={GPU: measured(KERNELS, 0.01)})
    assert (result["time_us"] >= result["bound_us"]).all()


@pytest.mark.parametrize("factor", [0.6, 1.6])
@pytest.mark.parametrize(("worse", "better"), [("h100-sxm", "h200-sxm"), ("a100-sxm-80gb", "h100-sxm")])
def test_a_gpu_better_in_everything_stays_no_slower(worse: str, better: str, factor: float):
    for one in (worse, better):
        calibration = {load_gpu(one): measured(KERNELS, factor, one)}
        assert (times(KERNELS, better, calibration) <= times(KERNELS, worse, calibration) * (1 + 1e-9)).all()


def test_a_stack_that_the_calibration_knows_is_not_counted_twice():
    carried = measured(KERNELS, 1.2, "h100-sxm")
    calibration = {GPU: measured(KERNELS, 1.2)}
    now = times(carried, calibrations=calibration, source_gpu="h100-sxm")
    assert np.median(now / times(KERNELS)) == pytest.approx(1.2, abs=0.05)


def test_nothing_to_calibrate_with_is_an_error():
    with pytest.raises(KernelTableError, match="nothing to calibrate with"):
        calibrate(KERNELS, GPU, load_weights())


def test_repeats_are_kept_once_and_copies_of_the_host_not_at_all():
    copy = pl.DataFrame({"family": ["memcpy"], "bytes": [1e6], "copy_kind": ["HtoD"], "measured_us": [50.0]})
    repeats = KERNELS.head(1).with_columns(measured_us=pl.Series([[90.0, 110.0, 100.0]])).explode("measured_us")
    kept = select_distinct_kernels(pl.concat([repeats, copy], how="diagonal_relaxed"), GPU)
    assert kept.select("family", "m", "measured_us").rows() == [("gemm", 1024, 100.0)]
    with pytest.raises(KernelTableError, match="no kernel has both"):
        select_distinct_kernels(copy, GPU)


def test_check_tells_what_a_calibration_is_worth():
    noise = np.exp(DRAW.normal(scale=0.02, size=KERNELS.height))
    errors = cross_validate_calibration(select_distinct_kernels(measured(KERNELS, 1.3 * noise), GPU), GPU)
    ((law, kernels, before, after, _),) = errors.rows()
    assert (law, kernels) == ("gemm half", KERNELS.height)
    assert before == pytest.approx(100 * (1 - 1 / 1.3), abs=2)
    assert after < 8
    assert cross_validate_calibration(select_distinct_kernels(measured(KERNELS.head(1), 1.3), GPU), GPU)[
        "after"
    ].to_list() == [None]


def test_measurements_move_every_constant_but_a_floor_that_no_gpu_shifts():
    assert {law: set(LAWS[law].priors) - set(list_adjustable_constants(law)) for law in LAWS} == {
        law: set() if "floor" in LAWS[law].effects else {"floor"} for law in LAWS
    }
    assert "floor" not in LAWS["gemm fp32"].effects
