"""Traces of 2020 and 2021: no strides, no output sizes."""

import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

X, W, Y = [2, 16, 28, 28], [32, 16, 3, 3], [2, 32, 14, 14]
FLOPS = 2 * 2 * 14 * 14 * 32 * 16 * 9
TYPES = ["float", "float", "float"]


def flops(row):
    return 2 * row["batch"] * row["m"] * row["n"] * row["k"]


def forward(builder):
    builder.op("aten::cudnn_convolution", 0, 20, dims=[X, W, [], []], types=TYPES)
    return builder.kernel("volta_scudnn_128x64_relu_interior_nn_v1", 200, 30, launch=10)


def backward(builder, inner, kernel, dims):
    builder.op("aten::cudnn_convolution_backward", 50, 40, dims=[X, Y, W], types=TYPES)
    builder.op(inner, 55, 30, dims=dims, types=["", "float", "float"])
    return builder.kernel(kernel, 300, 30, launch=60)


def only_row(builder, name):
    kernels = build_kernel_table(builder.load().rank())
    return next(row for row in kernels.iter_rows(named=True) if row["name"] == name)


@pytest.mark.parametrize(
    ("inner", "kernel", "dims", "direction"),
    [
        ("aten::cudnn_convolution_backward_input", "cudnn::detail::dgrad_engine", [[], Y, W], "dgrad"),
        ("aten::cudnn_convolution_backward_weight", "cudnn::cnn::wgrad_alg0_engine", [[], Y, X], "wgrad"),
    ],
)
def test_the_backward_op_around_a_gradient_tells_its_shape(inner, kernel, dims, direction):
    row = only_row(backward(TraceBuilder(), inner, kernel, dims), kernel)
    assert (flops(row), row["direction"], row["work_from"]) == (FLOPS, direction, "shapes")
    assert row["m"] == (2 * 14 * 14 if direction == "dgrad" else 32)


def test_the_gradient_of_its_output_tells_the_shape_of_a_convolution():
    builder = forward(TraceBuilder())
    backward(builder, "aten::cudnn_convolution_backward_input", "cudnn::detail::dgrad_engine", [[], Y, W])
    row = only_row(builder, "volta_scudnn_128x64_relu_interior_nn_v1")
    assert (flops(row), row["bytes"]) == (FLOPS, 4 * (2 * 16 * 28 * 28 + 32 * 16 * 9 + 2 * 32 * 14 * 14))


def test_in_inference_the_op_that_takes_its_output_tells():
    builder = forward(TraceBuilder()).op("aten::batch_norm", 25, 10, dims=[Y, [32], [32]], types=TYPES)
    assert flops(only_row(builder, "volta_scudnn_128x64_relu_interior_nn_v1")) == FLOPS
