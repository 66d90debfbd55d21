"""Shapes to work, worked out by hand."""

import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.extract import extract


def kernel_of(op, kernel, dims, types=None, concrete=None, **launch):
    types = types or ["float"] * len(dims)
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=types, concrete=concrete)
    return extract(builder.kernel(kernel, 60, 30, launch=10, **launch).load().rank()).row(0, named=True)


def only(row, *names):
    return tuple(row[name] for name in names)


def test_addmm():
    row = kernel_of("aten::addmm", "ampere_sgemm", [[40], [8, 20], [20, 40], [], []])
    assert only(row, "family", "dtype", "batch", "m", "n", "k") == ("gemm", "fp32", 1, 8, 40, 20)


def test_bmm_in_bf16():
    row = kernel_of("aten::bmm", "gemm", [[6, 8, 20], [6, 20, 40]], ["c10::BFloat16"] * 2)
    assert only(row, "dtype", "batch", "m", "n", "k") == ("bf16", 6, 8, 40, 20)


def test_a_kernel_named_tf32_is_tf32():
    row = kernel_of("aten::mm", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn", [[8, 20], [20, 40]])
    assert row["dtype"] == "tf32"


def test_convolution_of_stride_two():
    # 32 images of 3x224x224, 64 filters of 3x7x7, stride 2, padding 3: 112x112 outputs.
    row = kernel_of(
        "aten::cudnn_convolution", "sm80_xmma_fprop_implicit_gemm", [[32, 3, 224, 224], [64, 3, 7, 7], [], [], [], [],
        [], [], []], ["float", "float"] + [""] * 7,
        ["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"],
    )  # fmt: skip
    assert only(row, "batch", "m", "n", "k") == (1, 32 * 112 * 112, 64, 3 * 7 * 7)
    assert row["bytes"] == 4 * (32 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 32 * 64 * 112 * 112)


def test_depthwise_convolution_has_one_group_per_channel():
    row = kernel_of(
        "aten::convolution", "conv_depthwise2d_forward", [[2, 16, 10, 10], [16, 1, 3, 3], [], [], [], [], [], [], []],
        ["float", "float"] + [""] * 7, ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "16"],
    )  # fmt: skip
    assert only(row, "batch", "m", "n", "k") == (16, 2 * 10 * 10, 1, 9)


def test_convolution_without_recorded_arguments_has_no_work():
    row = kernel_of("aten::cudnn_convolution", "volta_scudnn_128x64", [[32, 3, 224, 224], [64, 3, 7, 7]])
    assert (row["family"], row["m"]) == ("conv", None)


@pytest.mark.parametrize(
    ("kernel", "direction", "m", "n", "k"),
    [
        ("sm80_xmma_dgrad_implicit_gemm", "dgrad", 4 * 28 * 28, 64 * 9, 128),
        ("sm80_xmma_wgrad_implicit_gemm", "wgrad", 128, 64 * 9, 4 * 28 * 28),
        ("igemm_wrw_gtcx3", "wgrad", 128, 64 * 9, 4 * 28 * 28),
    ],
)
def test_both_gradients_of_a_convolution_have_the_forward_flops(kernel, direction, m, n, k):
    dims = [[4, 128, 28, 28], [4, 64, 28, 28], [128, 64, 3, 3]]
    row = kernel_of("aten::convolution_backward", kernel, dims)
    assert only(row, "direction", "m", "n", "k") == (direction, m, n, k)
    assert m * n * k == 4 * 28 * 28 * 128 * 64 * 9


def test_kernels_that_assist_a_convolution_have_no_work_of_theirs():
    dims = [[4, 128, 28, 28], [4, 64, 28, 28], [128, 64, 3, 3]]
    row = kernel_of("aten::convolution_backward", "void cudnn::ops::nchwToNhwcKernel<float>", dims)
    assert only(row, "family", "m", "bytes") == ("copy", None, None)


def test_flash_attention_with_grouped_heads():
    dims = [[2, 128, 32, 64], [2, 256, 8, 64], [2, 256, 8, 64], *[[]] * 7]
    concrete = [*[""] * 5, "128", "256", "0.", "True", "False"]
    row = kernel_of("aten::_flash_attention_forward", "flash_fwd_kernel", dims, ["c10::Half"] * 3, concrete)
    assert only(row, "family", "dtype", "batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal") == (
        "attention", "fp16", 2, 32, 8, 128, 256, 64, True,
    )  # fmt: skip


def test_broadcast_addition_reads_the_small_input_once():
    row = kernel_of("aten::add", "vectorized_elementwise_kernel", [[8, 1024], [1024], []], ["float", "float", "Scalar"])
    assert row["bytes"] == 4 * (8 * 1024 + 1024 + 8 * 1024)
    assert only(row, "rows", "cols", "flops") == (8, 1024, 8 * 1024)


def test_fill_only_writes():
    row = kernel_of("aten::fill_", "vectorized_elementwise_kernel", [[1024], []], ["c10::BFloat16", "Scalar"])
    assert row["bytes"] == 2 * 1024


def test_softmax_reads_and_writes_once():
    row = kernel_of("aten::_softmax", "cunn_SoftMaxForward", [[16, 512, 512], [], []], ["c10::BFloat16", "Scalar", ""])
    assert row["bytes"] == 2 * 2 * 16 * 512 * 512


def test_fused_adam_reads_four_lists_and_writes_three():
    lists = [[[100], [50]]] * 4
    row = kernel_of("aten::_fused_adamw_", "multi_tensor_apply_kernel", [*lists, [], []], ["TensorList"] * 4)
    assert only(row, "family", "bytes") == ("optimizer", 7 * 4 * 150)


def test_an_op_of_an_unknown_library_has_no_work():
    row = kernel_of("mylib::fused", "void vectorized_elementwise_kernel", [[1024], [1024]])
    assert only(row, "family", "bytes") == ("elementwise", None)


def test_copies_move_the_bytes_that_were_recorded():
    row = kernel_of("aten::copy_", "Memcpy HtoD (Pinned -> Device)", [[8], [8]], kind="gpu_memcpy", bytes=32)
    assert only(row, "family", "copy_kind", "bytes") == ("memcpy", "HtoD", 32)


def test_kernels_of_one_product_share_its_work_by_time():
    builder = TraceBuilder().op("aten::mm", 0, 50, dims=[[8, 20], [20, 40]], types=["float", "float"])
    builder.kernel("gemm_a", 60, 30, launch=10).kernel("gemm_b", 100, 10, launch=20)
    assert extract(builder.load().rank())["share"].to_list() == [0.75, 0.25]


def test_an_op_that_runs_in_pieces_moves_its_bytes_once():
    builder = TraceBuilder().op("aten::mul", 0, 50, dims=[[1000], []], types=["float", "Scalar"])
    builder.kernel("vectorized_elementwise_kernel", 60, 30, launch=10)
    builder.kernel("vectorized_elementwise_kernel", 100, 30, launch=20)
    assert extract(builder.load().rank())["share"].to_list() == [0.5, 0.5]


def test_kernels_without_an_op_share_nothing():
    builder = TraceBuilder().kernel("Memset (Device)", 5, 1, kind="gpu_memset", bytes=4, launch=0)
    builder.kernel("Memset (Device)", 15, 1, kind="gpu_memset", bytes=4, launch=10)
    assert extract(builder.load().rank())["share"].to_list() == [1.0, 1.0]


def test_message_sizes_follow_nccl_tests():
    meta = {"In msg nelems": 1000, "Out msg nelems": 8000, "Group size": 8, "dtype": "BFloat16"}
    for name, canonical, size in (
        ("allreduce", "all_reduce", 2000),
        ("_allgather_base", "all_gather", 16000),
        ("_reduce_scatter_base", "reduce_scatter", 2000),
    ):
        builder = TraceBuilder().kernel("ncclDevKernel", 60, 30, launch=10, **meta, **{"Collective name": name})
        row = extract(builder.load().rank()).row(0, named=True)
        assert only(row, "family", "collective", "bytes", "ranks") == ("collective", canonical, size, 8)
