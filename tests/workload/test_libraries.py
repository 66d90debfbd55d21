"""Ops of transforms, sampling, group norm and quantised products, worked out by hand.

Arguments as torch 2.13, bitsandbytes 0.48, xformers 0.0.32, TransformerEngine 2, and vLLM, SGLang, aiter, FBGEMM and
flash-attn of 2026 declare them.
"""

import math

import polars as pl
import pytest

from predictors.kernels import add_law, complete_columns
from predictors.work import add_work
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

BF16, FLOAT, COMPLEX, INT8, UINT8 = "c10::BFloat16", "float", "c10::complex<float>", "signed char", "unsigned char"
LIST, SCALAR = "ScalarList", "Scalar"


def kernels_of(op, names, dims, types, concrete=None):
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=types, concrete=concrete)
    for i, name in enumerate(names):
        builder.kernel(name, 60 + 40 * i, 30, launch=10 + i)
    return build_kernel_table(builder.load().rank()).rows(named=True)


def kernel_of(op, name, dims, types, concrete=None):
    return kernels_of(op, [name], dims, types, concrete)[0]


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "concrete", "bytes_", "flops"),
    [
        # 256 numbers become 2 x 8 x 9 complex ones; 2.5 per number and level, of which 8 x 16 have seven.
        ("aten::_fft_r2c", [2, 8, 16], FLOAT, ["", "[1, 2]", "0", "True"], 4 * 256 + 8 * 144, 2.5 * 256 * 7),
        ("aten::_fft_r2c", [2, 8, 16], FLOAT, ["", "[2]", "0", "False"], 4 * 256 + 8 * 256, 2.5 * 256 * 4),
        ("aten::_fft_c2c", [2, 8, 9], COMPLEX, ["", "[1]", "0", "True"], 2 * 8 * 144, 5 * 144 * 3),
        ("aten::_fft_c2r", [2, 8, 9], COMPLEX, ["", "[2]", "2", "16"], 8 * 144 + 4 * 256, 2.5 * 256 * 4),
    ],
)  # fmt: skip
def test_fourier_transforms(op, shape, dtype, concrete, bytes_, flops):
    name = "void regular_fft<192u, EPT<12u, 16u>, 16u, 2u, (padding_t)6, (twiddle_t)0>(kernel_arguments_t<unsigned>)"
    row = kernel_of(op, name, [shape, [], [], []], [dtype, LIST, SCALAR, SCALAR], concrete)
    assert (row["family"], row["bytes"], row["flops"]) == ("elementwise", bytes_, flops)


# 2 images of 3 x 8 x 8, sampled at 4 x 4 points each: 384 elements, 64 coordinates, 96 results.
@pytest.mark.parametrize(
    ("mode", "bytes_", "flops"),
    [("0", 4 * (384 + 64 + 96), 2 * 4 * 96), ("1", 4 * (96 + 64 + 96), 2 * 96), ("2", 4 * 544, 2 * 16 * 96)],
)
def test_grid_sampling(mode, bytes_, flops):
    name = "void at::native::(anonymous namespace)::grid_sampler_2d_kernel<float, int>"
    dims, concrete = [[2, 3, 8, 8], [2, 4, 4, 2], [], [], []], ["", "", mode, "0", "False"]
    row = kernel_of("aten::grid_sampler_2d", name, dims, [FLOAT, FLOAT, SCALAR, SCALAR, SCALAR], concrete)
    assert (row["family"], row["bytes"], row["flops"]) == ("elementwise", bytes_, flops)


def test_grid_sampling_in_space_has_eight_neighbours():
    dims, concrete = [[1, 2, 4, 4, 4], [1, 2, 2, 2, 3], [], [], []], ["", "", "0", "0", "False"]
    row = kernel_of("aten::grid_sampler_3d", "grid_sampler_3d_kernel", dims, [FLOAT, FLOAT] + [SCALAR] * 3, concrete)
    assert (row["bytes"], row["flops"]) == (4 * (2 * 64 + 24 + 16), 2 * 8 * 16)


@pytest.mark.parametrize(
    ("wanted", "bytes_", "flops"),
    [("[True, True]", 4 * (384 + 64 + 96 + 384 + 64), 2 * 2 * 4 * 96), ("[True, False]", 4 * (64 + 96 + 384), 768)],
)
def test_gradients_of_grid_sampling(wanted, bytes_, flops):
    name = "void at::native::(anonymous namespace)::grid_sampler_2d_backward_kernel<float, int>"
    dims = [[2, 3, 4, 4], [2, 3, 8, 8], [2, 4, 4, 2], [], [], [], []]
    types, concrete = [FLOAT] * 3 + [SCALAR] * 3 + [LIST], ["", "", "", "0", "0", "False", wanted]
    row = kernel_of("aten::grid_sampler_2d_backward", name, dims, types, concrete)
    assert (row["bytes"], row["flops"]) == (bytes_, flops)


def test_each_kernel_of_a_group_norm_has_its_own_passes():
    # [2, 6, 4, 4]: 192 elements, 12 channels; the elementwise kernel also reads weight and bias.
    names = ("RowwiseMomentsCUDAKernel<float, float>", "ComputeFusedParamsCUDAKernel<float>", "elementwise_kernel<128>")
    dims, types = [[2, 6, 4, 4], [6], [6], [], [], [], [], []], [FLOAT] * 3 + [SCALAR] * 5
    rows = kernels_of("aten::native_group_norm", names, dims, types, ["", "", "", "2", "6", "16", "3", "1e-05"])
    assert [row["bytes"] * row["share"] for row in rows] == [4 * 192, 2 * 4 * 12, 4 * (2 * 192 + 12)]
    assert [(row["rows"], row["cols"]) for row in rows] == [(6, 32), (12, 1), (12, 16)]
    assert [row["part"] for row in rows] == ["sums", None, "scaling"]
    for told in ("[3]", '"3"', "-1", ""):
        (moments, *_) = kernels_of(
            "aten::native_group_norm", names, dims, types, ["", "", "", "2", "6", "16", told, ""]
        )
        assert (moments["rows"], moments["cols"]) == (12, 16)
    names = ("ComputeInternalGradientsCUDAKernel<float>", "GammaBetaBackwardCUDAKernel1<float>", "elementwise_kernel")
    dims, types = [[2, 6, 4, 4], [2, 6, 4, 4], [2, 3], [2, 3], [6]], [FLOAT] * 5
    rows = kernels_of("aten::native_group_norm_backward", names, dims, types)
    assert [row["bytes"] for row in rows] == [2 * 4 * 192, 2 * 4 * 12, 4 * (3 * 192 + 6 + 6 + 6)]
    assert {row["family"] for row in rows} == {"norm"}
    assert [row["part"] for row in rows] == ["sums", None, "scaling"]


@pytest.mark.parametrize(
    ("blocks", "part", "bytes_"), [(1, None, 2 * 4 * 128), (1024, "scaling", 4 * (3 * 2**19 + 16 + 16 + 64))]
)
def test_an_elementwise_kernel_too_small_for_a_group_norms_input_works_on_its_channels(blocks, part, bytes_):
    op, kernel = "aten::native_group_norm_backward", "elementwise_kernel_manual_unroll<128, 4>"
    dims = [[2, 64, 64, 64], [2, 64, 64, 64], [2, 8], [2, 8], [64]]
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=[FLOAT] * 5)
    trace = builder.kernel(kernel, 60, 30, launch=10, grid=(blocks, 1, 1), block=(128, 1, 1)).load()
    row = build_kernel_table(trace.rank()).row(0, named=True)
    assert (row["family"], row["part"], row["bytes"]) == ("norm", part, bytes_)


def test_a_layer_norm_over_several_axes_has_long_rows_of_a_block_each():
    dims, types = [[16, 64, 8, 8], [], [64, 8, 8], [64, 8, 8], []], [FLOAT, LIST, FLOAT, FLOAT, SCALAR]
    names, concrete = "vectorized_layer_norm_kernel<float, float>", ["", "[64, 8, 8]", "", "", "1e-05"]
    row = kernel_of("aten::native_layer_norm", names, dims, types, concrete)
    assert (row["rows"], row["cols"], row["bytes"]) == (16, 4096, 4 * (2 * 16 + 2) * 4096)
    assert row["part"] == "rows"
    names = ("layer_norm_grad_input_kernel_vectorized<float>", "GammaBetaBackwardCUDAKernelTemplate<float>")
    dims = [[16, 64, 8, 8], [16, 64, 8, 8], [], [16, 1, 1, 1], [16, 1, 1, 1], [64, 8, 8], [64, 8, 8], []]
    types = [FLOAT, FLOAT, LIST, FLOAT, FLOAT, FLOAT, FLOAT, LIST]
    both = kernels_of("aten::native_layer_norm_backward", names, dims, types, ["", "", "[64, 8, 8]", *[""] * 5])
    assert [row["part"] for row in both] == ["rows", "column sums"]
    squares = kernel_of("aten::_fused_rms_norm", "vectorized_layer_norm_kernel<float, float, true>", dims[:1], [FLOAT])
    assert (squares["part"], kernel_of("_C::rms_norm", "vllm::rms_norm_kernel", dims[:1], [FLOAT])["part"]) == (
        "squares",
        None,
    )


@pytest.mark.parametrize(
    "name",
    [
        "void layer_norm::ln_bwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16, __nv_bfloat16>>",
        "void transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<transformer_engine::Traits>",
        "void cuComputeGradInput<float, float, float>(float const*, float const*)",
        "cudnn_generated_fort_native_rms_norm_bwd_sm90_kernel0_0",
    ],
)
def test_kernels_over_rows_of_libraries_are_told(name: str):
    row = kernel_of("aten::native_layer_norm_backward", name, [[64, 128]], [FLOAT])
    assert (row["family"], row["part"], row["direction"]) == ("norm", "library", "backward")


@pytest.mark.parametrize("name", ["per_fused__fused_rms_norm_add_3", "red_fused__log_softmax_4", "red_fused_sum_1"])
def test_reductions_norms_and_softmax_that_a_compiler_generated_are_told(name: str):
    name = f"triton_{name}"
    assert kernel_of(name, name, [[64, 256], [64, 256], [256]], [BF16] * 3)["part"] == "fused"


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ", "tree"),
        ("triton_red_fused_sum_2", "fused"),
        ("ck_tile::Reduce<float>", None),
    ],
)
def test_pytorchs_own_reductions_are_told_from_others(kernel, part):
    row = kernel_of("aten::sum", kernel, [[64, 256]], [FLOAT])
    assert (row["family"], row["part"]) == ("reduction", part)


@pytest.mark.parametrize(
    ("direction", "op"),
    [
        ("forward", "aten::_softmax"),
        ("backward", "aten::_log_softmax_backward_data"),
        ("forward", "aten::native_layer_norm"),
        ("backward", "aten::_fused_rms_norm_backward"),
        ("backward", "triton_red_fused__log_softmax__log_softmax_backward_data_0"),
    ],
)
def test_softmax_and_norms_have_a_direction(direction: str, op: str):
    kernel = op if op.startswith("triton") else "softmax_kernel" if "softmax" in op else "layer_norm_kernel"
    assert kernel_of(op, kernel, [[64, 256], [64, 256]], [BF16] * 2)["direction"] == direction


# Of a weight [512, 256] in 4 bits, and 4 rows: tinygemm packs it as int32, bitsandbytes as bytes.
PACKED = 512 * 256 // 2
ROWS = 2 * 4 * (256 + 512)


@pytest.mark.parametrize(
    ("op", "kernel", "dims", "types", "concrete", "bytes_"),
    [
        ("aten::_weight_int4pack_mm", "void at::native::tinygemm_m16n8k16_chunk_kernel<at::native::ALayout_RM",
         [[4, 256], [64, 2, 32, 4], [], [4, 512, 2]], [BF16, "int", SCALAR, BF16], ["", "", "64", ""],
         PACKED + 2 * 4 * 512 * 2 + ROWS),
        ("aten::_weight_int8pack_mm", "int8pack_mm_kernel", [[4, 256], [512, 256], [512]], [BF16, INT8, BF16], None,
         2 * PACKED + 2 * 512 + ROWS),
        ("bitsandbytes::gemv_4bit", "void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>",
         [[4, 256], [PACKED, 1], [], [2048], [16], []], [BF16, UINT8, LIST, FLOAT, FLOAT, SCALAR],
         ["", "", "[512, 256]", "", "", "64"], PACKED + 4 * 2048 + ROWS),
        ("bitsandbytes::gemm_4bit", "void gemm_4bit_sm80_m16n8k16<__nv_bfloat16, 64, 128>",
         [[2, 2, 256], [PACKED, 1], [], [2048], [], []], [BF16, UINT8, LIST, FLOAT, SCALAR, ""],
         ["", "", "[512, 256]", "", "64", ""], PACKED + 4 * 2048 + ROWS),
    ],
)  # fmt: skip
def test_products_read_a_weight_as_narrow_as_it_is_stored(op, kernel, dims, types, concrete, bytes_):
    row = kernel_of(op, kernel, dims, types, concrete)
    assert [row[name] for name in ("family", "m", "n", "k", "bytes")] == ["gemm", 4, 512, 256, bytes_]
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=types, concrete=concrete).kernel(kernel, 60, 30, launch=9)
    worked = add_work(add_law(complete_columns(build_kernel_table(builder.load().rank()))))
    assert worked.select("work_flops", "work_bytes").row(0) == (2 * 4 * 512 * 256, bytes_)


# Of a weight [512, 256] in 4 bits with a scale for every 128: Marlin's and GPTQ's pack along k, AWQ's along n.
@pytest.mark.parametrize(
    ("op", "dims", "concrete"),
    [
        ("_C::marlin_gemm", [[4, 256], [], [16, 1024], [], [2, 512], [], [], [], [], [], [1000], *[[]] * 5],
         {11: "17", 12: "4", 13: "512", 14: "256"}),
        ("_C::gptq_marlin_gemm", [[4, 256], [], [16, 1024], [2, 512], [], [], [], [], [1000], *[[]] * 5],
         {9: "17", 10: "4", 11: "512", 12: "256"}),
        ("_C::awq_gemm", [[4, 256], [256, 64], [2, 512], [], []], {}),
        ("_C::gptq_gemm", [[4, 256], [32, 512], [], [2, 512], []], {}),
    ],
)  # fmt: skip
def test_packed_products_of_serving_engines(op, dims, concrete):
    types = ["int" if shape in ([16, 1024], [256, 64], [32, 512], [1000]) else BF16 for shape in dims]
    values = [concrete.get(i, "") for i in range(len(dims))]
    row = kernel_of(op, "void marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8, 4>", dims, types, values)
    assert [row[name] for name in ("family", "m", "n", "k", "bytes")] == [
        "gemm", 4, 512, 256, PACKED + 2 * 2 * 512 + ROWS,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "kernel", "dims", "types", "family", "bytes_"),
    [
        ("_C::fused_add_rms_norm_static_fp8_quant", "void vllm::fused_add_rms_norm_static_fp8_quant_kernel<>",
         [[4, 64], [4, 64], [4, 64], [64], [1]], ["c10::Float8_e4m3fn", BF16, BF16, BF16, FLOAT], "norm",
         256 * (1 + 2 + 4) + 2 * 64),
        ("aiter::rms_norm", "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwd", [[4, 64], [64]], [BF16] * 2, "norm",
         2 * 256 * 2 + 2 * 64),
        ("aiter::_groupnorm_run", "void (anonymous namespace)::groupnorm_kernel_dispatch_up<__hip_bfloat16, 1024u>",
         [[1, 64, 4, 4], [], [64], [64]], [BF16, SCALAR, BF16, BF16], "norm", 2 * 2 * 1024),
        ("sgl_kernel::sgl_per_token_quant_fp8", "void per_token_quant_fp8_kernel<__nv_bfloat16>",
         [[4, 64], [4, 64], [4, 1]], [BF16, "c10::Float8_e4m3fn", FLOAT], "elementwise", 3 * 256 + 16),
        ("_moe_C::moe_sum", "void vllm::moe::moe_sum_kernel<c10::BFloat16, 2>", [[4, 2, 64], [4, 64]], [BF16] * 2,
         "reduction", 2 * 3 * 256),
        ("aten::split_with_sizes_copy", "at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel",
         [[1024], [], [], [[256], [768]]], [BF16, LIST, SCALAR, "TensorList"], "copy", 2 * 1024 * 2),
        ("triton_red_fused_add_mean_1", "triton_red_fused_add_mean_1", [[64, 8], [64, 8], [64, 8]], [BF16] * 3,
         "reduction", 3 * 2 * 512),
        ("triton_per_fused_native_layer_norm_backward_2", "triton_per_fused_native_layer_norm_backward_2",
         [[8], [64, 8], [64, 8]], [BF16] * 3, "norm", 2 * (2 * 512 + 8)),
        ("aten::nll_loss_backward",
         "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>(float*, float)",
         [[], [1024, 8192], [1024], [], [], [], []], [FLOAT, FLOAT, "long int", "", SCALAR, SCALAR, FLOAT], "reduction",
         1024 * 12),
        ("aten::index_select", "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long>",
         [[50, 64], [], [1000]], [FLOAT, SCALAR, "long int"], "embedding", 4 * (50 * 64 + 64000) + 8 * 1000),
        ("sage_quant_kernel_0", "sage_quant_kernel", [[64, 8], [64, 8], []], [BF16, INT8, SCALAR], "elementwise",
         3 * 512),
    ],
)  # fmt: skip
def test_what_serving_engines_and_triton_move(op, kernel, dims, types, family, bytes_):
    row = kernel_of(op, kernel, dims, types)
    assert (row["family"], row["bytes"]) == (family, bytes_)


@pytest.mark.parametrize(
    ("op", "second"), [("aten::_int_mm", [64, 16]), ("bitsandbytes::int8_linear_matmul", [16, 64])]
)
def test_integer_products(op, second):
    row = kernel_of(op, "cublasLt_imma_kernel_gemm", [[32, 64], second], [INT8, INT8])
    assert [row[name] for name in ("dtype", "m", "n", "k", "bytes")] == [
        "int8",
        32,
        16,
        64,
        32 * 64 + 64 * 16 + 4 * 512,
    ]


@pytest.mark.parametrize(
    ("op", "dims", "types", "expected"),
    [
        ("aten::_scaled_mm", [[32, 64], [64, 16], [], []], ["c10::Float8_e4m3fn"] * 2, (1, 32, 16, 64)),
        ("aten::_scaled_mm_v2", [[32, 32], [32, 16], [[32, 4]]], ["c10::Float4_e2m1fn_x2"] * 2, (1, 32, 16, 64)),
        ("_C::cutlass_scaled_mm", [[32, 16], [32, 64], [64, 16], [1], [1]], [BF16, INT8, INT8], (1, 32, 16, 64)),
        ("aten::_grouped_mm", [[64, 256], [8, 256, 512], [8]], [BF16, BF16, "int"], (8, 8, 512, 256)),
        ("aten::_grouped_mm", [[8, 16, 256], [8, 256, 512]], [BF16, BF16], (8, 16, 512, 256)),
        ("aten::_grouped_mm", [[512, 64], [64, 256], [8]], [BF16, BF16, "int"], (8, 512, 256, 8)),
        ("aten::_scaled_grouped_mm", [[64, 256], [8, 256, 512], [64], [8, 512], [8]], ["c10::Float8_e4m3fn"] * 2
         + [FLOAT, FLOAT, "int"], (8, 8, 512, 256)),
        ("aten::_scaled_grouped_mm_v2", [[64, 128], [8, 128, 512], [[64]], [], [], [[512]], [], [], [8]],
         ["c10::Float4_e2m1fn_x2"] * 2 + ["TensorList", "", "", "TensorList", "", "", "int"], (8, 8, 512, 256)),
        ("aten::_scaled_grouped_mm_v2", [[64, 256], [8, 256, 512], [[64]], [], [], [[512]], [], [], [8]],
         ["c10::Float8_e4m3fn"] * 2 + [FLOAT] * 6 + ["int"], (8, 8, 512, 256)),
        ("aiter::gemm_a16w16", [[32, 64], [16, 64], []], [BF16] * 2, (1, 32, 16, 64)),
        ("vllm::rocm_unquantized_gemm", [[2, 16, 64], [16, 64], [16]], [BF16] * 3, (1, 32, 16, 64)),
        ("fbgemm::f8f8bf16_rowwise", [[32, 64], [16, 64], [32], [16]], ["c10::Float8_e4m3fn"] * 2, (1, 32, 16, 64)),
        ("sglang::deep_gemm_fp8_fp8_bf16_nt", [[32, 256], [32, 2], [128, 256], [1, 2], [32, 128]],
         ["c10::Float8_e4m3fn", FLOAT] * 2 + [BF16], (1, 32, 128, 256)),
        ("sgl_kernel::fp8_scaled_mm", [[32, 64], [64, 16], [32], [16]], ["c10::Float8_e4m3fn"] * 2, (1, 32, 16, 64)),
        ("_rocm_C::wvSplitK", [[16, 64], [4, 64], [], []], [BF16] * 2, (1, 4, 16, 64)),
        ("_C::cutlass_scaled_mm_azp", [[32, 16], [32, 64], [64, 16]], [BF16, INT8, INT8], (1, 32, 16, 64)),
        ("_C::cutlass_scaled_fp4_mm", [[32, 16], [32, 32], [16, 32]], [BF16, UINT8, UINT8], (1, 32, 16, 64)),
        ("_Linear", [[512, 256], [8, 4, 256], [512]], [BF16] * 3, (1, 32, 512, 256)),
        ("_LayerNormLinear", [[8, 4, 256], [256], [256], [512, 256], [512]], [BF16] * 5, (1, 32, 512, 256)),
    ],
)  # fmt: skip
def test_scaled_and_grouped_products(op, dims, types, expected):
    row = kernel_of(op, "nvjet_qqtst_128x128_128x6_2x1_h_bz_TNT", dims, types)
    assert tuple(row[name] for name in ("batch", "m", "n", "k")) == expected


def test_a_grouped_product_without_groups_has_no_work():
    assert (
        kernel_of("aten::_grouped_mm", "cutlass::device_kernel gemm", [[64, 256], [8, 256, 512]], [BF16] * 2)["m"]
        is None
    )


def test_casts_and_optimizers_of_bitsandbytes():
    types, concrete = [UINT8, FLOAT, SCALAR, "", LIST, SCALAR], ["", "", "64", "nf4", "[512, 256]", "15"]
    row = kernel_of(
        "bitsandbytes::dequantize_4bit", "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>",
        [[PACKED, 1], [2048], [], [], [], []], types, concrete,
    )  # fmt: skip
    assert (row["family"], row["bytes"]) == ("elementwise", PACKED + 4 * 2048 + 2 * 512 * 256)
    # 8-bit Adam: reads the gradient, reads and writes the parameter in bf16 and two states of a byte.
    row = kernel_of(
        "bitsandbytes::optimizer_update_8bit_blockwise", "void kOptimizerStatic8bit2StateBlockwise<__nv_bfloat16, 0>",
        [[], [640], [640], [640], [640], []], ["", BF16, BF16, UINT8, UINT8, SCALAR],
    )  # fmt: skip
    assert (row["family"], row["bytes"]) == ("optimizer", 640 * (2 + 2 * 2 + 2 + 2))


@pytest.mark.parametrize(
    ("op", "dims", "expected"),
    [
        ("triton_tem_fused_mm_3", [[32, 64], [64, 16], [32, 16], []], (1, 32, 16, 64)),
        # A bias, a weight as it is stored, an input with one more axis, and a residual.
        ("triton_tem_fused_add_addmm_0", [[16], [2, 16, 64], [16, 64], [32, 16], [2, 16, 16]], (1, 32, 16, 64)),
        ("triton_tem_fused_bmm_1", [[8, 32, 64], [8, 64, 16], [8, 32, 16]], (8, 32, 16, 64)),
        ("triton_tem_fused_mm_3", [[32, 64], [64, 16]], (None,) * 4),
        ("triton_tem_fused_mm_3", [[32, 64], [64, 16], [32, 17]], (None,) * 4),
    ],
)
def test_products_from_templates(op, dims, expected):
    row = kernel_of(op, op, dims, [BF16] * len(dims))
    assert (row["family"], *(row[name] for name in ("batch", "m", "n", "k"))) == ("gemm", *expected)


def test_the_backward_pass_of_a_softmax_reads_two_of_its_inputs():
    """PyTorch of 2021 passed the forward's input too, for its type."""
    name, shape = "void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true>", [32, 1000]
    row = kernel_of("aten::_log_softmax_backward_data", name, [shape, shape, [], shape], [FLOAT, FLOAT, SCALAR, FLOAT])
    assert (row["family"], row["bytes"]) == ("softmax", 3 * 4 * 32 * 1000)


def test_a_table_that_generated_code_looks_up_rows_of():
    """32 of 1000 rows; a table that has a result of its own size is cast whole."""
    op, dims = "triton_poi_fused_0", [[32], [1000, 64], [500, 8], [32, 64], [500, 8]]
    row = kernel_of(op, op, dims, ["int", BF16, FLOAT, BF16, BF16])
    assert row["bytes"] == 4 * 32 + 2 * 2 * 32 * 64 + (4 + 2) * 500 * 8


def test_what_is_selected_is_read_alone():
    op = "triton_poi_fused_clone_select_squeeze_4"
    row = kernel_of(op, op, [[3, 256, 512], [256, 512], []], [FLOAT, FLOAT, SCALAR], ["", "", "131072"])
    assert row["bytes"] == 2 * 4 * 256 * 512


@pytest.mark.parametrize(
    ("op", "dims", "bytes_"),
    [
        # 333 rows of 4429 are read: at most twice what the kernel goes over counts, if it computes at all.
        ("triton_poi_fused_gelu_slice_13", [[38, 4429, 64], [38, 333, 64], []], 3 * 4 * 38 * 333 * 64),
        ("triton_poi_fused__unsafe_view_clone_slice_13", [[38, 4429, 64], [38, 333, 64], []], 2 * 4 * 38 * 333 * 64),
        # A gated unit: both halves of each row are read.
        ("triton_poi_fused_mul_silu_slice_1", [[64, 2048], [64, 1024], []], 3 * 4 * 64 * 1024),
    ],
)
def test_what_is_sliced_is_read_twice_at_most(op, dims, bytes_):
    over = str(math.prod(dims[1]))
    assert kernel_of(op, op, dims, [FLOAT, FLOAT, SCALAR], ["", "", over])["bytes"] == bytes_


@pytest.mark.parametrize(
    ("op", "dims", "sizes", "moved"),
    [
        # The product's buffer, with a bias added where it lies; the bias is read.
        ("triton_poi_fused_addmm_gelu_view_15", [[2, 40, 96], [96]], ["7680"], 2 * 7680 + 96),
        ("triton_poi_fused_addmm_silu_2", [[2, 96], [96]], ["192"], 2 * 192 + 96),
        ("triton_poi_fused_relu_0", [[64, 32]], ["64", "32"], 2 * 2048),
        ("triton_per_fused__softmax_3", [[8, 64, 32]], ["512", "32"], 2 * 8 * 64 * 32),
        # The masked softmax of attention scores: the mask can't hold a result per row.
        ("triton_red_fused__softmax_add_3", [[8, 64, 32], [64]], ["512", "32"], 2 * 8 * 64 * 32 + 64),
        # Each has its result elsewhere, or is made out of less.
        ("triton_per_fused_sum_4", [[64, 32], [64]], ["64", "32"], 2048 + 64),
        ("triton_poi_fused_add_relu_5", [[64, 32], [64, 32]], ["2048"], 2 * 2048),
        ("triton_poi_fused_arange_cos_mul_6", [[64, 32], [32]], ["2048"], 2048 + 32),
        ("triton_poi_fused_cat_7", [[64, 32], [64, 8]], ["2048"], 2048 + 512),
        # Not Inductor's own: its name doesn't tell what it does.
        ("fill_kernel_0", [[64, 32]], ["2048"], 2048),
        ("triton_poi_fused_zeros_8", [[64, 32]], ["2048"], 2048),
        ("triton_poi_fused_mul_unsqueeze_9", [[64, 32], [64], [32]], ["2048"], 2048 + 64 + 32),
    ],
)
def test_a_buffer_that_is_worked_on_in_place_is_read_and_written(op, dims, sizes, moved):
    types, numbers = [FLOAT] * len(dims) + [SCALAR] * len(sizes), [""] * len(dims) + sizes
    assert kernel_of(op, op, dims + [[]] * len(sizes), types, numbers)["bytes"] == 4 * moved


@pytest.mark.parametrize(
    ("op", "numbers", "bytes_"),
    [
        # Axes of dynamic shapes, offsets and switches come before the size.
        ("triton_poi_fused_slice_1", ["333", "0", "False", "24576"], 2 * 4 * 24576),
        ("triton_poi_fused_select_1", ["333", "384", "64"], 2 * 4 * 24576),
        # Where these can't be told from sizes, all is read.
        ("triton_red_fused_slice_sum_1", ["333", "384", "64"], 4 * (24576 + 16 * 24576)),
        ("triton_poi_fused_slice_1", ["0"], 4 * (24576 + 16 * 24576)),
    ],
)
def test_numbers_that_are_no_sizes_say_nothing_of_what_is_sliced(op, numbers, bytes_):
    dims, types = [[384, 1024], [384, 64], *[[]] * len(numbers)], [FLOAT, FLOAT, *[SCALAR] * len(numbers)]
    row = kernel_of(op, op, dims, types, ["", "", *numbers])
    assert row["bytes"] == bytes_
    assert row["flops"] <= 384 * 1024


def test_flexible_attention_has_a_bracket_for_its_mask():
    # 2 x 8 heads of 1024 tokens, in 8 blocks of keys; 2 heads of keys.
    op = "triton_tem_fused_flex_attention_0"
    dims = [
        [2, 8, 1024, 64],
        [2, 2, 1024, 64],
        [2, 2, 1024, 64],
        [2, 8, 1024],
        [1, 1, 8],
        [1, 1, 8, 8],
        [2, 8, 1024, 64],
    ]
    row = kernel_of(op, op, dims, [BF16] * 3 + [FLOAT, "int", "int", BF16])
    columns = ("family", "batch", "heads", "kv_heads", "q_len", "head_dim", "causal", "work_low", "work_high")
    assert tuple(row[name] for name in columns) == ("attention", 2, 8, 2, 1024, 64, True, 0.25, 2.0)


FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>"


@pytest.mark.parametrize(
    ("op", "dims", "concrete", "direction", "causal"),
    [
        ("xformers::efficient_attention_forward_cutlass", [[2, 128, 8, 64]] * 3 + [[]] * 7, {9: "1"}, "forward", True),
        ("xformers_flash::flash_fwd", [[2, 128, 8, 64]] * 3 + [[]] * 12, {10: "True"}, "forward", True),
        ("xformers_flash::flash_fwd", [[256, 8, 64]] * 3 + [[3], [3]] + [[]] * 10, {6: "128", 7: "128"}, "forward",
         False),
        ("xformers_flash::flash_bwd", [[]] + [[2, 128, 8, 64]] * 4 + [[]] * 11, {13: "True"}, "backward", True),
        ("aiter::fmha_v3_fwd", [[2, 128, 8, 64]] * 3 + [[]] * 3, {5: "False"}, "forward", False),
        ("sage_fwd_1", [[2, 8, 128, 64]] * 3 + [[]] * 3, {}, "forward", False),
        ("flash_attn_3::fwd", [[2, 128, 8, 64]] * 3 + [[]] * 22, {24: "True"}, "forward", True),
        ("flash_attn_3::_flash_attn_forward", [[256, 8, 64]] * 3 + [[]] * 4 + [[3], [3]] + [[]] * 16,
         {12: "128", 13: "128", 24: "True"}, "forward", True),
        ("flash_attn_3::_flash_attn_backward", [[2, 128, 8, 64]] * 5 + [[]] * 12, {16: "True"}, "backward", True),
        ("aten::_flash_attention_forward", [[256, 8, 64]] * 3 + [[3], [3]] + [[]] * 5, {5: "128", 6: "128", 8: "True"},
         "forward", True),
        ("aten::_flash_attention_forward_no_dropout_inplace", [[2, 128, 8, 64]] * 4 + [[]] * 7, {9: "True"}, "forward",
         True),
        ("flash_attn::_flash_attn_backward", [[2, 128, 8, 64]] * 5 + [[]] * 10, {11: "False"}, "backward", False),
        ("flash_attn::_flash_attn_varlen_backward", [[256, 8, 64]] * 9 + [[3], [3]] + [[]] * 8,
         {11: "128", 12: "128", 15: "True"}, "backward", True),
    ],
)  # fmt: skip
def test_attention_of_other_libraries(op, dims, concrete, direction, causal):
    row = kernel_of(op, FLASH, dims, [BF16] * len(dims), [concrete.get(i, "") for i in range(len(dims))])
    columns = ("family", "batch", "heads", "q_len", "kv_len", "head_dim", "direction", "causal")
    assert tuple(row[name] for name in columns) == ("attention", 2, 8, 128, 128, 64, direction, causal)
    assert row["paged"] is False


@pytest.mark.parametrize(
    ("op", "tensors", "concrete", "window"),
    [
        ("flash_attn::_flash_attn_forward", [[2, 8192, 8, 64]] * 3, {5: "True", 6: "4095", 7: "0"}, 4096),
        ("flash_attn::_flash_attn_forward", [[2, 8192, 8, 64]] * 3, {5: "True", 6: "-1", 7: "-1"}, None),
        ("flash_attn::_flash_attn_forward", [[2, 8192, 8, 64]] * 3, {5: "False", 6: "256", 7: "256"}, 513),
        ("flash_attn::_flash_attn_forward", [[2, 8192, 8, 64]] * 3, {5: "False", 6: "256", 7: "-1"}, None),
        ("aten::_flash_attention_forward", [[2, 8192, 8, 64]] * 3, {8: "True", 11: "1023", 12: "-1"}, 1024),
        ("flash_attn::_flash_attn_backward", [[2, 8192, 8, 64]] * 6, {11: "True", 12: "1023", 13: "0"}, 1024),
    ],
)
def test_a_window_limits_the_keys(op, tensors, concrete, window):
    dims = tensors + [[]] * (16 - len(tensors))
    row = kernel_of(op, FLASH, dims, [BF16] * len(dims), [concrete.get(i, "") for i in range(len(dims))])
    assert (row["q_len"], row["window"]) == (8192, window)
    worked = add_work(add_law(complete_columns(pl.DataFrame([row]))))
    # The first 4096 queries see ever more keys, the others 4096 each.
    if window == 4096:
        assert worked["work_flops"][0] == 2 * 2 * 2 * 8 * 64 * (4096 * 4097 / 2 + 4096 * 4096)


@pytest.mark.parametrize(("window", "batch"), [("511", 8), ("1023", None), ("-1", None)])
def test_of_documents_of_any_length_a_short_window_tells_the_work(window, batch):
    """16,384 tokens of up to 127 documents, the longest 2,048: as many pairs as eight of those, nearly."""
    dims = [[16384, 6, 128]] * 3 + [[]] * 4 + [[128], [128]] + [[]] * 25
    concrete = {12: "2048", 13: "2048", 24: "True", 25: window, 26: "0"}
    told = [concrete.get(index, "") for index in range(len(dims))]
    row = kernel_of("flash_attn_3::fwd", FLASH, dims, [BF16] * len(dims), told)
    assert (row["batch"], row["q_len"]) == (batch, batch and 2048)


def test_sequences_of_several_lengths_in_one_are_no_long_sequence():
    dims = [[1, 256, 8, 64]] * 3 + [[], [4], [4]] + [[]] * 4
    assert kernel_of("aten::_efficient_attention_forward", FLASH, dims, [BF16] * len(dims))["q_len"] is None


def gemv_tensors(operand):
    return ", ".join(f"cublasGemvTensorStridedBatched<{operand}>" for operand in (f"{operand} const",) * 2 + (operand,))


# The first type of its template is the accumulator's.
@pytest.mark.parametrize(
    ("name", "left", "right", "dtype", "types", "bytes_"),
    [
        (
            f"void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false, {gemv_tensors('__nv_bfloat16')} >",
            [512, 4, 32], [512, 32, 65536], "bf16", BF16, 2_416_050_176,
        ),
        (
            f"void gemmk1_kernel<int, float, 256, 5, false, false, false, false, {gemv_tensors('__half')}, float, 0>",
            [64, 256, 1], [64, 1, 256], "fp16", "c10::Half", 8_454_144,
        ),
        (f"void gemmSN_NN_kernel<float, 256, 4, 2, {gemv_tensors('float')} >", [1, 2, 2], [1, 2, 2], "fp32", FLOAT, 48),
        ("gemmSN_TN_kernel<float, 128, 16, 2, 4, 8", [1, 2, 2], [1, 2, 2], "bf16", BF16, 24),  # cut short
        (
            f"void gemvNSP_kernel<float, float, float, float, 1, cublasGemvParams<{gemv_tensors('__half')}, float> >",
            [1, 2, 2], [1, 2, 2], "fp16", "c10::Half", 24,
        ),
    ],
)  # fmt: skip
def test_small_products_of_cublas_compute_with_their_operands_type(name, left, right, dtype, types, bytes_):
    row = kernel_of("aten::bmm", name, [left, right], [types, types])
    assert (row["family"], row["dtype"]) == ("gemm", dtype)
    assert add_work(add_law(complete_columns(pl.DataFrame([row]))))["work_bytes"].item() == bytes_


# Four parts of 64 of each head of 128, of query and key, are read of a row of 6,144, turned by a row of the table of
# sines and cosines, and written.
@pytest.mark.parametrize(
    ("steps", "parts"), [([2048, 128, 1], 4), ([1024, 64, 1], 1), ([], 1)], ids=["interleaved", "whole", "unknown"]
)
def test_generated_kernels_read_as_many_parts_of_a_packed_buffer_as_they_write(steps, parts):
    op = "triton_poi_fused_add_index_select_mul_rms_norm_split_split_with_sizes_sub_unsqueeze_view_3"
    written, vectors = [1024, 16, 64], [[1024, 1], [2048], [1024, 1], [2048]]
    dims = [[1024, 6144], *vectors, [1024], [4096, 128], *[written] * 4, []]
    strides = [[6144, 1], [1, 1], [1], [1, 1], [1], [1], [128, 1], *[steps] * 4, []]
    types = [BF16, FLOAT, BF16, FLOAT, BF16, "long int", *[BF16] * 5, SCALAR]
    builder = TraceBuilder().op(
        op, 0, 50, dims=dims, types=types, concrete=[""] * 11 + ["1048576"], **{"Input Strides": strides}
    )
    row = build_kernel_table(builder.kernel(op, 60, 30, launch=10).load().rank()).row(0, named=True)
    rest = 2 * 1024 * 4 + 2 * 2048 * 2 + 1024 * 8 + 1024 * 128 * 2
    assert row["bytes"] == 2 * 1024 * 1024 * (parts + 4) + rest
    assert parts < 4 or row["bytes"] == 17_063_936
