"""Bytes of attention's bias or mask, worked out by hand.

Arguments as PyTorch's native_functions.yaml, xformers 0.0.32 and aiter of 2026 declare them.
"""

import pytest

import predictors
from predictors.columns import prepare_kernels
from tests.kernels import only
from tracekit.parallelism.batch_size import scale_batch
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

FORWARD = "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)"
BACKWARD = "fmha_cutlassB_bf16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel)"
HALF = "c10::BFloat16"
SAM = [1, 16, 4096, 80]
SAM_BYTES = 4 * 16 * 4096 * 80 * 2
"""Query, key, value and output."""
SAM_BIAS = 16 * 4096 * 4096 * 2
SMALL = [2, 8, 512, 64]
SMALL_BYTES = 8 * 2 * 8 * 512 * 64 * 2
"""Query, key, value, output, and the gradient of each."""
SMALL_BIAS = 2 * 8 * 512 * 512 * 2


def called(op, dims, kernel=FORWARD, concrete=None, strides=None):
    return build_kernel_table(record(op, dims, kernel, concrete, strides).load().rank())


def record(op, dims, kernel=FORWARD, concrete=None, strides=None):
    types = [HALF if shape else "" for shape in dims]
    told = {"Input Strides": strides} if strides else {}
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=types, concrete=concrete, **told)
    return builder.kernel(kernel, 60, 30, launch=10)


def moved(table):
    return prepare_kernels(table)["work_bytes"].item()


def tokens_first(shape):
    return [shape[0], shape[2], shape[1], shape[3]]


EFFICIENT = "aten::_scaled_dot_product_efficient_attention"
CONTIGUOUS = [[16 * 4096 * 80, 4096 * 80, 80, 1]] * 3


@pytest.mark.parametrize(
    ("bias", "strides", "bytes_"),
    [
        ([], [], SAM_BYTES),
        ([1, 16, 4096, 4096], [], SAM_BYTES + SAM_BIAS),
        ([1, 16, 4096, 4096], [268435456, 16777216, 4096, 1], 578_813_952),
        ([1, 16, 4096, 4096], [0, 0, 4096, 1], 75_497_472),
        ([1, 1, 4096, 4096], [16777216, 16777216, 4096, 1], 75_497_472),
        ([1, 1, 1, 4096], [4096, 4096, 4096, 1], SAM_BYTES + 4096 * 2),
    ],
)
def test_a_bias_counts_as_it_is_stored(bias, strides, bytes_):
    table = called(
        EFFICIENT, [SAM, SAM, SAM, bias, [], [], [], []], strides=[*CONTIGUOUS, strides] if strides else None
    )
    assert moved(table) == bytes_


# 579 MB at 3,352 GB/s take 172.7 us, the arithmetic 86.8.
@pytest.mark.parametrize(("gpu", "bound_us"), [("h100-sxm", 172.7), ("a100-sxm-80gb", 283.9)])
def test_a_bias_takes_time(gpu, bound_us):
    plain, biased = (called(EFFICIENT, [SAM, SAM, SAM, bias]) for bias in ([], [1, 16, 4096, 4096]))
    without, with_bias = (predictors.predict(table, gpu) for table in (plain, biased))
    assert with_bias["bound_us"].item() == pytest.approx(bound_us, rel=1e-3)
    assert with_bias["time_us"].item() > max(bound_us, without["time_us"].item())


def test_a_bias_of_nothing_changes_nothing():
    plain = called(EFFICIENT, [SAM, SAM, SAM, []])
    empty = plain.with_columns(mask_bytes=0.0, mask_batch=1, mask_heads=1)
    assert predictors.predict(empty, "h100-sxm").equals(predictors.predict(plain, "h100-sxm"))


Q, B = SMALL, [2, 8, 512, 512]
T = tokens_first(SMALL)
CALLS = {
    "aten::scaled_dot_product_attention": (FORWARD, [Q, Q, Q, B, [], [], []]),
    "aten::_scaled_dot_product_cudnn_attention": ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", [Q, Q, Q, B]),
    "aten::_cudnn_attention_forward": ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", [Q, Q, Q, B]),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (FORWARD, [Q, Q, Q, [], [], B]),
    "aten::_scaled_dot_product_fused_attention_overrideable": (FORWARD, [Q, Q, Q, B]),
    "aten::_efficient_attention_forward": (FORWARD, [T, T, T, B]),
    "xformers::efficient_attention_forward_cutlass": (FORWARD, [T, T, T, B]),
    "xformers::efficient_attention_forward_ck": (FORWARD, [T, T, T, B]),
}


@pytest.mark.parametrize("op", CALLS)
def test_forward_ops(op):
    kernel, dims = CALLS[op]
    assert moved(called(op, dims, kernel)) == SMALL_BYTES / 2 + SMALL_BIAS


BACKWARD_CALLS = {
    "aten::_efficient_attention_backward": [T, T, T, T, B, T],
    "aten::_scaled_dot_product_efficient_attention_backward": [Q, Q, Q, Q, B, Q],
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": [Q, Q, Q, Q, B, [], Q],
    "aten::_scaled_dot_product_cudnn_attention_backward": [Q, Q, Q, Q, Q, [2, 8, 512], [], [], B],
    "aten::_cudnn_attention_backward": [Q, Q, Q, Q, Q, [2, 8, 512], [], [], B],
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": [Q, Q, Q, Q, Q, [2, 8, 512], [], [], B],
    "xformers::efficient_attention_backward_cutlass": [T, T, T, T, B, T],
    "xformers::efficient_attention_backward_ck": [T, T, T, T, B],
}


@pytest.mark.parametrize("op", BACKWARD_CALLS)
def test_backward_ops(op):
    assert moved(called(op, BACKWARD_CALLS[op], BACKWARD)) == 16_777_216 == SMALL_BYTES + SMALL_BIAS


# Broadcast over the heads it is stored once, its gradient isn't.
@pytest.mark.parametrize(
    ("steps", "bytes_"), [([2097152, 262144, 512, 1], 25_165_824), ([262144, 0, 512, 1], 17_825_792)]
)
@pytest.mark.parametrize(
    ("op", "flag", "place"),
    [
        ("aten::_efficient_attention_backward", "True", 15),
        ("aten::_scaled_dot_product_efficient_attention_backward", "[True, True, True, True]", 10),
        ("aten::_scaled_dot_product_fused_attention_overrideable_backward", "[True, True, True, True]", 5),
    ],
)
def test_a_gradient_of_the_bias_is_written(op, flag, place, steps, bytes_):
    shapes = BACKWARD_CALLS[op]
    dims = [*shapes, *([[]] * (16 - len(shapes)))]
    concrete = [flag if index == place else "" for index in range(16)]
    strides = [steps if index == 4 else [] for index in range(16)]
    assert moved(called(op, dims, BACKWARD, concrete, strides)) == bytes_
    unwanted = [text.replace("True]", "False]") if "[" in text else "False" for text in concrete]
    assert moved(called(op, dims, BACKWARD, unwanted, strides)) == bytes_ - SMALL_BIAS


def test_aiter_has_its_bias_in_another_place_each_release():
    kernel = "void ck_tile::kentry<2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVS<bf16> >>"
    dims = [T, T, T, *([[]] * 8), [512, 512], [8]]
    assert moved(called("aiter::mha_fwd", dims, kernel)) == SMALL_BYTES / 2 + 512 * 512 * 2


# A causal mask beside the bias: 512 x 513 / 2 of 512 x 512 pairs are read.
def test_a_bias_counts_as_far_as_it_is_seen():
    table = called("aten::_efficient_attention_forward", [T, T, T, B], concrete=[""] * 9 + ["1"])
    assert moved(table) == SMALL_BYTES / 2 + SMALL_BIAS * 513 / 1024


@pytest.mark.parametrize(("steps", "of"), [([2097152, 262144, 512, 1], 4), ([0, 262144, 512, 1], 1)])
def test_a_larger_batch_has_more_masks_unless_they_are_shared(steps, of):
    rank = record(EFFICIENT, [Q, Q, Q, B], strides=[[], [], [], steps]).load().rank()
    row = scale_batch(build_kernel_table(rank), rank.ops, 2).row(0, named=True)
    assert only(row, "batch", "mask_batch", "mask_heads") == (4, of, 8)


# Blocks of 128 keys: causal is assumed, so 512 x 513 / 2 pairs of each head are read.
def test_a_bias_that_flex_attention_captured():
    op, blocks, types = "triton_tem_fused_flex_attention_0", [1, 1, 4, 4], [*[HALF] * 3, "float", "int", HALF, HALF]
    dims = [Q, Q, Q, [2, 8, 512], blocks, [8, 512, 512], Q]
    row, plain = (
        moved(build_kernel_table(builder.kernel(op, 60, 30, launch=10).load().rank()))
        for builder in (
            TraceBuilder().op(op, 0, 50, dims=dims, types=types),
            TraceBuilder().op(op, 0, 50, dims=[*dims[:5], *dims[6:]], types=types[:-1]),
        )
    )
    assert plain == SMALL_BYTES / 2
    assert row == plain + 8 * 512 * 512 * 2 * 513 / 1024


def test_a_bias_of_transformer_engine():
    tokens = [512, 2, 8, 64]
    dims = [[], [], [], tokens, tokens, tokens, [1, 8, 512, 512]]
    table = called("FusedAttnFunc", dims, "cudnn_generated_fort_native_sdpa_sm90_flash_fprop", ["True", "512", "512"])
    assert moved(table) == SMALL_BYTES / 2 + 8 * 512 * 512 * 2 * 513 / 1024


# Two sequences of 512 one after another, each with its own mask.
def test_packed_sequences_have_a_mask_for_each_query():
    dims = [[1024, 8, 64]] * 3 + [[3], [3], *[[]] * 12, [1024, 512]]
    concrete = ["", "", "", "", "", "512", "512", *[""] * 11]
    kernel = "void ck_tile::kentry<2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVS<bf16> >>"
    assert moved(called("aiter::mha_varlen_fwd", dims, kernel, concrete)) == SMALL_BYTES / 2 + 1024 * 512 * 2
