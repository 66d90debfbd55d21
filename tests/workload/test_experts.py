"""Work of a mixture of experts, from the grids of its grouped products."""

import polars as pl
import pytest

import tracekit as tk
from tracekit.testing import TraceBuilder
from tracekit.workload.extract import extract

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
    return extract(builder.load().rank())


def test_grids_tell_width_and_top_k():
    """2 of 8 experts: 200 pairs, of which 8 fill a tile each and 192 another 12: 20 tiles.

    The second product's output is 1024 / 128 = 8 tiles wide, the first's 4: 512, two halves of 256.
    """
    rows = {row["name"]: row for row in moe(4 * 20, 8 * 20).iter_rows(named=True)}
    sizes = ("family", "dtype", "batch", "m", "n", "k", "work_from")
    assert [rows[FIRST][name] for name in sizes] == ["gemm", "fp8", 8, 25, 512, 1024, "geometry"]
    assert [rows[SECOND][name] for name in sizes] == ["gemm", "fp8", 8, 25, 1024, 256, "geometry"]
    # All tokens may visit the same two experts; 4-bit weights and their scales take 17/32 of a byte.
    assert (rows[FIRST]["work_low"], rows[FIRST]["work_high"]) == (2 / 8 * 17 / 32, 1.0)


def test_what_casts_and_sums_moves_its_own_bytes():
    rows = {row["name"]: row for row in moe(4 * 20, 8 * 20).iter_rows(named=True)}
    assert rows[QUANTISE]["bytes"] == TOKENS * HIDDEN * (2 + 1) + TOKENS * HIDDEN // 32
    assert rows[FINALIZE]["bytes"] == (2 + 1) * TOKENS * HIDDEN * 2


def test_fewer_pairs_than_experts():
    """3 tokens of 2 experts each: 6 tiles, at most 6 experts."""
    kernels = moe(4 * 6, 8 * 6, tokens=3).filter(pl.col("name") == FIRST)
    assert kernels.select("batch", "m").row(0) == (6, 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [(4 * 20, 8 * 20 + 1), (4 * 20 + 1, 8 * 20), (4 * 18, 8 * 18)],
    ids=["no whole row of tiles", "another number of tiles", "no whole number of experts per token"],
)
def test_a_grid_that_no_routing_explains_is_left_alone(first: int, second: int):
    kernels = moe(first, second)
    assert kernels["work_from"].to_list() == [None] * 4
    assert set(kernels["family"]) == {"elementwise", "moe"}


def test_real_experts_are_as_wide_as_the_model_says(real_traces):
    """gpt-oss-120b on 8 GPUs: 4 of 128 experts, 2880 wide, of which each GPU has 360, padded to 512."""
    kernels = extract(tk.load(real_traces / "b200_eager_rank0_of_8.json.gz").rank())
    products = kernels.filter(pl.col("name").str.starts_with("bmm_"))
    assert set(products.select("batch", "m", "n", "k").rows()) == {(128, 28, 1024, 3072), (128, 28, 3072, 512)}
