"""Tokens of products and experts without shapes: from an engine's annotation, and from grids in a graph."""

import polars as pl
import pytest

from predictors import predict
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

PRODUCT = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"
EXPERTS = "fused_moe_kernel"
NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)"
HEADS = "void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)"


def decode(annotation: str | None, norm_blocks: int | None = None, product: str = PRODUCT) -> pl.DataFrame:
    """Kernel table of a graph of a product, experts and perhaps norms, of tokens and of four heads each."""
    builder = TraceBuilder().kernel(product, 20, 100, launch=10, call="cudaGraphLaunch", grid=[264, 1, 1])
    launch = {"correlation": builder.events[-1]["args"]["correlation"]}
    builder.kernel(EXPERTS, 130, 100, **launch, grid=[264, 1, 1])
    if norm_blocks is not None:
        builder.kernel(HEADS, 240, 2, **launch, grid=[4 * norm_blocks, 1, 1], block=[128, 1, 1])
        builder.kernel(NORM, 250, 2, **launch, grid=[norm_blocks, 1, 1], block=[128, 1, 1])
    if annotation is not None:
        builder.annotation(annotation, 5, 20)
    return build_kernel_table(builder.load().rank())


@pytest.mark.parametrize(
    ("annotation", "tokens"),
    [
        ("execute_context_0(0)_generation_1(1)", 1),
        ("execute_context_1(500_250000)_generation_12(12)", 512),
        ("execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)", 8192),
        ("step[DECODE bs=48]", 48),
        ("step[EXTEND bs=15 toks=15360]", 15360),
        ("execute_context_0(0)_generation_0(0)", None),
        ("forward", None),
        (None, None),
    ],
)
def test_engines_name_the_tokens_of_a_batch(annotation, tokens):
    assert decode(annotation)["tokens"].to_list() == [tokens, tokens]


@pytest.mark.parametrize("annotation", [None, "execute_context_0(0)_generation_33(33)"])
def test_in_a_graph_norms_have_a_block_a_token_padded_ones_too(annotation):
    kernels = decode(annotation, norm_blocks=40)
    assert kernels["tokens"].to_list() == [40, 40, None, None]


def test_a_call_outside_of_the_batch_and_a_norm_outside_of_a_graph_tell_nothing():
    kernels = (
        TraceBuilder()
        .annotation("execute_context_0(0)_generation_1(1)", 0, 5)
        .kernel(PRODUCT, 20, 100, launch=10)
        .kernel(NORM, 130, 2, launch=15, grid=[40, 1, 1], block=[128, 1, 1])
    )
    assert build_kernel_table(kernels.load().rank())["tokens"].to_list() == [None, None]


def test_known_work_has_no_need_of_them():
    builder = (
        TraceBuilder()
        .annotation("execute_context_0(0)_generation_1(1)", 0, 100)
        .op("aten::mm", 5, 30, dims=[[1, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
        .kernel(PRODUCT, 20, 100, launch=10)
    )
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    assert (row["m"], row["tokens"]) == (1, None)


def test_a_decode_goes_with_the_memory_and_a_prefill_as_before():
    """From an H100 to an H200, with 1.43 times the bandwidth: 100 us, of which about 5 are latency."""
    wide = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_TNT"
    one, many, untold = (
        predict(
            decode(annotation, product=wide).with_columns(measured_us=pl.col("dur_ns") / 1e3),
            "h200-sxm",
            source_gpu="h100-sxm",
        )["time_us"].to_list()
        for annotation in ("execute_context_0(0)_generation_1(1)", "execute_context_1(8192)_generation_0(0)", None)
    )
    assert one == pytest.approx([5 + 95 * 3352 / 4800] * 2, rel=0.05)
    assert many == untold
    assert min(untold) > 90
