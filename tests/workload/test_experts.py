"""Work of a mixture of experts, from the grids of its grouped products."""

import polars as pl
import pytest

import tracekit as tk
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

TILE = "Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN"
FIRST = f"bmm_MxE4m3_MxE2m1MxE4m3_{TILE}_tma_tmaOpt_clmp_swiGlu_dynBatch_sm100f"
SECOND = f"bmm_Bfloat16_MxE2m1MxE4m3_{TILE}_tmaOpt_clmp_dynBatch_sm100f"
FINALIZE = "void moe::dev::finalize::finalizeKernelVecLoad<Params>(Params)"
QUANTISE = (
    "void tensorrt_llm::kernels::quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2, "
    "__nv_bfloat16, 32, true>(int)"
)
TOKENS, HIDDEN, EXPERTS = 100, 1024, 8


def moe(first_blocks: int, second_blocks: int, tokens: int = TOKENS) -> pl.DataFrame:
    """One call of the op: 8 experts, 1024 wide."""
    builder = TraceBuilder().op(
        "vllm::moe_forward", 0, 100, dims=[[tokens, HIDDEN], [tokens, EXPERTS], []], types=["c10::BFloat16"] * 2 + [""]
    )
    launches = ((QUANTISE, 7), (FIRST, first_blocks), (SECOND, second_blocks), (FINALIZE, 7))
    for i, (name, blocks) in enumerate(launches):
        builder.kernel(name, 200 + 50 * i, 40, launch=10 + i, grid=[blocks, 1, 1], block=[128, 1, 1])
    return build_kernel_table(builder.load().rank())


def test_grids_tell_width_and_top_k():
    """2 of 8 experts: 200 pairs, of which 8 fill a tile each and 192 another 12: 20 tiles.

    The second product's output is 1024 / 128 = 8 tiles wide, the first's 4: 512, two halves of 256.
    """
    rows = {row["name"]: row for row in moe(4 * 20, 8 * 20).iter_rows(named=True)}
    sizes = ("family", "dtype", "batch", "m", "n", "k", "work_from")
    assert [rows[FIRST][name] for name in sizes] == ["gemm", "mxfp8", 8, 25, 512, 1024, "geometry"]
    assert [rows[SECOND][name] for name in sizes] == ["gemm", "mxfp8", 8, 25, 1024, 256, "geometry"]
    # A quarter of the tokens misses an expert with 0.75 ** 25.
    assert rows[FIRST]["work_low"] == pytest.approx(1 - 0.75**25)
    assert rows[FIRST]["work_high"] == 1
    assert [rows[FIRST][name] for name in ("tokens", "experts", "top_k")] == [100, 8, 2]


def test_what_casts_and_sums_moves_its_own_bytes():
    rows = {row["name"]: row for row in moe(4 * 20, 8 * 20).iter_rows(named=True)}
    assert rows[QUANTISE]["bytes"] == TOKENS * HIDDEN * (2 + 1) + TOKENS * HIDDEN // 32
    assert rows[FINALIZE]["bytes"] == (2 + 1) * TOKENS * HIDDEN * 2


def test_fewer_pairs_than_experts():
    """3 tokens of 2 experts each: 6 tiles, at most 6 of 8 experts; evenly 8 x (1 - 0.75 ** 3) = 4.6."""
    kernels = moe(4 * 6, 8 * 6, tokens=3).filter(pl.col("name") == FIRST)
    assert kernels.select("batch", "m", "work_high").row(0) == (5, 2, 6 / 5)


@pytest.mark.parametrize(
    ("first", "second"),
    [(4 * 20, 8 * 20 + 1), (4 * 20 + 1, 8 * 20), (4 * 18, 8 * 18)],
    ids=["no whole row of tiles", "another number of tiles", "no whole number of experts per token"],
)
def test_a_grid_that_no_routing_explains_is_left_alone(first: int, second: int):
    kernels = moe(first, second)
    assert kernels["work_from"].to_list() == [None] * 4
    assert set(kernels["family"]) == {"elementwise", "moe", "reduction"}


def test_real_experts_are_as_wide_as_the_model_says(real_traces):
    """gpt-oss-120b on 8 GPUs: 4 of 128 experts, 2880 wide, of which each GPU has 360, padded to 512."""
    kernels = build_kernel_table(tk.load(real_traces / "b200_eager_rank0_of_8.json.gz").rank())
    products = kernels.filter(pl.col("name").str.starts_with("bmm_"))
    assert set(products.select("batch", "m", "n", "k").rows()) == {(128, 28, 1024, 3072), (128, 28, 3072, 512)}


OGS = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"


def triton(op_tokens: int = 32, first: int = 46 * 38, second: int = 24 * 38) -> TraceBuilder:
    """gpt-oss-20b: 4 of 32 experts, 2944 wide, of a model that is 3072 wide; both padded.

    128 pairs: 32 fill a tile each, and 96 another 6, of 16 tokens: 38 tiles. 2 x 2944 = 46 x 128, 3072 = 24 x 128.
    """
    dims, types = [[op_tokens, 3072], [op_tokens, 32], [], []], ["c10::BFloat16"] * 2 + ["", ""]
    builder = TraceBuilder().op("vllm::moe_forward", 0, 100, dims=dims, types=types)
    launches = ((f"{OGS}_swiglu", first), (OGS, second), ("_finalize_matmul_scatter_bf16", 64))
    for i, (name, blocks) in enumerate(launches):
        builder.kernel(name, 200 + 50 * i, 40, launch=10 + i, grid=[blocks, 1, 1], block=[256, 1, 1])
    return builder


def test_grids_of_tritons_grouped_products():
    rows = {row["name"]: row for row in build_kernel_table(triton().load().rank()).iter_rows(named=True)}
    sizes = ("family", "dtype", "batch", "m", "n", "k")
    assert [rows[f"{OGS}_swiglu"][name] for name in sizes] == ["gemm", "bf16", 32, 4, 5888, 3072]
    assert [rows[OGS][name] for name in sizes] == ["gemm", "bf16", 32, 4, 3072, 2944]
    assert rows[OGS]["work_low"] == pytest.approx(1 - (7 / 8) ** 8)
    # Four bits and a scale for every 32 of them; 128 rows in, of which all are summed later.
    assert rows[OGS]["bytes"] == 32 * 3072 * 2944 * 17 // 32 + 2 * 128 * (2944 + 3072)
    assert rows["_finalize_matmul_scatter_bf16"]["bytes"] == 2 * 3072 * (128 + 32)


def test_products_that_stay_on_their_processors_tell_nothing():
    persistent = triton(first=148, second=148)
    assert build_kernel_table(persistent.load().rank())["work_from"].to_list() == [None] * 3


def test_a_replay_has_the_grid_of_its_capture(tmp_path):
    """AMD's profiler notes grids on the calls, also on those that a graph captures; replayed kernels have none."""
    dims, types = [[32, 3072], [32, 32], [], []], ["c10::BFloat16"] * 2 + ["", ""]
    builder = TraceBuilder().call("hipStreamBeginCapture", 0, 1).op("vllm::moe_forward", 5, 100, dims=dims, types=types)
    launches = ((f"{OGS}_swiglu", 46 * 38), (OGS, 24 * 38))
    for i, (name, blocks) in enumerate(launches):
        geometry = {"grid": [blocks, 1, 1], "block": [256, 1, 1]}
        builder.call("hipModuleLaunchKernel", 10 + 10 * i, 2, kernel=name, **geometry)
    builder.call("hipStreamEndCapture", 200, 1)
    for replay in (1000, 2000):
        builder.call("hipGraphLaunch", replay, 5)
        graph = builder.events[-1]["args"]["correlation"]
        for i, (name, _) in enumerate(launches):
            builder.kernel(name, replay + 20 + 100 * i, 60, correlation=graph)
    kernels = build_kernel_table(tk.load(builder.save(tmp_path / "trace.json")).rank())
    assert kernels["blocks"].to_list() == [46 * 38, 24 * 38] * 2
    assert kernels.select("batch", "m", "n", "k").rows() == [(32, 4, 5888, 3072), (32, 4, 3072, 2944)] * 2


@pytest.mark.parametrize("is_ep", [[], ["False"]], ids=["today", "of 2025"])
def test_marlin_reads_the_experts_that_tokens_are_sent_to(is_ep):
    """6 tokens, 2 of 16 experts each: 16 x (1 - (7/8) ** 6) = 8.8 experts, four bits with a scale for 128 of them."""
    shapes = [[6, 512], [12, 256], [16, 32, 512], [16, 4, 256]]
    tensors = [*shapes, *[[]] * 5, [1024], [128], [16], [1], [6, 2]]
    scalars = ["8", "2", "True", *is_ep, "77", "6", "256", "512", "True"]
    types = [*["c10::BFloat16"] * 2, "int", "c10::BFloat16", *[""] * 5, *["int"] * 4, "float", *["Scalar"] * 9]
    builder = TraceBuilder().op(
        "_moe_C::moe_wna16_marlin_gemm",
        0,
        50,
        dims=[*tensors, *[[]] * len(scalars)],
        types=types[: len(tensors) + len(scalars)],
        concrete=[*[""] * len(tensors), *scalars],
    )
    name = "void marlin_moe_wna16::Marlin<__nv_bfloat16, 256, 1, 8, 8, false, 4, 8, false>(int4 const*)"
    row = build_kernel_table(builder.kernel(name, 60, 30, launch=10).load().rank()).row(0, named=True)
    sizes = ("family", "dtype", "batch", "m", "n", "k", "work_high")
    assert [row[name] for name in sizes] == ["gemm", "bf16", 9, 2, 256, 512, 12 / 9]
    assert row["work_low"] == pytest.approx(16 * (1 - (7 / 8) ** 1.5) / 9)
    stored = 16 * 32 * 512 * 4 + 16 * 4 * 256 * 2
    assert row["bytes"] == stored * 9 // 16 + 2 * (6 * 512 + 12 * 256)


def test_the_activation_between_them_tells_of_products_that_are_launched_without_an_op():
    """6 tokens, 2 of 16 experts each, 256 wide, and a shared one; vLLM runs its Triton kernels inside of one op."""
    dims, types = [[6, 512], [6, 16], []], ["c10::BFloat16"] * 2 + [""]
    builder = (
        TraceBuilder()
        .op("vllm::moe_forward_shared", 0, 100, dims=dims, types=types)
        .op("_C::silu_and_mul", 20, 4, dims=[[6, 999], [6, 1998]], types=types[:2])
        .op("_C::silu_and_mul", 40, 4, dims=[[12, 256], [12, 512]], types=types[:2])
        .kernel("fused_moe_kernel", 200, 40, launch=30)
        .kernel("act_and_mul_kernel", 250, 5, launch=41)
        .kernel("fused_moe_kernel", 260, 40, launch=50)
        .op("vllm::moe_forward", 300, 100, dims=dims, types=types)
        .kernel("fused_moe_kernel", 500, 40, launch=330)
    )
    kernels = build_kernel_table(builder.load().rank()).filter(pl.col("name") == "fused_moe_kernel")
    columns = kernels.select("family", "batch", "m", "n", "k")
    assert columns.rows()[:2] == [("gemm", 9, 2, 512, 512), ("gemm", 9, 2, 512, 256)]
    assert columns.row(2)[1:] == (None,) * 4
    assert kernels["work_low"][0] == pytest.approx(16 * (1 - (7 / 8) ** 1.5) / 9 * 17 / 64)


def test_what_quantises_the_tokens_tells_what_the_products_multiply():
    """Of both products, and of neither the router's nor what isn't a product."""
    dims, types = [[6, 512], [6, 16], []], ["c10::BFloat16"] * 2 + [""]
    fp8 = ["c10::Float8_e4m3fn", "c10::BFloat16", "float"]
    builder = (
        TraceBuilder()
        .op("vllm::moe_forward", 0, 100, dims=dims, types=types)
        .op("_C::dynamic_scaled_fp8_quant", 10, 4, dims=[[6, 512], [6, 512], [1]], types=fp8)
        .op("_C::silu_and_mul", 40, 4, dims=[[12, 256], [12, 512]], types=types[:2])
        .kernel("fused_moe_kernel", 200, 40, launch=30)
        .kernel("act_and_mul_kernel", 250, 5, launch=41)
        .kernel("fused_moe_kernel", 260, 40, launch=50)
        .op("vllm::moe_forward", 300, 100, dims=dims, types=types)
        .op("_C::silu_and_mul", 340, 4, dims=[[12, 256], [12, 512]], types=types[:2])
        .kernel("fused_moe_kernel", 500, 40, launch=330)
    )
    assert build_kernel_table(builder.load().rank())["dtype"].to_list() == ["fp8", "bf16", "fp8", "bf16"]
