"""Shapes to work, worked out by hand."""

import pytest

from predictors.columns import prepare_kernels
from tests.kernels import kernel_of, only
from tracekit.models.lookups import get_distribution
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table


def test_addmm():
    row = kernel_of("aten::addmm", "ampere_sgemm", [[40], [8, 20], [20, 40], [], []])
    assert only(row, "family", "dtype", "batch", "m", "n", "k") == ("gemm", "fp32", 1, 8, 40, 20)


@pytest.mark.parametrize(
    ("op", "added", "factors", "beta", "elements"),
    [
        ("aten::addmm", [64, 128], [[64, 32], [32, 128]], "1", 14336 + 64 * 128),
        ("aten::addmm_", [64, 128], [[64, 32], [32, 128]], "", 14336 + 64 * 128),
        ("aten::baddbmm", [2, 64, 128], [[2, 64, 32], [2, 32, 128]], "0.5", 2 * (14336 + 64 * 128)),
        ("aten::addmv", [64], [[64, 32], [32]], "1", 64 * 32 + 32 + 64 + 64),
        # Not read, or a bias.
        ("aten::addmm", [64, 128], [[64, 32], [32, 128]], "0", 14336),
        ("aten::baddbmm", [2, 64, 128], [[2, 64, 32], [2, 32, 128]], "0.", 2 * 14336),
        ("aten::baddbmm", [2, 1, 128], [[2, 64, 32], [2, 32, 128]], "1", 2 * 14336),
        ("aten::addmm", [128], [[64, 32], [32, 128]], "1", 14336),
        ("aten::addmm", [128], [[1, 32], [32, 128]], "1", 32 + 32 * 128 + 128),
    ],
)
def test_the_matrix_that_a_product_is_added_to_is_read(op, added, factors, beta, elements):
    """64 rows by 32 by 128 columns are 14,336 elements of operands and result."""
    dims, types, concrete = [added, *factors, [], []], ["float"] * 3 + ["Scalar"] * 2, ["", "", "", beta, "1"]
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=types, concrete=concrete)
    table = build_kernel_table(builder.kernel("ampere_sgemm", 60, 30, launch=10).load().rank())
    assert prepare_kernels(table)["work_bytes"].to_list() == [4 * elements]


def test_a_row_that_is_expanded_to_a_matrix_is_no_matrix_to_add():
    arguments = {"dims": [[64, 128], [64, 32], [32, 128]], "types": ["float"] * 3, "concrete": [""] * 3}
    builder = TraceBuilder().op("aten::addmm", 0, 50, **arguments, **{"Input Strides": [[0, 1], [32, 1], [128, 1]]})
    assert build_kernel_table(builder.kernel("ampere_sgemm", 60, 30, launch=10).load().rank())["bytes"].item() is None


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        ("BFloat16", ("bf16", 2000)),
        ("Float8_e4m3fnuz", ("fp8", 1000)),
        ("Char", ("int8", 1000)),
        ("Long", (None, 8000)),
    ],
)
def test_the_type_of_a_message(dtype, told):
    message = {"Collective name": "_allgather_base", "Out msg nelems": 1000, "Group size": 4, "dtype": dtype}
    builder = TraceBuilder().kernel("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", 20, 5, launch=10, **message)
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    assert only(row, "collective", "dtype", "bytes") == ("all_gather", *told)


@pytest.mark.parametrize("half", ["c10::Half", "struct c10::Half"])
def test_types_as_linux_and_windows_name_them(half):
    row = kernel_of("aten::gelu", "vectorized_elementwise_kernel", [[64, 32], []], [half, ""])
    assert only(row, "dtype", "bytes") == ("fp16", 2 * 2 * 64 * 32)


def test_bmm_in_bf16():
    row = kernel_of("aten::bmm", "gemm", [[6, 8, 20], [6, 20, 40]], ["c10::BFloat16"] * 2)
    assert only(row, "dtype", "batch", "m", "n", "k") == ("bf16", 6, 8, 40, 20)


@pytest.mark.parametrize(
    ("left", "right", "product"),
    [([2, 8, 20], [20, 40], (1, 16, 40, 20)), ([2, 1, 8, 20], [3, 20, 40], (6, 8, 40, 20))],
)
def test_matmul_where_no_inner_op_was_recorded(left, right, product):
    row = kernel_of("aten::matmul", "ampere_sgemm", [left, right])
    assert only(row, "batch", "m", "n", "k") == product


def test_attention_where_no_inner_op_was_recorded():
    dims = [[2, 16, 128, 64], [2, 4, 256, 64], [2, 4, 256, 64], [], [], [], [], []]
    types, concrete = ["c10::BFloat16"] * 3 + [""] * 5, ["", "", "", "", "0.", "True", "", "False"]
    row = kernel_of("aten::scaled_dot_product_attention", "flash_fwd_kernel", dims, types, concrete)
    assert only(row, "heads", "kv_heads", "q_len", "kv_len", "causal") == (16, 4, 128, 256, True)


def test_a_kernel_named_tf32_is_tf32():
    row = kernel_of("aten::mm", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn", [[8, 20], [20, 40]])
    assert row["dtype"] == "tf32"


FP8, INT8, HALF = "c10::Float8_e4m3fn", "signed char", "c10::BFloat16"


@pytest.mark.parametrize(
    ("op", "kernel", "dims", "types", "dtype"),
    [
        ("vllm::apply_w8a8_block_fp8_linear", "_w8a8_triton_block_scaled_mm", [[16, 64], [32, 64]], [HALF, FP8], "fp8"),
        ("_C::cutlass_scaled_mm", "cutlass_3x_gemm", [[16, 32], [16, 64], [64, 32], [16, 1], [1, 32]],
         [HALF, FP8, FP8, "float", "float"], "fp8"),
        ("aiter::gemm_a8w8_ck", "gemm", [[16, 64], [32, 64], [16, 1], [1, 32]], [INT8, INT8, "float", "float"], "int8"),
        ("aten::_weight_int8pack_mm", "gemm", [[16, 64], [32, 64], [32]], [HALF, INT8, HALF], "bf16"),
        ("vllm::outplace_fused_experts", "fused_moe_kernel", [[16, 64], [8, 64, 64], [8, 64, 32], [16, 2], [16, 2]],
         [HALF, FP8, FP8, "float", "int"], "fp8"),
    ],
)  # fmt: skip
def test_a_product_of_eight_bits_is_told_by_its_factors_where_its_name_is_silent(op, kernel, dims, types, dtype):
    assert kernel_of(op, kernel, dims, types)["dtype"] == dtype


def test_a_helper_that_no_rule_knows_has_no_work_of_its_op():
    dims = [[4, 128, 28, 28], [4, 64, 28, 28], [128, 64, 3, 3]]
    row = kernel_of("aten::convolution_backward", "cask_cudnn::computeWgradSplitKOffsetsKernel", dims)
    assert only(row, "m", "bytes") == (None, None)


def test_the_sum_of_a_split_product_reads_two_parts_at_least():
    row = kernel_of("aten::mm", "void cublasLt::splitKreduce_kernel<32, 16>", [[8, 20], [20, 40]])
    assert only(row, "family", "bytes") == ("reduction", 8 * 40 * (2 * 4 + 4))


def test_flash_attention_with_grouped_heads():
    dims = [[2, 128, 32, 64], [2, 256, 8, 64], [2, 256, 8, 64], *[[]] * 7]
    concrete = [*[""] * 5, "128", "256", "0.", "True", "False"]
    row = kernel_of("aten::_flash_attention_forward", "flash_fwd_kernel", dims, ["c10::Half"] * 3, concrete)
    assert only(row, "family", "dtype", "batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal") == (
        "attention", "fp16", 2, 32, 8, 128, 256, 64, True,
    )  # fmt: skip


def test_values_narrower_than_keys_make_up_half_of_the_work():
    """DeepSeek's attention: scores of heads 192 wide, sums of values 128 wide."""
    dims = [[2, 128, 16, 192], [2, 128, 16, 192], [2, 128, 16, 128]]
    row = kernel_of("aiter::mha_fwd", "fmha_fwd_hd192_bf16", dims, ["c10::BFloat16"] * 3)
    assert 4 * row["head_dim"] == 2 * 192 + 2 * 128


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
    assert build_kernel_table(builder.load().rank())["share"].to_list() == [0.75, 0.25]


def test_an_op_that_runs_in_pieces_moves_its_bytes_once():
    builder = TraceBuilder().op("aten::mul", 0, 50, dims=[[1000], []], types=["float", "Scalar"])
    builder.kernel("vectorized_elementwise_kernel", 60, 30, launch=10)
    builder.kernel("vectorized_elementwise_kernel", 100, 30, launch=20)
    assert build_kernel_table(builder.load().rank())["share"].to_list() == [0.5, 0.5]


def test_kernels_of_one_selection_share_what_it_reads():
    builder = TraceBuilder().op(
        "aten::topk", 0, 50, dims=[[64, 1000], [], [], [], []], types=["float", *["Scalar"] * 4]
    )
    builder.kernel(
        "void at::native::mbtopk::radixFindKthValues<float, unsigned int, unsigned int, 2>", 60, 30, launch=9
    )
    builder.kernel("void at::native::mbtopk::gatherTopK<float, unsigned int, 2>", 100, 10, launch=20)
    kernels = build_kernel_table(builder.load().rank())
    assert (kernels["bytes"] * kernels["share"]).sum() == 4 * 64 * 1000


def test_kernels_without_an_op_share_nothing():
    builder = TraceBuilder().kernel("Memset (Device)", 5, 1, kind="gpu_memset", bytes=4, launch=0)
    builder.kernel("Memset (Device)", 15, 1, kind="gpu_memset", bytes=4, launch=10)
    assert build_kernel_table(builder.load().rank())["share"].to_list() == [1.0, 1.0]


def test_message_sizes_follow_nccl_tests():
    meta = {"In msg nelems": 1000, "Out msg nelems": 8000, "Group size": 8, "dtype": "BFloat16"}
    for name, canonical, size in (
        ("allreduce", "all_reduce", 2000),
        ("_allgather_base", "all_gather", 16000),
        ("_reduce_scatter_base", "reduce_scatter", 2000),
    ):
        builder = TraceBuilder().kernel("ncclDevKernel", 60, 30, launch=10, **meta, **{"Collective name": name})
        row = build_kernel_table(builder.load().rank()).row(0, named=True)
        assert only(row, "family", "collective", "bytes", "ranks") == ("collective", canonical, size, 8)


def test_an_output_among_the_inputs_is_written_not_read():
    row = kernel_of(
        "aten::clamp_min", "vectorized_elementwise_kernel", [[1024], [], [1024]], ["float", "Scalar", "float"]
    )
    assert row["bytes"] == 2 * 4 * 1024


def test_an_output_that_was_recorded_first_is_written_not_read():
    row = kernel_of("aten::addcmul", "vectorized_elementwise_kernel", [*[[1024]] * 4, []], [*["float"] * 4, "Scalar"])
    assert row["bytes"] == 4 * 4 * 1024


def test_the_norm_of_a_vector_is_a_reduction():
    kernel = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float> > >"
    row = kernel_of("aten::linalg_vector_norm", kernel, [[4096, 1024], [], [], [], []], ["float", *["Scalar"] * 4])
    assert only(row, "family", "bytes") == ("reduction", 4 * (4096 * 1024 + 1))


def test_a_tensor_without_axes_does_not_widen_the_result():
    row = kernel_of("aten::mul", "vectorized_elementwise_kernel", [[1024], []], ["c10::BFloat16", "double"])
    assert row["bytes"] == 2 * 2 * 1024 + 8


def test_an_expanded_axis_is_read_once():
    builder = TraceBuilder().op(
        "aten::add", 0, 50, dims=[[64, 128], [64, 128], []], types=["float", "float", "Scalar"],
        **{"Input Strides": [[128, 1], [1, 0], []]},
    )  # fmt: skip
    row = build_kernel_table(builder.kernel("elementwise_kernel", 60, 30, launch=10).load().rank()).row(0, named=True)
    assert row["bytes"] == 4 * (64 * 128 + 64 + 64 * 128)


@pytest.mark.parametrize(
    ("op", "dims", "types", "bytes_"),
    [
        ("aten::gather", [[5000, 64], [], [8, 64], []], ["float", "Scalar", "long", "Scalar"], 2 * 4 * 512 + 8 * 512),
        ("aten::gather", [[50], [], [512], []], ["float", "Scalar", "long", "Scalar"], 4 * 562 + 8 * 512),
        ("aten::scatter_", [[5000], [], [512], [512]], ["float", "Scalar", "long", "float"], 2 * 4 * 512 + 8 * 512),
        ("aten::scatter_", [[5000], [], [512], []], ["long", "Scalar", "long", "Scalar"], 8 * 512 + 8 * 512),
        ("aten::scatter_add_", [[50], [], [512], [512]], ["float", "Scalar", "long", "float"],
         4 * (512 + 2 * 50) + 8 * 512),
        ("aten::index_add_", [[5000, 64], [], [8], [8, 64], []], ["c10::Half", "Scalar", "long", "c10::Half", "Scalar"],
         3 * 2 * 512 + 8 * 8),
        ("aten::index_copy_", [[5000, 64], [], [8], [8, 64]], ["float", "Scalar", "long", "float"],
         2 * 4 * 512 + 8 * 8),
        ("aten::index_put_", [[5000, 64], [], [8, 64], []], ["float", "", "float", "Scalar"], 2 * 4 * 512),
        ("aten::index_put_", [[5000, 64], [], [], []], ["float", "", "float", "Scalar"], None),
        ("aten::mul", [[8, 64], [8, 64]], ["c10::Half", "long int"], (2 + 8 + 2) * 512),
        ("aten::mul", [[8, 64], [8, 64]], ["bool", "long int"], (1 + 8 + 8) * 512),
        ("aten::index", [[5000, 64], [[8]]], ["float", "TensorList"], 2 * 4 * 512 + 8 * 8),
        ("aten::index", [[5000, 64], [[8, 1], [4]]], ["float", "TensorList"], 2 * 4 * 32 + 8 * (8 + 4)),
        ("aten::index", [[16, 27, 27], [[], [351], [351]]], ["float", "TensorList"], 2 * 4 * 16 * 351 + 8 * 2 * 351),
        ("aten::embedding", [[5000, 64], [2, 4]], ["c10::Half", "long int"], 2 * 2 * 512 + 8 * 8),
        ("aten::_foreach_zero_", [[[100], [28]]], ["TensorList"], 4 * 128),
        ("aten::cat", [[[8, 64], [2, 64]], []], ["TensorList", "Scalar"], 2 * 4 * 640),
        ("aten::native_dropout", [[640], [], []], ["float", "Scalar", "Scalar"], 9 * 640),
        ("aten::native_dropout_backward", [[640], [640], []], ["float", "bool", "Scalar"], 9 * 640),
        ("aten::_masked_scale", [[640], [640], []], None, 9 * 640),
        ("aten::sort", [[640], [], []], ["float", "Scalar", "Scalar"], (4 + 4 + 8) * 640),
        ("_C::fused_add_rms_norm", [[8, 64], [8, 64], [64], []], ["c10::Half"] * 3 + ["Scalar"], 2 * (4 * 512 + 64)),
        ("sgl_kernel::silu_and_mul", [[8, 64], [8, 128]], ["c10::BFloat16"] * 2, 2 * 3 * 512),
        ("_C_cache_ops::reshape_and_cache_flash", [[8, 2, 64], [8, 2, 64], [9, 16, 2, 64], [9, 16, 2, 64], [8]],
         ["c10::BFloat16", "c10::BFloat16", "unsigned char", "unsigned char", "long int"], 2048 * 3 + 64),
        ("_C::rotary_embedding", [[8], [8, 512], [8, 64], [], [4096, 64], []],
         ["long int", *["c10::Half"] * 2, "Scalar", "c10::Half", "Scalar"], 2 * 2 * 8 * 576 + 8 * (64 * 2 + 8)),
    ],
)  # fmt: skip
def test_what_ops_move(op, dims, types, bytes_):
    row = kernel_of(op, "vectorized_elementwise_kernel<4, float>", dims, types)
    assert row["bytes"] == bytes_


@pytest.mark.parametrize(
    ("element", "item_bytes"),
    [
        ("at::native::(anonymous namespace)::OpaqueType<2u>", 2),
        ("at::native::(anonymous namespace)::OpaqueType<(unsigned int)2>", 2),
        ("c10::BFloat16", 2),
        ("bool", 1),
        ("long", 8),
    ],
)
def test_the_name_of_a_join_tells_the_size_of_elements(element, item_bytes):
    """The trace calls the type of a list of tensors ``TensorList``."""
    kernel = f"void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<{element}, unsigned int, 2, 128, 1>"
    row = kernel_of("aten::cat", kernel, [[[8, 64], [2, 64]], []], ["TensorList", "Scalar"])
    assert row["bytes"] == 2 * item_bytes * 640


@pytest.mark.parametrize(
    ("shape", "written", "read", "across"),
    [
        ([512, 256], [256, 1], [1, 512], True),
        ([512, 256], [256, 1], [512, 1], False),
        ([8, 64, 56, 56], [200704, 1, 3584, 64], [200704, 3136, 56, 1], True),
        ([8, 3, 56, 56], [9408, 1, 168, 3], [9408, 3136, 56, 1], False),
        ([512, 256], [256, 1], [1, 0], False),
        ([512, 256], [], [], None),
        ([512, 256], [256, 1], [1, "512"], None),
        ([512, 256], [256, 1], [1, None], None),
    ],
    ids=["transposed", "sliced", "channels last", "few channels", "expanded", "no strides", "texts", "nothing"],
)
def test_which_copies_lie_across(shape, written, read, across):
    lain = {"Input Strides": [written, read, []]}
    builder = TraceBuilder().op("aten::copy_", 0, 50, dims=[shape, shape, []], types=["float", "float", ""], **lain)
    kernel = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    row = build_kernel_table(builder.kernel(kernel, 60, 30, launch=10).load().rank()).row(0, named=True)
    assert only(row, "indexed", "across") == (True, across)


@pytest.mark.parametrize(("axis", "picked"), [("0", 8 * 64), ("1", 5000 * 8), ("-1", 5000 * 8)])
def test_rows_are_picked_along_the_axis_that_was_asked_for(axis, picked):
    types, concrete = ["float", "Scalar", "long int"], ["", axis, ""]
    row = kernel_of("aten::index_select", "indexSelectLargeIndex", [[5000, 64], [], [8]], types, concrete)
    assert row["bytes"] == 2 * 4 * picked + 8 * 8


def test_max_pooling_writes_positions_too():
    concrete = ["", "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"]
    dims = [[2, 8, 112, 112], [], [], [], [], []]
    row = kernel_of("aten::max_pool2d_with_indices", "max_pool_forward_nchw<float>", dims, concrete=concrete)
    assert row["bytes"] == 4 * 2 * 8 * 112 * 112 + 2 * 8 * 56 * 56 * (4 + 8)
    assert (row["rows"], row["cols"], row["flops"]) == (2 * 8 * 56 * 56, 9, 9 * 2 * 8 * 56 * 56)
    assert row["indexed"]


def test_the_gradient_of_max_pooling_reads_positions_too():
    dims = [[2, 8, 56, 56], [2, 8, 112, 112], [], [], [], [], [], [2, 8, 56, 56]]
    types = ["float", "float", *["Scalar"] * 5, "long int"]
    row = kernel_of("aten::max_pool2d_with_indices_backward", "max_pool_backward_nchw<float>", dims, types)
    assert row["bytes"] == 2 * 8 * 56 * 56 * (4 + 8) + 4 * 2 * 8 * 112 * 112
    assert (row["rows"], row["cols"], row["indexed"]) == (2 * 8 * 112 * 112, 9, True)


def test_no_pooling_window_begins_behind_the_input():
    """Of 5 and 6, rounded up: windows of 3 by steps of 2, padded by 1, are 3 and 4; of 2 by steps of 3, 2 and 2."""
    concrete = ["", "[3, 3]", "[2, 2]", "[1, 1]", "True", "True", ""]
    row = kernel_of("aten::avg_pool2d", "avg_pool2d_out", [[1, 1, 5, 6], *[[]] * 6], concrete=concrete)
    assert row["bytes"] == 4 * (5 * 6 + 3 * 4)
    concrete = ["", "[2, 2]", "[3, 3]", "[0, 0]", "True", "True", ""]
    row = kernel_of("aten::avg_pool2d", "avg_pool2d_out", [[1, 1, 5, 6], *[[]] * 6], concrete=concrete)
    assert row["bytes"] == 4 * (5 * 6 + 2 * 2)


def test_running_statistics_of_a_batch_norm_are_values_per_channel():
    dims = [[512, 64, 56, 56], [64], [64], [64], [64], [], [], []]
    kernel = "void at::native::(anonymous namespace)::unrolled_elementwise_kernel_for_multi_outputs<3, float>"
    assert kernel_of("aten::native_batch_norm", kernel, dims)["bytes"] == 7 * 64 * 4


def test_each_pass_of_a_batch_norm_has_its_own_work():
    dims = [[2, 8, 16, 16], [8], [8], [8], [8], [], [], []]
    forward, backward = "aten::native_batch_norm", "aten::native_batch_norm_backward"
    for op, kernel, passes, part in (
        (forward, "batch_norm_collect_statistics_kernel", 1, "sums"),
        (forward, "batch_norm_collect_statistics_channels_last_kernel", 1, None),
        (forward, "batch_norm_transform_input_kernel", 2, "scaling"),
        (backward, "batch_norm_backward_kernel", 3, "sums"),
        (backward, "batch_norm_backward_reduce_kernel", 2, "sums"),
        (backward, "batch_norm_backward_reduce_channels_last_kernel", 2, None),
        (backward, "batch_norm_backward_elemt_kernel", 3, "scaling"),
    ):
        row = kernel_of(op, kernel, dims)
        assert only(row, "family", "bytes", "share", "part") == ("norm", passes * 4 * 2 * 8 * 256, 1.0, part)
        assert only(row, "rows", "cols") == (8, 2 * 256)


@pytest.mark.parametrize(
    ("kernel", "part"), [("KernelTemplate<c10::BFloat16, float, 32>", "column sums"), ("_simple", None)]
)
def test_gradients_of_a_layer_norms_weights_read_input_and_gradient(kernel: str, part: str | None):
    dims = [[64, 196, 768], [64, 196, 768], [], [64, 196, 1], [64, 196, 1], [768], [768], []]
    values = ["", "", "[768]", "", "", "", "", ""]
    name = f"void at::native::(anonymous namespace)::GammaBetaBackwardCUDA{kernel}"
    row = kernel_of("aten::native_layer_norm_backward", name, dims, concrete=values)
    assert only(row, "family", "bytes", "part", "rows", "cols") == ("norm", 2 * 4 * 64 * 196 * 768, part, 64 * 196, 768)


def test_sorting_an_ops_indices_is_not_its_work():
    kernel = "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<int>"
    assert kernel_of("aten::_index_put_impl_", kernel, [[8192, 351], [8192], [], [], []])["bytes"] is None
    assert kernel_of("aten::sort", kernel, [[8192, 351], [], []])["bytes"] is not None


def test_deviations_of_a_batch_norm_are_values_per_channel():
    kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::batch_norm_calc_invstd<float>"
    row = kernel_of("aten::native_batch_norm", kernel, [[512, 64, 56, 56], [64], [64], [64], [64], [], [], []])
    assert only(row, "family", "rows", "bytes") == ("norm", 64, 2 * 64 * 4)


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("aten::cudnn_batch_norm", "void cudnn::bn_fw_inf_1C11_kernel_NCHW<__half, float, true, 1>"),
        ("aten::miopen_batch_norm", "MIOpenBatchNormFwdInferSpatialEst"),
        ("aten::native_batch_norm", "void at::native::elementwise_kernel<128, 2, at::native::batch_norm_elementwise"),
    ],
)
def test_a_batch_norm_with_given_statistics_goes_over_its_elements_once(op: str, kernel: str):
    row = kernel_of(op, kernel, [[2, 8, 16, 7], [8], [8], [8], [8]])
    assert only(row, "family", "bytes") == ("elementwise", 2 * 4 * 2 * 8 * 16 * 7 + 4 * 4 * 8)


def test_sequences_that_are_all_as_long_as_the_longest():
    dims = [[300, 32, 128], [9000, 8, 128], [9000, 8, 128], [4], [4], [310], *[[]] * 8]
    concrete = [*[""] * 6, "100", "100", "0.", "0.08", "0.", "False", "True"]
    row = kernel_of(
        "aiter::mha_batch_prefill", "FmhaBatchPrefillWithPagedKVCacheKernel", dims, ["c10::BFloat16"] * 3, concrete
    )
    assert only(row, "batch", "heads", "kv_heads", "q_len", "kv_len", "causal") == (3, 32, 8, 100, 100, True)
    concrete[6] = "120"
    row = kernel_of(
        "aiter::mha_batch_prefill", "FmhaBatchPrefillWithPagedKVCacheKernel", dims, ["c10::BFloat16"] * 3, concrete
    )
    assert row["q_len"] is None


@pytest.mark.parametrize(("tokens", "keys"), [(1024, 1024), (1, 700)])
def test_the_keys_of_one_sequence_in_paged_memory_are_as_many_as_its_longest(tokens, keys):
    """vLLM's FlashAttention 2: pages of 16 keys, the sequences' starts, one table of pages."""
    pages = [40207, 16, 8, 128]
    dims = [[tokens, 32, 128], pages, pages, [tokens, 32, 128], [2], [2], [1], [], [1, 256], *[[]] * 13]
    concrete = [*[""] * 10, str(tokens), str(keys), "0.", "0.088", "False", "True", "-1", "-1", "0.", "False", "0", ""]
    op, kernel = "_vllm_fa2_C::varlen_fwd", "flash_fwd_splitkv_kernel"
    row = kernel_of(op, kernel, dims, ["c10::BFloat16"] * 4, concrete)
    assert only(row, "batch", "heads", "kv_heads", "q_len", "kv_len", "causal") == (1, 32, 8, tokens, keys, True)
    dims[4] = [3]
    assert kernel_of(op, kernel, dims, ["c10::BFloat16"] * 4, concrete)["q_len"] is None


@pytest.mark.parametrize("op", ["_vllm_fa3_C::fwd", "sgl_kernel::fwd"])
def test_flash_attention_3_of_serving_engines(op):
    """One sequence of 300 tokens over pages of 16 keys; two of 300 keys each that lie one after another."""
    pages, kernel = [40207, 16, 8, 128], "flash::FlashAttnFwdSm90"
    concrete = [*[""] * 12, "300", "300", *[""] * 9, "0.088", "True", "-1", "-1", "0."]
    dims = [
        [300, 32, 128],
        pages,
        pages,
        [],
        [],
        [],
        [300, 32, 128],
        [2],
        [],
        [],
        [],
        [1],
        [],
        [],
        [1, 256],
        *[[]] * 13,
    ]
    row = kernel_of(op, kernel, dims, ["c10::BFloat16"] * 3, concrete)
    assert only(row, "batch", "kv_heads", "q_len", "kv_len", "causal", "paged") == (1, 8, 300, 300, True, True)
    dims[:3], dims[7:9] = [[600, 32, 128], [600, 8, 128], [600, 8, 128]], [[3], [3]]
    row = kernel_of(op, kernel, dims, ["c10::BFloat16"] * 3, concrete)
    assert only(row, "batch", "kv_heads", "q_len", "kv_len", "causal", "paged") == (2, 8, 300, 300, True, False)


def test_copies_that_recorded_no_size_move_what_their_op_copies():
    row = kernel_of("aten::copy_", "Memcpy DtoD (Device -> Device)", [[8, 4], [8, 4], []], kind="gpu_memcpy")
    assert only(row, "bytes", "work_from") == (128, "recorded")


@pytest.mark.parametrize("elements", [640_339_856, 4800])
def test_lookups_read_each_different_row_once(elements):
    """FBGEMM: 1792 indices into 3 tables of 16 fp32 each, summed for 128 samples."""
    dims = [[0], [elements], [0], [0, 0], [3], [3], [4], [], [], [4], [], [1792], [385]]
    types = ["float", "float", "float", "float", "int", "longint", "int", "", "", "longint", "", "longint", "longint"]
    builder = TraceBuilder().op(
        "fbgemm::split_embedding_codegen_lookup_adagrad_function",
        0,
        20,
        dims=dims,
        types=types,
        concrete=["", "", "", "", "", "", "", "48", "16", "", "26", "", ""],
    )
    builder.kernel("void split_embedding_codegen_forward_unweighted_kernel<float, float, float>()", 30, 9, launch=5)
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    unique = 3 * get_distribution(elements // 48).expect_unique(1792 / 3)
    assert (row["family"], row["rows"], row["cols"], row["flops"]) == ("embedding", 1792, 16, 1792 * 16)
    assert row["bytes"] == round(unique * 16 * 4) + 128 * 48 * 4 + (1792 + 385) * 8
    assert row["accessed_bytes"] - row["bytes"] == pytest.approx((1792 - unique) * 16 * 4, abs=1)


def test_rows_of_a_rowwise_optimizer_tell_the_width_of_lookups():
    """Values weren't recorded before 2022: 160,000 halves in 1000 rows are 160 wide, for 4 samples of 2 tables."""
    dims = [[0], [160_000], [0], [0, 0], [2], [2], [3], [], [], [3], [], [50], [9], *([[]] * 7), [1000]]
    types = ["float", "c10::Half", "c10::Half", "c10::Half", "int", "long", "int", "", "", "long", "", "long", "long"]
    builder = TraceBuilder().op(
        "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
        0,
        20,
        dims=dims,
        types=[*types, *([""] * 7), "float"],
    )
    builder.kernel("void split_embedding_codegen_forward_unweighted_kernel<c10::Half>()", 30, 9, launch=5)
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    unique = 2 * get_distribution(500).expect_unique(25)
    assert row["bytes"] == round(unique * 160 * 2) + 4 * 2 * 160 * 4 + (50 + 9) * 8
