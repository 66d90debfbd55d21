"""A rate that fp32 arithmetic can't reach proves a matrix unit. Of an A100: 19.5 TFLOP/s fp32, 156 TF32."""

import pytest

from predictors import load_gpu
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

V100 = {
    "id": 0, "name": "Tesla V100-SXM2-32GB", "totalGlobalMem": 34_089_730_048, "computeMajor": 7, "computeMinor": 0,
    "numSms": 80,
}  # fmt: skip
A100 = {
    "id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 84_990_623_744, "computeMajor": 8, "computeMinor": 0,
    "numSms": 108,
}  # fmt: skip
NAME = "my_gemm_kernel"


def products(*kernel_us: float, name: str = NAME, types: str = "float", device: dict | None = A100) -> Trace:
    """Products of 1000 x 1000 matrices, 2 GFLOP each, that took so long."""
    builder, start = TraceBuilder(device), 0.0
    for dur in kernel_us:
        builder.op("aten::mm", start, 20, dims=[[1000, 1000], [1000, 1000]], types=[types, types])
        builder.kernel(name, start + 10, dur, launch=start + 5)
        start += dur + 50
    return builder.load()


def dtypes(trace: Trace, **kwargs: str) -> list[str]:
    return prepare_run(trace, **kwargs).kernels["dtype"].to_list()


def test_faster_than_fp32_allows():
    """2 GFLOP at 19.5 TFLOP/s take 102.6 µs."""
    assert dtypes(products(50)) == ["tf32"]


@pytest.mark.parametrize("kernel_us", [150, 102, 100.5], ids=["slower", "by less than 2 %", "by less than a whole µs"])
def test_fp32_stays_where_it_explains_the_time(kernel_us: float):
    assert dtypes(products(kernel_us)) == ["fp32"]


def test_one_launch_proves_it_for_all_of_the_name():
    assert dtypes(products(50, 500)) == ["tf32", "tf32"]


def test_units_that_the_gpu_does_not_have_are_not_proven():
    assert load_gpu("v100-sxm-32gb").peak_flops("fp32") == 15.7e12
    assert dtypes(products(50, device=V100)) == ["fp32"]


def test_the_gpu_may_be_named_by_the_user():
    assert dtypes(products(50, device=None)) == ["fp32"]
    assert dtypes(products(50, device=None), source_gpu="a100-sxm-80gb") == ["tf32"]


def test_other_precisions_and_fewer_multiplies_prove_nothing():
    assert dtypes(products(50, types="c10::Half")) == ["fp16"]
    assert dtypes(products(50, name="winograd_gemm_kernel")) == ["fp32"]


def test_kernels_that_share_an_op_prove_nothing():
    """Which of the two did most of the work isn't known."""
    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[1000, 1000], [1000, 1000]], types=["float", "float"])
    builder.kernel(NAME, 40, 25, launch=5).kernel("another_gemm_kernel", 70, 25, launch=15)
    assert dtypes(builder.load()) == ["fp32", "fp32"]
