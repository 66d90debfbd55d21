"""What holds for any kernel on any known GPU: finite, no faster than its bound, inside its interval, in order."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors import list_gpus, load_gpu, predict
from predictors.hardware import derive_hardware
from predictors.transfer import dominates

GPUS = list_gpus()
SIZE, FEW = st.integers(1, 2**17), st.integers(1, 256)
DTYPE = st.sampled_from(["fp32", "tf32", "fp16", "bf16", "fp8", "fp8_block", "nvfp4", "int8"])
PRODUCT = {"m": SIZE, "n": SIZE, "k": SIZE, "batch": FEW, "dtype": DTYPE}
ATTENTION = {
    "batch": FEW, "heads": FEW, "q_len": SIZE, "kv_len": SIZE, "head_dim": FEW, "causal": st.booleans(),
    "window": st.sampled_from([0, 1, 128, 4096]), "dtype": DTYPE, "direction": st.sampled_from(["forward", "backward"]),
}  # fmt: skip
EXPERTS = {
    "tokens": SIZE, "hidden": SIZE, "inter": SIZE, "topk": st.integers(1, 8), "experts": FEW, "tp": st.integers(1, 8),
    "ep": st.integers(1, 8), "dtype": DTYPE,
}  # fmt: skip
STREAM = {"bytes": st.integers(1, 10**10), "rows": SIZE, "cols": SIZE, "flops": st.integers(0, 10**10)}
STREAMS = ("elementwise", "softmax", "norm", "copy", "reduction", "embedding", "optimizer", "memset", "memcpy")


def kernels(family: str, columns: dict[str, st.SearchStrategy]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({"family": st.just(family), **columns})


ANY = st.one_of(
    kernels("gemm", PRODUCT),
    kernels("conv", PRODUCT),
    kernels("attention", ATTENTION),
    kernels("moe", EXPERTS),
    *(kernels(family, STREAM) for family in STREAMS),
)
BATCH = st.lists(ANY, min_size=20, max_size=20)
PAIRS = [
    (a, b)
    for a in GPUS
    for b in GPUS
    if a != b and dominates(derive_hardware(load_gpu(a)), derive_hardware(load_gpu(b)))
]


@given(rows=BATCH, gpu=st.sampled_from(GPUS))
@settings(max_examples=10, deadline=None)
def test_any_kernel_on_any_gpu(rows: list[dict[str, object]], gpu: str):
    result = predict(pl.DataFrame(rows, infer_schema_length=None), gpu)
    assert result.select(pl.col("time_us", "low_us", "high_us", "bound_us").is_finite().all()).row(0) == (True,) * 4
    assert (result["bound_us"] > 0).all()
    assert (result["time_us"] >= result["bound_us"]).all()
    assert (result["low_us"] <= result["time_us"]).all()
    assert (result["time_us"] <= result["high_us"]).all()


@given(rows=BATCH, pair=st.sampled_from(PAIRS), measured_us=st.floats(0.5, 1e6))
@settings(max_examples=10, deadline=None)
def test_a_gpu_better_in_everything_is_never_slower_than_what_was_measured(rows, pair, measured_us):
    better, worse = pair
    table = pl.DataFrame(rows, infer_schema_length=None).with_columns(measured_us=pl.lit(measured_us))
    result = predict(table, better, source_gpu=worse)
    dtypes = table["dtype"] if "dtype" in table.columns else [None] * table.height
    no_worse = [
        derive_hardware(load_gpu(better)).get_tflops(d) >= derive_hardware(load_gpu(worse)).get_tflops(d)
        for d in dtypes
    ]
    # What ran on other units there (a convolution in TF32) may be slower here.
    alike = predict(table.drop("measured_us"), worse)["runs_as"].is_null()
    # A time under the bound means a wrong work count: nothing is predicted under it.
    capped = result.with_columns(measured_us=table["measured_us"]).filter(pl.Series(no_worse) & alike)
    capped = capped.filter((pl.col("bound_us") <= pl.col("measured_us")) & pl.col("runs_as").is_null())
    assert (capped["time_us"] <= capped["measured_us"] * (1 + 1e-9)).all()


@pytest.mark.parametrize("gpu", GPUS)
def test_eight_times_the_work_never_takes_less(gpu: str):
    """The learned correction may wiggle where the time hardly depends on the size, but not by a factor of eight."""
    sizes = {"gemm": "m", "attention": "batch", "moe": "tokens", "elementwise": "bytes"}
    shapes = {
        "gemm": {"m": 64, "n": 4096, "k": 4096},
        "attention": {"batch": 1, "heads": 16, "q_len": 1024, "kv_len": 1024, "head_dim": 128, "causal": True},
        "moe": {"tokens": 16, "hidden": 2048, "inter": 768, "topk": 4, "experts": 64},
        "elementwise": {"bytes": 10**7},
    }
    rows = [
        {"family": family, "dtype": "bf16", **shape, sizes[family]: shape[sizes[family]] * 8**step}
        for family, shape in shapes.items()
        for step in range(4)
    ]
    times = predict(pl.DataFrame(rows, infer_schema_length=None), gpu)["time_us"].to_numpy().reshape(-1, 4)
    assert (times[:, 1:] > 0.95 * times[:, :-1]).all()
    # Few tokens read most of the experts' weights already: even the bound only grows 1.9-fold.
    assert (times[:, 3] > 2 * times[:, 0]).all()
