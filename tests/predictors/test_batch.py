"""One batch on several GPUs: what `predict` gives for each of them."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from predictors import Batch, load_gpu, predict

SHAPES = [
    {"family": "gemm", "dtype": "fp8", "m": 4096, "n": 4096, "k": 4096},
    {"family": "gemm", "dtype": "bf16", "m": 64, "n": 4096, "k": 1024, "framework": "vllm"},
    {"family": "conv", "dtype": "fp32", "m": 50176, "n": 64, "k": 576},
    {"family": "norm", "dtype": "fp32", "bytes": 3e7},
    {"family": "memcpy", "bytes": 1e6, "copy_kind": "HtoD"},
    {"family": "collective", "collective": "all_reduce", "bytes": 1e6, "ranks": 8},
    {"family": "gemm", "dtype": "bf16", "blocks": 64},
    {"family": "other"},
]
GPUS = ("h100-sxm", "a100-sxm-80gb", "v100-sxm-32gb", "b200", "h200-sxm", "mi300x")
LAUNCHES = pl.DataFrame(SHAPES * 5, infer_schema_length=None).with_columns(
    measured_us=pl.Series(np.geomspace(2.0, 4000.0, 40)).gather(np.random.default_rng(0).permutation(40))
)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch(LAUNCHES, source_gpu="a100-sxm-80gb")


@pytest.mark.parametrize("gpu", GPUS)
def test_each_gpu_as_if_alone(batch: Batch, gpu: str):
    assert batch.on(gpu).equals(predict(LAUNCHES, gpu, source_gpu="a100-sxm-80gb"))


@pytest.mark.parametrize("gpu", GPUS)
def test_company_doesn_t_matter(gpu: str):
    shapes = LAUNCHES.head(len(SHAPES))
    rows = [predict(shapes[i : i + 1], gpu) for i in range(len(SHAPES))]
    assert_frame_equal(Batch(shapes).on(gpu), pl.concat(rows), rel_tol=1e-5)


def test_calibrations_of_one_call_don_t_linger(batch: Batch):
    before = batch.on("h100-sxm")
    slow = pl.DataFrame([SHAPES[1] | {"m": 2**i, "measured_us": 50.0 * 2**i} for i in range(12)])
    calibrated = batch.on("h100-sxm", {load_gpu("h100-sxm"): slow})
    assert not calibrated["time_us"].equals(before["time_us"])
    assert batch.on("h100-sxm").equals(before)


def test_a_kernel_of_another_format_elsewhere_keeps_its_row(batch: Batch):
    fp8 = pl.Series(LAUNCHES["dtype"] == "fp8").fill_null(False)
    assert set(batch.on("a100-sxm-80gb").filter(fp8)["runs_as"]) == {"bf16"}
    assert set(batch.on("h100-sxm").filter(fp8)["runs_as"]) == {None}
