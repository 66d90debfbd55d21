"""Inputs that an op can't have had: their work isn't known, and nothing else comes of it."""

import json
import random

import polars as pl
import polars.selectors as cs
import pytest

from tests.kernels import kernel_of
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.op_work import CALL_COLUMNS, compute_work_of_calls
from tracekit.workload.ops.registry import OPS

IMAGE = [[8, 16, 32, 32], [16, 16, 3, 3]]
CONV, POOL, COPY = "cudnn_convolve_sgemm", "max_pool_forward_nchw", "vectorized_elementwise_kernel"
ODD = {
    "a stride of zero": ("aten::miopen_convolution", CONV, IMAGE, ["", "", "", "[0, 0]", "[0, 0]", "[1, 1]"]),
    "a padding that is no number": ("aten::cudnn_convolution", CONV, IMAGE, ["", "", "{}", "[1,1]", "[1,1]"]),
    "three strides of two axes": ("aten::cudnn_convolution", CONV, IMAGE, ["", "", "[1,1]", "[1,1,1]", "[1,1]"]),
    "a padding beyond any memory": ("aten::cudnn_convolution", CONV, IMAGE, ["", "", f"[{10**24}]", "[1]", "[1]"]),
    "windows of no step": ("aten::max_pool2d_with_indices", POOL, IMAGE[:1], ["", "[2,2]", "[0,0]", "[0,0]"]),
    "a window without sizes": ("aten::avg_pool2d", POOL, IMAGE[:1], ["", "[]", "[]", "[]"]),
    "an output of endless size": ("aten::upsample_nearest2d", COPY, IMAGE[:1], ["", "", "[Infinity, 1e400]"]),
    "an axis that isn't there": ("aten::_fft_c2c", "regular_fft", IMAGE[:1], ["", "[7]", "0", "True"]),
    "a padding of nothing": ("aten::reflection_pad2d", COPY, IMAGE[:1], ["", "[null, null]"]),
    "an unknown interpolation": ("aten::grid_sampler_2d", COPY, [IMAGE[0], [8, 4, 4, 2]], ["", "", "[]"]),
    "groups below zero": (
        "aten::convolution_backward", CONV, [IMAGE[0], *IMAGE], [*[""] * 7, "False", "[0, 0]", "-1"],
    ),
    "a table without axes": ("_C::rotary_embedding", "rotary_kernel", [[8], [8, 64], [8, 64], [], []], None),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_what_an_op_cannot_have_had_gives_no_work(case):
    op, kernel, dims, concrete = ODD[case]
    row = kernel_of(op, kernel, dims, concrete=concrete)
    assert row["m"] is None
    assert row["bytes"] is None


@pytest.mark.parametrize("dims", [[[8, 16, 32, 32]], [[[8, 16]], [[16]], [[16, 16]]], [[8, 16], [], [16, 16]]])
def test_a_backward_op_that_names_other_inputs_tells_no_output(dims):
    builder = TraceBuilder().op("aten::cudnn_convolution", 0, 20, dims=IMAGE).kernel(CONV, 30, 20, launch=10)
    builder.op("aten::cudnn_convolution_backward", 60, 40, dims=dims)
    builder.op("aten::cudnn_convolution_backward_input", 65, 30, dims=[[], IMAGE[0], IMAGE[1]])
    kernels = build_kernel_table(builder.kernel("dgrad", 110, 20, launch=70).load().rank())
    assert kernels["m"][1] is None


SIZES = (0, 1, 2, 2, 2, 3, 64, 64)
VALUES = (
    "",
    "0",
    "1",
    "-1",
    "64",
    "2.",
    "True",
    "[]",
    "[1, 1]",
    "[0, 0]",
    "[2]",
    "[True]",
    "[null]",
    "[1e308]",
    "{}",
    "NaN",
)
TYPES = ("float", "float", "c10::Half", "c10::Float8_e4m3fn", "long int", "bool", "Scalar", "")
NAMES = sorted(OPS)
KERNELS = ("sgemm", CONV, COPY, POOL, "flash_fwd_kernel", "softmax_warp", "batch_norm_backward_reduce", "nchwToNhwc")


def any_call(rng):
    """A kernel of some op, whose inputs are as the profiler writes them, but not those that it takes."""
    axes, count = rng.choice((1, 2, 3, 4)), rng.randrange(12)
    dims = [[rng.choice(SIZES) for _ in range(axes if rng.random() < 0.8 else 0)] for _ in range(count)]
    inputs = {
        "op": rng.choice(NAMES),
        "name": rng.choice(KERNELS),
        "kind": "kernel",
        "input_dims": json.dumps(dims),
        "input_types": json.dumps(rng.choices(TYPES, k=count)),
        "concrete_inputs": json.dumps(rng.choices(VALUES, k=count)),
    }
    return [inputs.get(column) for column in CALL_COLUMNS]


def test_no_inputs_of_any_op_end_in_an_error():
    rng = random.Random(0)
    calls = [any_call(rng) for _ in range(4000)]
    described = compute_work_of_calls(
        pl.DataFrame(calls, schema=list(CALL_COLUMNS), orient="row", infer_schema_length=None)
    )
    assert all((column.drop_nulls() >= 0).all() for column in described.select(cs.numeric()))
