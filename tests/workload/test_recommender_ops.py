"""Recommenders' ops beside look-ups, worked out by hand."""

import pytest

from tests.kernels import kernel_of, only
from tests.tables import find_failures
from tracekit.workload.ops.registry import OP_KERNELS
from tracekit.workload.signature import Signature

# 24 features of 16 samples: 384 lengths, and 1,920 indices.
FEATURES, SAMPLES, INDICES = 24, 16, 1920
PERMUTED = ([[FEATURES], [FEATURES, SAMPLES], [INDICES], [], []], ["int", "int", "int", "", "Scalar"])
HALF = ([[FEATURES // 2], [FEATURES, SAMPLES], [INDICES], [INDICES], []], ["int", "int", "long", "float", "Scalar"])
BUCKETS = (
    [[384], [INDICES], [], [], [FEATURES], [], []],
    ["int", "long", "Scalar", "Scalar", "long", "Scalar", ""],
    ["", "", "True", "True", "", "4", ""],
)
# 100 rows of 32 in fp32, of 10 samples with up to 20 rows.
JAGGED = ([[100, 32], [[11]], [], []], ["float", "TensorList", "ScalarList", "Scalar"], ["", "", "[20]", "0."])
PADDED = ([[10, 20, 32], [[11]], []], ["float", "TensorList", "Scalar"])
ADDED = ([[100, 32], [[11]], [10, 20, 32]], ["float", "TensorList", "float"], ["", "", ""])
KEYED = (
    [[INDICES], [384], [385], [8], [], []],
    ["long", "long", "long", "long", "Scalar", ""],
    ["", "", "", "", "16", ""],
)
REGROUPED = ([[[64, 48], [64, 80]], [9, 6], [2], [3], []], ["TensorList", "int", "int", "int", "ScalarList"])
ROW = 32 * 4

CASES = [
    ("fbgemm::permute_2D_sparse_data", "fbgemm_gpu::permute_2D_data_kernel<false, int>", *PERMUTED, None,
     "copy", 2 * 4 * INDICES + 2 * 4 * 384),
    ("fbgemm::permute_2D_sparse_data", "fbgemm_gpu::permute_2D_data_kernel_vec<true>", *HALF, None,
     "copy", 2 * (8 + 4) * INDICES // 2 + 2 * 4 * 192),
    ("fbgemm::permute_2D_sparse_data", "fbgemm_gpu::permute_2D_data_kernel_vec<true>", *HALF, ["", "", "", "", "500"],
     "copy", 2 * (8 + 4) * 500 + 2 * 4 * 192),
    ("fbgemm::permute_1D_sparse_data", "fbgemm_gpu::permute_1D_data_kernel<false>",
     [[384], [384], [INDICES], [], []], PERMUTED[1], None, "copy", 2 * 4 * INDICES + 2 * 4 * 384),
    ("fb::permute_sparse_features", "fbgemm_gpu::permute_indices_weights_kernel<false>", *PERMUTED, None,
     "copy", 2 * 4 * INDICES + 2 * 4 * 384),
    ("fbgemm::permute_2D_sparse_data", "fbgemm_gpu::permute_2D_lengths_kernel<int>", *PERMUTED, None,
     "copy", 2 * 4 * 384 + 4 * FEATURES),
    ("fbgemm::permute_2D_sparse_data", "cub::DeviceScanKernel<int>", *PERMUTED, None, "reduction", 2 * 4 * 384),
    ("fbgemm::permute_2D_sparse_data", "cub::DeviceScanInitKernel<int>", *PERMUTED, None, "elementwise", 4096),
    ("fbgemm::asynchronous_complete_cumsum", "cub::DeviceScanKernel<long>", [[1000]], ["long"], None,
     "reduction", 2 * 8 * 1000),
    ("fbgemm::bounds_check_indices", "bounds_check_indices_kernel<long>",
     [[6], [33398], [393217], [], [1]], ["long", "long", "long", "Scalar", "long"], None,
     "reduction", 8 * (33398 + 393217)),
    ("fbgemm::block_bucketize_sparse_features", "_block_bucketize_sparse_features_cuda_kernel1<int>", *BUCKETS,
     "copy", 8 * INDICES + (1 + 4) * 4 * 384),
    ("fbgemm::block_bucketize_sparse_features", "_block_bucketize_pooled_sparse_features_cuda_kernel2<int>", *BUCKETS,
     "copy", (2 + 2) * 8 * INDICES + (1 + 4) * 4 * 384),
    ("fbgemm::block_bucketize_sparse_features", "cub::DeviceScanKernel<int>", *BUCKETS,
     "reduction", 2 * 4 * (384 + 4 * 384) // 2),
    ("fbgemm::bucketize_sparse_features", "_bucketize_sparse_features_cuda_kernel2<int>",
     [[384], [INDICES], [], [], []], ["int", "long", "Scalar", "Scalar", ""], ["", "", "False", "2", ""],
     "copy", 2 * 8 * INDICES + 3 * 4 * 384),
    ("fbgemm::populate_bucketized_permute", "_populate_bucketized_permute_cuda_kernel<int>",
     [[384], [1536], [INDICES]], ["int", "int", "long"], None, "copy", 2 * 8 * INDICES),
    ("fbgemm::offsets_range", "_offsets_range_cuda_kernel<long>", [[385], []], ["long", "Scalar"], ["", "1920"],
     "copy", 8 * (INDICES + 385)),
    ("fb::offsets_range", "_offsets_range_cuda_kernel<long>", [[385], [INDICES]], ["long", "int"], None,
     "copy", 8 * (INDICES + 385)),
    ("fbgemm::expand_into_jagged_permute", "expand_into_jagged_permute_kernel<int>",
     [[24], [25], [25], []], ["int", "int", "int", "Scalar"], ["", "", "", "384"], "copy", 4 * (384 + 25)),
    ("fbgemm::segment_sum_csr", "_segment_sum_csr_cuda_kernel<float>", [[], [11], [200]], ["Scalar", "int", "float"],
     ["2", "", ""], "reduction", 4 * (200 + 11 + 10)),
    ("fbgemm::jagged_to_padded_dense_forward", "jagged_dense_elementwise_dense_output_kernel_<1>", *JAGGED,
     "elementwise", (100 + 200) * ROW),
    ("fbgemm::jagged_to_padded_dense_backward", "jagged_dense_dense_elementwise_jagged_output_opt_gather_kernel_",
     *PADDED, ["", "", "100"], "elementwise", 2 * 100 * ROW),
    ("fbgemm::dense_to_jagged_forward", "jagged_dense_dense_elementwise_jagged_output_opt_search_kernel_",
     *PADDED, ["", "", "100"], "elementwise", 8 * 100 + 4 * 11),
    ("fbgemm::jagged_dense_elementwise_add", "jagged_dense_elementwise_dense_output_kernel_<1>", *ADDED,
     "elementwise", (100 + 2 * 200) * ROW),
    ("fbgemm::jagged_dense_elementwise_mul_forward", "jagged_dense_dense_elementwise_jagged_output_kernel_<1>", *ADDED,
     "elementwise", 3 * 100 * ROW),
    ("fbgemm::jagged_index_select_2d_forward", "jagged_index_select_2d_kernel<long>",
     [[100, 32], [5], [10], [5], []], ["float", "long", "long", "long", "Scalar"], ["", "", "", "", "60"],
     "copy", 2 * 60 * ROW),
    ("fbgemm::jagged_index_select_2d_forward", "jagged_index_select_2d_kernel<long>",
     [[100, 32], [5], [10], [5], []], ["float", "long", "long", "long", "Scalar"], None, "copy", 2 * 50 * ROW),
    ("fbgemm::keyed_jagged_index_select_dim1", "keyed_jagged_index_select_dim1_kernel<long>", *KEYED,
     "copy", 2 * 8 * INDICES // 2),
    ("fbgemm::keyed_jagged_index_select_dim1", "index_select_scalar_cumsum_kernel<long>", *KEYED,
     "reduction", 3 * 8 * 192),
    ("fbgemm::stacked_jagged_2d_to_dense_forward", "jagged_dense_elementwise_dense_output_kernel_<1>",
     [[100, 32], [2, 10], [], []], ["float", "long", "ScalarList", "ScalarList"], ["", "", "[0, 60, 100]", "[8, 4]"],
     "elementwise", (50 + 60) * ROW),
    ("fbgemm::jagged_dense_bmm_forward", "jagged_dense_bmm_kernel<long>",
     [[100, 32], [11], [10, 32, 8], []], ["float", "long", "float", "Scalar"], None,
     "elementwise", 4 * (100 * 32 + 10 * 32 * 8 + 100 * 8)),
    ("fbgemm::jagged_jagged_bmm_forward", "jagged_jagged_bmm_kernel<long>",
     [[100, 32], [100, 8], [11], []], ["float", "float", "long", "Scalar"], None,
     "elementwise", 4 * (100 * 32 + 100 * 8 + 10 * 32 * 8)),
    ("fbgemm::permute_multi_embedding", "permute_multi_embs_kernel<float>", *REGROUPED, ["", "", "", "", "[48, 40]"],
     "copy", 2 * 4 * 64 * 88),
    ("fbgemm::permute_multi_embedding", "permute_multi_embs_kernel<float>", *REGROUPED, None, "copy", 2 * 4 * 64 * 128),
    ("fbgemm::permute_pooled_embs_auto_grad", "permute_pooled_embs_kernel<float>", [[64, 48], [4]], ["float", "long"],
     None, "copy", 2 * 4 * 64 * 48),
    ("fbgemm::recat_embedding_grad_output_mixed_D_batch", "recat_copy_async_kernel<float>", [[64, 48], [2], [2]],
     ["float", "long", "long"], None, "copy", 2 * 4 * 64 * 48),
    ("fbgemm::group_index_select_dim0_gpu_impl", "group_index_select_or_add_2d_kernel<long>",
     [[[100, 32], [50, 8], [7], [9]], []], ["TensorList", "Scalar"], ["", "2"],
     "embedding", 2 * 4 * (7 * 32 + 9 * 8) + 8 * 16),
    ("fbgemm::batch_index_select_dim0", "batch_index_select_dim0_codegen_forward_kernel<float>",
     [[3600], [], [], [], [16]], ["float", "ScalarList", "ScalarList", "ScalarList", "long"],
     ["", "[7, 9]", "[100, 50]", "[32, 8]", ""], "embedding", 2 * 4 * (7 * 32 + 9 * 8) + 8 * 16),
    ("aten::index", "at::native::index_elementwise_kernel<128, 4>", [[16, 27, 27], []], ["float", ""], None,
     "copy", 2 * 4 * 16 * 351 + 2 * 8 * 351),
    ("aten::_index_put_impl_", "at::native::indexing_backward_kernel_stride_1<float>",
     [[16, 27, 27], [], [16, 351], [], []], ["float", "", "float", "Scalar", "Scalar"], None, "copy", 3 * 4 * 16 * 351),
]  # fmt: skip


@pytest.mark.parametrize(("op", "kernel", "dims", "types", "concrete", "family", "bytes_"), CASES)
def test_a_kernel_moves_what_it_reads_and_writes(op, kernel, dims, types, concrete, family, bytes_):
    row = kernel_of(op, f"void {kernel}(int)", dims, types, concrete)
    assert only(row, "family", "bytes") == (family, bytes_)
    assert row["rows"] * row["cols"] > 0


@pytest.mark.parametrize("indices", [SAMPLES, 50 * 384])
def test_a_warp_moves_the_indices_of_a_sample(indices):
    """With next to nothing to do it takes as long as for 25 elements; of 50, the other 25 take a fifth of that."""
    kernel = "void fbgemm_gpu::permute_2D_data_kernel<false, int>(int)"
    row = kernel_of("fbgemm::permute_2D_sparse_data", kernel, [[24], [24, 16], [indices], [], []], PERMUTED[1])
    assert only(row, "rows", "cols", "indexed", "across") == (384, 25 if indices == SAMPLES else 30, True, True)


def test_rows_of_unknown_number_fill_a_tenth_to_all_of_a_padded_tensor():
    kernel = "void jagged_dense_dense_elementwise_jagged_output_kernel_<1>(int)"
    row = kernel_of("fbgemm::dense_to_jagged_forward", kernel, *PADDED)
    assert only(row, "bytes", "work_low", "work_high") == (2 * 100 * ROW, 0.2, 2.0)


@pytest.mark.parametrize("dims", [[[16, 27, 26], []], [[755000], []], [[16, 2, 2], []], [[16, 27, 27], [[5], [5]]]])
def test_only_squares_are_dot_products(dims):
    row = kernel_of("aten::index", "void at::native::index_elementwise_kernel<128, 4>(int)", dims, ["float", ""])
    assert row["bytes"] != 2 * 4 * 16 * 351 + 2 * 8 * 351


def test_sorting_a_tile_of_places_is_short():
    kernel = "void cub::DeviceRadixSortSingleTileKernel<int>(int)"
    assert kernel_of("aten::_index_put_impl_", kernel, [[16, 27, 27], [], [16, 351], [], []])["bytes"] == 2304 * 32


ODD_DIMS = ("[]", "[[],[],[],[],[],[],[]]", "[[0],[0],[0],[0],[0],[0],[0]]", "[[[0]],[3],[[2],[]]]")


def check_odd_inputs(op, dims):
    signature = Signature.parse(op, dims, '["float","float","float"]', None)
    for _, formula in OP_KERNELS[op]:
        columns = formula(signature, 4)
        assert columns is None or columns["bytes"] >= 0


def test_odd_inputs_tell_little_or_nothing():
    assert find_failures(check_odd_inputs, [(op, dims) for op in sorted(OP_KERNELS) for dims in ODD_DIMS]) == {}
