"""A GPU that equals or beats another in everything is never slower; a time of zero is a short one."""

import polars as pl
import pytest

from predictors import predict

ROWS = [
    {"family": "gemm", "dtype": "bf16", "batch": 120, "m": 5185, "n": 64, "k": 5185, "measured_us": 1083.0},
    {"family": "gemm", "dtype": "bf16", "m": 128, "n": 128, "k": 128, "measured_us": 4.0},
    {"family": "softmax", "dtype": "bf16", "rows": 82960, "cols": 5185, "bytes": 1.72e9, "measured_us": 2187.0},
    {"family": "elementwise", "dtype": "fp32", "bytes": 4e5, "measured_us": 2.0},
    {"family": "norm", "dtype": "fp32", "measured_us": 90.0},
    {"family": "other", "measured_us": 50.0},
]


@pytest.mark.parametrize(("worse", "better"), [("a100-sxm-80gb", "h100-sxm"), ("h100-sxm", "h200-sxm")])
def test_better_in_everything_is_never_slower(worse, better):
    kernels = pl.DataFrame(ROWS)
    up = predict(kernels, better, source_gpu=worse)["time_us"]
    down = predict(kernels, worse, source_gpu=better)["time_us"]
    assert (up <= kernels["measured_us"]).all()
    assert (down >= kernels["measured_us"]).all()


def test_order_compares_the_formats_that_each_gpu_runs_a_kernel_in():
    """A V100 runs bf16 as fp16 on its matrix units: a GPU with more of everything else has slower ones."""
    kernel = {"family": "conv", "dtype": "bf16", "m": 500, "n": 5440, "k": 38400}
    carried = predict(pl.DataFrame([kernel | {"measured_us": 3000.0}]), "rtx-3080-ti", source_gpu="v100-pcie-32gb")
    assert carried["time_us"][0] > 3000.0


def test_what_was_measured_over_its_bound_stays_over_it_where_a_smaller_cache_loses_more_than_any_rate():
    kernel = {"family": "elementwise", "dtype": "fp32", "bytes": 98e6, "measured_us": 12.0}
    carried = predict(pl.DataFrame([kernel]), "h100-pcie", source_gpu="h200-nvl")
    assert carried["time_us"][0] >= carried["bound_us"][0]


def test_no_datasheet_says_that_another_vendors_libraries_are_as_good():
    small = {"family": "attention", "dtype": "bf16", "heads": 12, "q_len": 197, "kv_len": 197, "head_dim": 64}
    small |= {"paged": False, "framework": "fa2"}
    on_h100 = pl.DataFrame([{**small, "measured_us": 10.0}])
    assert predict(on_h100, "mi300x", source_gpu="h100-sxm")["time_us"][0] > 10.0


def test_a_time_of_zero_is_carried_without_a_warning():
    rows = [{"family": "memset", "bytes": 4.0, "measured_us": 0.0}, {"family": "other", "measured_us": 0.0}]
    kernels = pl.DataFrame(rows)
    carried = predict(kernels, "h100-sxm", source_gpu="v100-sxm-32gb")["time_us"]
    assert ((carried > 0) & (carried < 10)).all()
    assert predict(kernels, "v100-sxm-32gb", source_gpu="v100-sxm-32gb")["time_us"].to_list() == [0.0, 0.0]
