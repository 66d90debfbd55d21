"""`predict`: its columns, its methods, and what holds for any kernel on any GPU."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors import list_gpus, load_gpu, predict
from predictors.errors import WeightsError
from predictors.kernels import DTYPE_BYTES

COLUMNS = [
    "time_us",
    "low_us",
    "high_us",
    "bound_us",
    "utilization",
    "power_w",
    "demand_w",
    "shared_error",
    "limiter",
    "method",
    "runs_as",
]
SIZE = st.integers(1, 10**6)
GEMM = {"family": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096}


def one(gpu: str, source: str | None = None, **columns: object) -> dict[str, object]:
    return predict(pl.DataFrame([columns]), gpu, source_gpu=source).row(0, named=True)


PREFILL = {"family": "attention", "dtype": "bf16", "batch": 2, "heads": 16, "q_len": 512, "kv_len": 512, "head_dim": 64}
STREAMS = ("elementwise", "softmax", "norm", "copy", "reduction", "embedding", "optimizer", "memset")


def some_of_each() -> pl.DataFrame:
    rows: list[dict[str, object]] = [
        GEMM,
        {"family": "conv", "dtype": "fp32", "m": 50176, "n": 64, "k": 576, "bytes": 3e7},
        {
            "family": "attention",
            "dtype": "bf16",
            "batch": 2,
            "heads": 16,
            "q_len": 1024,
            "kv_len": 1024,
            "head_dim": 64,
        },
        {"family": "attention", "dtype": "bf16", "batch": 64, "heads": 16, "q_len": 1, "kv_len": 4096, "head_dim": 64},
        {"family": "moe", "dtype": "bf16", "tokens": 256, "hidden": 2048, "inter": 768, "topk": 8, "experts": 128},
        *(
            {"family": f, "dtype": "fp32", "bytes": 5e7}
            for f in ("elementwise", "softmax", "norm", "copy", "reduction")
        ),
        *({"family": f, "dtype": "fp32", "bytes": 5e7} for f in ("embedding", "optimizer", "memset")),
        {"family": "memcpy", "bytes": 1e6, "copy_kind": "HtoD"},
        {"family": "collective", "collective": "all_reduce", "bytes": 1e6, "ranks": 8},
        {"family": "other"},
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


@pytest.mark.parametrize("gpu", list_gpus())
def test_every_family_on_every_gpu(gpu: str):
    kernels = some_of_each()
    result = predict(kernels, gpu)
    assert result.columns == COLUMNS
    assert result.height == kernels.height
    assert result["method"].to_list() == ["law"] * (kernels.height - 2) + ["unknown"] * 2
    known = result.head(kernels.height - 2)
    assert known.select(pl.col("time_us", "low_us", "high_us", "bound_us").is_finite().all()).row(0) == (True,) * 4
    assert (known["low_us"] <= known["time_us"]).all()
    assert (known["time_us"] < known["high_us"]).all()
    assert (known["time_us"] >= known["bound_us"]).all()
    assert known["utilization"].is_between(0, 1, closed="right").all()
    assert known["power_w"].is_between(0, load_gpu(gpu).tdp_w, closed="right").all()
    assert result.tail(2)["time_us"].null_count() == 2


def test_the_gpu_of_the_measurement_gives_it_back_exactly():
    kernels = some_of_each().with_columns(measured_us=pl.Series(np.geomspace(1.5, 1e5, 16)))
    result = predict(kernels, "h100-sxm", source_gpu="NVIDIA H100 80GB HBM3")
    for column in ("time_us", "low_us", "high_us"):
        assert result[column].to_list() == kernels["measured_us"].to_list()
    assert set(result["method"]) == {"measured"}


def test_a_measured_time_under_its_bound_is_kept_and_shows():
    row = one("h100-sxm", "h100-sxm", **GEMM, measured_us=1.0)
    assert row["time_us"] == 1.0
    assert row["utilization"] > 1


def test_methods_follow_what_is_known():
    kernels = some_of_each().with_columns(measured_us=pl.lit(100.0))
    methods = predict(kernels, "h100-sxm", source_gpu="a100-sxm-80gb")["method"].to_list()
    assert methods == ["transfer"] * 14 + ["kept", "scaled"]


def test_measurements_without_their_gpu_are_not_used():
    assert one("h100-sxm", **GEMM, measured_us=5000.0) == one("h100-sxm", **GEMM)


def test_a_slow_kernel_stays_slow_on_a_sibling():
    plain = one("h200-sxm", **GEMM)["time_us"]
    slow = one("h200-sxm", "h100-sxm", **GEMM, measured_us=3 * one("h100-sxm", **GEMM)["time_us"])["time_us"]
    assert 1.5 * plain < slow < 3.2 * plain


def test_rows_without_a_measurement_fall_back_to_the_law():
    frame = pl.DataFrame([GEMM | {"measured_us": None}], schema_overrides={"measured_us": pl.Float64})
    result = predict(frame, "b200", source_gpu="h100-sxm")
    assert result["method"].to_list() == ["law"]
    assert result["time_us"][0] == one("b200", **GEMM)["time_us"]


def test_the_format_that_runs_is_reported():
    assert one("t4", **GEMM)["runs_as"] == "fp16"
    assert one("h100-sxm", **GEMM)["runs_as"] is None


def test_an_empty_table_gives_an_empty_one():
    result = predict(pl.DataFrame(schema={"family": pl.String}), "h100-sxm")
    assert result.columns == COLUMNS
    assert result.is_empty()


@pytest.mark.parametrize("family", STREAMS)
def test_what_goes_through_memory_once_is_limited_by_memory(family: str):
    """Two operations a byte are far below any GPU's ridge; a few bytes take as long as their launch."""
    large, small = ({"family": family, "dtype": "fp32", "bytes": size, "flops": 2 * size} for size in (2e8, 64.0))
    limits = predict(pl.DataFrame([large, small]), "a100-sxm-80gb")["limiter"].to_list()
    assert limits == ["memory", "latency"]


def test_large_products_are_limited_by_compute_and_thin_ones_by_memory():
    thin = {**GEMM, "m": 1}
    assert predict(pl.DataFrame([GEMM, thin]), "a100-sxm-80gb")["limiter"].to_list() == ["compute", "memory"]


def test_order_and_company_don_t_matter():
    kernels = some_of_each()
    forward = predict(kernels, "l40s")
    assert predict(kernels.reverse(), "l40s").reverse().equals(forward)


@given(m=SIZE, n=SIZE, k=SIZE, dtype=st.sampled_from(sorted(DTYPE_BYTES)))
@settings(max_examples=80, deadline=None)
def test_any_product_is_finite_and_no_faster_than_its_bound(m: int, n: int, k: int, dtype: str):
    row = one("b200", family="gemm", dtype=dtype, m=m, n=n, k=k)
    assert math.isfinite(row["time_us"])
    assert 0 < row["bound_us"] <= row["time_us"]
    assert row["low_us"] <= row["time_us"] <= row["high_us"] < math.inf


@given(
    batch=st.integers(1, 4096), heads=st.integers(1, 128), group=st.integers(1, 16), q=SIZE,
    extra=st.integers(0, 10**6), dim=st.integers(1, 512), window=st.sampled_from([0, 1, 4096]), causal=st.booleans(),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_any_attention_is_finite(**shape: int):
    row = one(
        "l40s", family="attention", dtype="bf16", batch=shape["batch"], heads=shape["heads"] * shape["group"],
        kv_heads=shape["heads"], q_len=shape["q"], kv_len=shape["q"] + shape["extra"], head_dim=shape["dim"],
        window=shape["window"], causal=shape["causal"],
    )  # fmt: skip
    assert 0 < row["bound_us"] <= row["time_us"] < math.inf


@pytest.mark.parametrize("size", ["m", "n", "k"])
@pytest.mark.parametrize("gpu", ["h100-sxm", "l40s", "b200", "rtx-4090", "mi300x"])
def test_four_times_the_work_never_takes_less(gpu: str, size: str):
    sizes = [4.0**i for i in range(1, 9)]
    kernels = pl.DataFrame([GEMM | {"m": 512.0, "n": 512.0, "k": 512.0} | {size: s} for s in sizes])
    times = predict(kernels, gpu)["time_us"].to_numpy()
    # The learned correction may wiggle by some percent where the time hardly depends on the size.
    assert (times[1:] > 0.8 * times[:-1]).all()
    assert times[-1] > 3 * times[0]


def test_unreadable_weights_are_named(tmp_path):
    with pytest.raises(WeightsError, match="no readable weights"):
        predict(pl.DataFrame([GEMM]), "h100-sxm", weights=tmp_path)
    (tmp_path / "weights.json").write_text('{"format": 999}')
    with pytest.raises(WeightsError, match="format 999"):
        predict(pl.DataFrame([GEMM]), load_gpu("h100-sxm"), weights=str(tmp_path))


def test_importing_loads_neither_numpy_nor_polars():
    code = "import sys, predictors; predictors.load_gpu('t4'); print({'numpy', 'polars'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_predicting_loads_nothing_of_the_training():
    code = (
        "import sys, polars as pl, predictors\n"
        "predictors.predict(pl.DataFrame([{'family': 'gemm', 'dtype': 'bf16', 'm': 8, 'n': 8, 'k': 8}]), 'h100-sxm')\n"
        "print([m for m in ('torch', 'sklearn', 'lightgbm', 'scipy', 'predictors.training') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_large_trace_takes_seconds_at_most():
    draw = np.random.default_rng(0)
    shape = {name: draw.integers(1, 8192, 100_000) for name in ("m", "n", "k")}
    kernels = pl.DataFrame(shape).with_columns(family=pl.lit("gemm"), dtype=pl.lit("bf16"))
    predict(kernels.head(10), "h100-sxm")
    start = time.process_time()
    predict(kernels, "h100-sxm")
    assert time.process_time() - start < 20  # 3 on an idle machine; a loop over rows takes minutes


def test_repeats_of_a_kernel_get_its_time():
    kernels = some_of_each()
    repeated = predict(pl.concat([kernels] * 3), "a100-sxm-80gb")
    assert repeated.equals(pl.concat([predict(kernels, "a100-sxm-80gb")] * 3))


def test_empty_tensors_take_next_to_nothing():
    rows = pl.DataFrame([GEMM | {"m": 0}, {"family": "memset", "bytes": 0}, GEMM | {"share": 0.0}])
    assert predict(rows, "h100-sxm")["time_us"].is_between(0, 50).all()


def test_a_convolution_of_an_empty_image_is_an_empty_tensor():
    kernel = {"family": "conv", "dtype": "fp32", "m": 0, "n": 64, "k": 0, "bytes": 0.0}
    for empty in ({"height": 0, "width": 7}, {"height": 0, "width": 0, "channels": 0, "winograd": True}):
        row = predict(pl.DataFrame([kernel | empty]), "h100-sxm").row(0, named=True)
        assert 0 < row["time_us"] < 20
