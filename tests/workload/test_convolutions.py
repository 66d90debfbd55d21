"""Convolutions to work, worked out by hand."""

import pytest

from tests.kernels import kernel_of, only
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table


def test_convolution_of_stride_two():
    # 32 images of 3x224x224, 64 filters of 3x7x7, stride 2, padding 3: 112x112 outputs.
    row = kernel_of(
        "aten::cudnn_convolution", "sm80_xmma_fprop_implicit_gemm", [[32, 3, 224, 224], [64, 3, 7, 7], [], [], [], [],
        [], [], []], ["float", "float"] + [""] * 7,
        ["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"],
    )  # fmt: skip
    assert only(row, "batch", "m", "n", "k") == (1, 32 * 112 * 112, 64, 3 * 7 * 7)
    assert row["bytes"] == 4 * (32 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 32 * 64 * 112 * 112)
    assert only(row, "channels", "height", "width") == (3, 112, 112)


def test_depthwise_convolution_has_one_group_per_channel():
    row = kernel_of(
        "aten::convolution", "conv_depthwise2d_forward", [[2, 16, 10, 10], [16, 1, 3, 3], [], [], [], [], [], [], []],
        ["float", "float"] + [""] * 7, ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "16"],
    )  # fmt: skip
    assert only(row, "batch", "m", "n", "k") == (16, 2 * 10 * 10, 1, 9)


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("aten::cudnn_convolution_transpose", ["[1, 1]", "[0, 0]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"]),
        ("aten::miopen_convolution_transpose", ["", "[1, 1]", "[0, 0]", "[2, 2]", "[1, 1]", "1", "False", "False"]),
    ],
)
def test_transposed_convolution(op, arguments):
    """Of 256 channels to 128, which the weight [256, 128, 4, 4] doesn't tell from two groups; 14 by 14 to 28 by 28."""
    dims = [[2, 256, 14, 14], [256, 128, 4, 4], *([[]] * len(arguments))]
    row = kernel_of(op, "xmma_dgrad_implicit_gemm", dims, ["float"] * 2 + [""] * len(arguments), ["", "", *arguments])
    assert only(row, "batch", "m", "n", "k") == (1, 2 * 14 * 14, 256, 128 * 4 * 4)
    assert only(row, "height", "width") == (14, 14)
    assert row["bytes"] == 4 * (2 * 256 * 14 * 14 + 256 * 128 * 4 * 4 + 2 * 128 * 28 * 28)


def test_convolution_without_recorded_arguments_has_no_work():
    row = kernel_of("aten::cudnn_convolution", "volta_scudnn_128x64", [[32, 3, 224, 224], [64, 3, 7, 7]])
    assert (row["family"], row["m"]) == ("conv", None)


@pytest.mark.parametrize(
    ("kernel", "direction", "m", "n", "k"),
    [
        ("sm80_xmma_dgrad_implicit_gemm", "dgrad", 4 * 28 * 28, 64 * 9, 128),
        ("sm80_xmma_wgrad_implicit_gemm", "wgrad", 128, 64 * 9, 4 * 28 * 28),
        ("igemm_wrw_gtcx3", "wgrad", 128, 64 * 9, 4 * 28 * 28),
        ("conv_depthwise2d_backward_kernel<3, 1>", "dgrad", 4 * 28 * 28, 64 * 9, 128),
        ("conv_depthwise2d_grad_weight_kernel<float>", "wgrad", 128, 64 * 9, 4 * 28 * 28),
        ("conv_depthwise3d_cuda_backward_weight_kernel<float>", "wgrad", 128, 64 * 9, 4 * 28 * 28),
    ],
)
def test_both_gradients_of_a_convolution_have_the_forward_flops(kernel, direction, m, n, k):
    dims = [[4, 128, 28, 28], [4, 64, 28, 28], [128, 64, 3, 3]]
    row = kernel_of("aten::convolution_backward", kernel, dims)
    assert only(row, "direction", "m", "n", "k") == (direction, m, n, k)
    assert only(row, "channels", "height", "width") == (64, 28, 28)
    assert m * n * k == 4 * 28 * 28 * 128 * 64 * 9


@pytest.mark.parametrize(
    ("kernel", "blocks", "moved"),
    [
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>", 4 * 25 * 4, 4 * 128 * 28 * 28),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>", 128 * 2, 128 * 64 * 9),
        ("void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false>", 4 * 25 * 2, 4 * 64 * 28 * 28),
        ("batched_transpose_16x32_dword", 4 * 49 * 2, 4 * 64 * 28 * 28),
    ],
)
def test_a_layout_change_moves_the_tensor_that_its_grid_fits(kernel, blocks, moved):
    dims = [[4, 128, 28, 28], [4, 64, 28, 28], [128, 64, 3, 3]]
    launch = {"grid": [blocks, 1, 1], "block": [256, 1, 1]}
    row = kernel_of("aten::convolution_backward", kernel, dims, **launch)
    assert only(row, "family", "m", "bytes", "share") == ("copy", None, 2 * 4 * moved, 1.0)


def test_a_layout_change_behind_a_transposed_convolution_moves_its_enlarged_result():
    arguments = ["[1, 1]", "[0, 0]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"]
    dims, types = [[2, 256, 14, 14], [256, 128, 4, 4], *[[]] * 8], [*["c10::Half"] * 2, *[""] * 8]
    kernel = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>"
    row = kernel_of("aten::cudnn_convolution_transpose", kernel, dims, types, ["", "", *arguments])
    assert only(row, "family", "bytes") == ("copy", 2 * 2 * 2 * 128 * 28 * 28)


def test_the_sum_of_a_split_gradient_is_the_weight_s():
    dims = [[5, 256, 14, 14], [5, 1024, 14, 14], [256, 1024, 1, 1], *[[]] * 8]
    types = [*["float"] * 3, *["Scalar"] * 8]
    kernel = "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*)"
    row = kernel_of("aten::convolution_backward", kernel, dims, types)
    assert only(row, "family", "bytes") == ("reduction", (2 * 4 + 4) * 256 * 1024)
    half = [*["c10::BFloat16"] * 3, *["Scalar"] * 8]
    row = kernel_of("aten::convolution_backward", "SubTensorOpWithCastTensor1d", dims, half)
    assert row["bytes"] == (4 + 2) * 256 * 1024


UNNAMED = "miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f3x2_stride1"
DATA, WEIGHT = ("dgrad", 4 * 28 * 28, 128, 1.0), ("wgrad", 128, 4 * 28 * 28, 1.0)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([UNNAMED, UNNAMED], [DATA, WEIGHT]),
        (["igemm_bwd_gtcx3_nhwc_fp16_bx0_ex1", UNNAMED], [DATA, WEIGHT]),
        ([UNNAMED, "sm80_xmma_dgrad_implicit_gemm"], [WEIGHT, DATA]),
        ([UNNAMED, "igemm_wrw_gtcx3_nhwc_fp16"], [DATA, WEIGHT]),
        (["igemm_wrw_gtcx3_nhwc_fp16", UNNAMED], [WEIGHT, DATA]),
        (["conv_depthwise2d_backward_kernel<3>", "conv_depthwise2d_grad_weight_kernel<float>"], [DATA, WEIGHT]),
        # The input's gradient in two launches, whose work is shared by time.
        (["igemm_bwd_gtcx3", "igemm_bwd_gtcx3", UNNAMED], [(*DATA[:3], 0.5), (*DATA[:3], 0.5), WEIGHT]),
        (["igemm_bwd_gtcx3", "igemm_bwd_gtcx3"], [(*DATA[:3], 0.5)] * 2),
    ],
)  # fmt: skip
def test_which_kernel_without_a_direction_is_the_weight_s_gradient(names, expected):
    dims = [[4, 128, 28, 28], [4, 64, 28, 28], [128, 64, 3, 3]]
    concrete = [*[""] * 10, "[True, True, False]"]
    builder = TraceBuilder()
    builder.op("aten::convolution_backward", 0, 50, dims=dims, types=["c10::Half"] * 3, concrete=concrete)
    for launch, name in enumerate(names):
        builder.kernel(name, 60 + 10 * launch, 5, launch=10 * launch + 1)
    kernels = build_kernel_table(builder.load().rank()).sort("ts_ns")
    assert kernels.select("direction", "m", "k", "share").rows() == expected


@pytest.mark.parametrize(("strides", "first"), [([50176, 784, 28, 1], True), ([50176, 1, 1792, 64], False), ([], None)])
@pytest.mark.parametrize(("op", "image"), [("aten::convolution", 0), ("aten::convolution_backward", 1)])
def test_strides_tell_whether_channels_come_first(op, image, strides, first):
    dims = [[8, 64, 28, 28]] * (image + 1) + [[64, 4, 3, 3]]
    concrete = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "16"]
    lie = {"Input Strides": [strides if index == image else [] for index in range(9)]}
    dims += [[]] * (9 - len(dims))
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=["float"] * 9, concrete=concrete, **lie)
    builder.kernel("implicit_gemm", 60, 30, launch=10)
    assert build_kernel_table(builder.load().rank())["channels_first"].to_list() == [first]


@pytest.mark.parametrize(
    ("window", "image", "strides", "suits"),
    [
        ([3, 3], [14, 14], "[1, 1]", True),
        ([5, 5], [14, 14], "[1, 1]", True),
        ([3, 3], [14, 14], "[2, 2]", False),
        ([1, 1], [14, 14], "[1, 1]", False),
        ([7, 7], [14, 14], "[1, 1]", False),
        ([3], [14], "[1]", False),
        ([3, 3, 3], [14, 14, 14], "[1, 1, 1]", False),
    ],
)
def test_which_convolutions_suit_winograds_algorithm(window, image, strides, suits):
    axes = len(window)
    padding, ones, zeros = (f"[{', '.join([str(n)] * axes)}]" for n in (window[0] // 2, 1, 0))
    dims = [[8, 16, *image], [32, 16, *window], [], [], [], [], [], [], []]
    concrete = ["", "", "", strides, padding, ones, "False", zeros, "1"]
    assert kernel_of("aten::convolution", "implicit_convolve_sgemm", dims, concrete=concrete)["winograd"] is suits
