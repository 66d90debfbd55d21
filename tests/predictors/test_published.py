"""Published rates of large products: what they say of GPUs whose kernels nobody measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.hardware import derive_hardware
from predictors.laws.law import GEMM
from predictors.weights_file import load_weights

pytest.importorskip("scipy")

from predictors.columns import build_law_inputs, prepare_kernels
from predictors.training.datasets import load_datasets
from predictors.training.fit import load_measurements
from predictors.training.fit_law import LawData, fit_law
from predictors.training.published import ATTENTION_TABLE, KERNELS_TABLE, RATE_GEMM_SIDE, RATES_TABLE

RATES = pl.read_csv(RATES_TABLE)
LARGE = {"family": "gemm", "m": RATE_GEMM_SIDE, "n": RATE_GEMM_SIDE, "k": RATE_GEMM_SIDE, "batch": 1}
SIZES = [1024, 2048, 4096, RATE_GEMM_SIDE, 10240]


def best_rate(gpu: str, dtype: str) -> float:
    """Predicted TFLOP/s of the square product that is best of the sizes that were tried."""
    products = pl.DataFrame([{"family": "gemm", "dtype": dtype, "m": n, "n": n, "k": n, "batch": 1} for n in SIZES])
    return float(np.max(2 * np.array(SIZES, dtype=float) ** 3 / predict(products, gpu)["time_us"].to_numpy()) / 1e6)


def part(gpu: str, rate: float, rated: bool) -> LawData:
    """A large product in bf16 on a GPU, at so many TFLOP/s."""
    there = derive_hardware(load_gpu(gpu))
    table = prepare_kernels(pl.DataFrame([LARGE | {"dtype": "bf16"}]), there)
    alone, no = np.full(1, None, dtype=object), np.zeros(1, dtype=bool)
    return LawData(
        there,
        build_law_inputs(table).to_columns(there),
        np.ones(1),
        alone,
        no,
        np.array([2 * RATE_GEMM_SIDE**3 / rate / 1e6]),
        rated,
    )


def test_a_rate_becomes_a_measured_product(tmp_path: Path):
    (tmp_path / "rates.csv").write_text("gpu,dtype,tflops,source\nl4,bf16,60,someone\nl4,bf16,80,another\n")
    row = load_datasets(tmp_path / "rates.csv").row(0, named=True)
    assert (row["gpu"], row["family"], row["dtype"], row["source"]) == ("l4", "gemm", "bf16", "rate")
    assert row["latency_us"] == pytest.approx((2 * RATE_GEMM_SIDE**3 / 60e6 + 2 * RATE_GEMM_SIDE**3 / 80e6) / 2)


def test_a_published_time_becomes_a_measured_kernel(tmp_path: Path):
    header = "gpu,family,direction,dtype,rows,cols,tensors,us,source,part"
    (tmp_path / "times.csv").write_text(f"{header}\nl4,norm,backward,bf16,64,128,3,3.5,someone,squares\n")
    row = load_datasets(tmp_path / "times.csv").row(0, named=True)
    assert (row["gpu"], row["family"], row["direction"]) == ("l4", "norm", "backward")
    assert (row["source"], row["latency_us"], row["part"]) == ("published", 3.5, "squares")
    assert (row["bytes"], row["flops"]) == (3 * 2 * 64 * 128, 8 * 64 * 128)


def test_a_published_time_of_attention_is_of_whole_sequences(tmp_path: Path):
    columns = "gpu,stack,dtype,direction,causal,batch,heads,kv_heads,tokens,kv_tokens,width,window,us"
    (tmp_path / "attention.csv").write_text(f"{columns}\nh100-sxm,fa2,fp16,backward,true,2,16,8,512,512,64,,88.0\n")
    row = prepare_kernels(load_datasets(tmp_path / "attention.csv")).row(0, named=True)
    assert (row["law"], row["framework"], row["q_len"], row["kv_heads"]) == ("sequence", "fa2", 512, 8)


def test_kernels_for_older_units_are_fitted_as_such():
    """FlashAttention 2 on an H100 is measured on a GPU of the A100's class; left out, both are."""
    parts = load_measurements([ATTENTION_TABLE])["sequence"]
    assert {"h100-sxm", "h100-sxm on mma"} <= {part.gpu for part in parts}
    older = next(part for part in parts if part.gpu == "h100-sxm on mma")
    assert (older.hardware.tensor_class, older.board) == ("mma", "h100-sxm")
    assert set(older.table["framework"]) == {"fa2"}
    assert "h100-sxm" not in {part.board for part in load_measurements([ATTENTION_TABLE], ["h100-sxm"])["sequence"]}


def test_the_weights_that_ship_know_the_published_times():
    times = load_datasets(KERNELS_TABLE)
    columns = ("family", "direction", "dtype", "rows", "cols", "flops", "bytes", "part")
    for (gpu,), part in times.group_by("gpu"):
        missed = np.log(predict(part.select(columns), str(gpu))["time_us"].to_numpy() / part["latency_us"].to_numpy())
        assert np.median(np.abs(missed)) < 0.3, gpu


def test_no_rate_is_above_what_a_gpu_can_do_or_far_below():
    for gpu, dtype, rate, _ in RATES.iter_rows():
        share = rate / derive_hardware(load_gpu(gpu)).get_tflops(dtype)
        assert 0.3 < share < 1.03, (gpu, dtype)


def test_the_weights_that_ship_give_the_rates_back():
    missed = [best_rate(gpu, dtype) / rate - 1 for gpu, dtype, rate, _ in RATES.iter_rows()]
    assert np.median(np.abs(missed)) < 0.08
    assert np.quantile(np.abs(missed), 0.9) < 0.2


def test_a_geforce_runs_above_its_printed_clock_and_other_boards_do_not():
    assert derive_hardware(load_gpu("rtx-4090")).clock_mhz == pytest.approx(1.15 * 2520)
    assert derive_hardware(load_gpu("l40s")).clock_mhz == 2520
    assert derive_hardware(load_gpu("rtx-6000-ada")).clock_factor == 1


def test_a_board_with_little_power_multiplies_slower():
    share = {gpu: best_rate(gpu, "bf16") / load_gpu(gpu).peak_flops("bf16") * 1e12 for gpu in ("a10", "a40", "l20")}
    assert share["a10"] < 0.55 < share["a40"] < 0.85 < share["l20"]


def test_a_rated_gpu_is_told_from_its_relatives_by_its_rate():
    measured = [part("a100-sxm-80gb", 250, rated=False), part("h100-sxm", 700, rated=False)]
    rated = [part("a10", 50, rated=True), part("a40", 125, rated=True)]
    fitted, _ = fit_law(GEMM, measured + rated)
    assert set(fitted.gpu) == {"a100-sxm-80gb", "h100-sxm"}
    assert set(fitted.rated) == {"a10", "a40"}
    slow, fast = (fitted.get_offset(derive_hardware(load_gpu(gpu)))["compute"] for gpu in ("a10", "a40"))
    assert slow < 0 < fast
    assert fitted.get_offset(derive_hardware(load_gpu("rtx-a6000")))["compute"] == pytest.approx((slow + fast) / 2)


def test_where_kernels_were_measured_a_rate_stands_back():
    products = load_weights().get_law("gemm half")
    assert not products.rated.keys() & products.gpu.keys()
    assert {"a10", "rtx-4090", "rtx-5090"} <= products.rated.keys()
