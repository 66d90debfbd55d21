"""Work of the grouped GEMMs of a mixture of experts, from their launch.

The op of a serving engine names the tokens, the hidden width and the experts, but neither how wide an expert is nor how
many of them each token visits. The GEMMs of TensorRT-LLM (``bmm_..._dynBatch``, now ``dynB``) and of Triton
(``_matmul_ogs``) tell both: their grid has a row of tiles across the output for each tile of tokens, and as many tiles
of tokens as any routing could need (``getMaxNumCtasInBatchDim``, ``RoutingData.n_blocks``): one per expert and one for
each tile's worth of the remaining tokens. The output of the second GEMM is as wide as the model, which gives the
tiles of tokens; these give the width of the first. Triton's persistent GEMMs (``_p_matmul_ogs``) have a block for
each SM, which tells nothing.

How the tokens are spread over experts isn't recorded. They are taken to be spread evenly.
"""

import polars as pl

from tracekit.workload.places import OWNER
from tracekit.workload.signature import ITEM_BYTES
from tracekit.workload.where import where

GROUPED = r"^bmm_.*_dynB(?:atch)?_|^_matmul_ogs_\w*\dx1(?:_swiglu)?$"
GATED = r"_(?:swiGlu|geGlu)_|_swiglu$"
FINALIZE = r"^void moe::dev::finalize::|^_finalize_matmul_scatter"
STORED = r"^_matmul_ogs_.*xmxfp4_"
"""Reads weights of four bits while it computes with wider ones."""
QUANTISE = r"quantize_with_block_size<\(tensorrt_llm::BlockScaleQuantizationType\)2, \w+, 32,"
"""To 8-bit elements with a byte of scale for every 32 of them (MXFP8)."""
QUANTISED_BYTES = 33 / 32
FOUR_BITS = "E2m1"
FOUR_BIT_SHARE = 17 / 32
"""Bytes of 4-bit weights, with a byte of scale for every 32 of them, over those of 8-bit ones."""

SIZES = ("tokens", "hidden", "scored", "experts")
PAIRS = pl.col("tokens") * pl.col("top_k")
"""Of a token and an expert that it visits."""


def fill(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the work of grouped GEMMs, and of what casts their input and sums their output.

    A grouped GEMM becomes a ``gemm`` of one GEMM per expert. It is left alone where no number of experts per
    token explains its grid.

    Args:
        kernels: With the columns of ``schema.KERNELS``, and null in ``work_from`` where the work isn't known.

    Returns:
        The same with ``work_from`` ``geometry``. The bracket of a GEMM is on its experts: at least those that one
        token visits, in weights as narrow as the name tells, at most all.
    """
    replay = pl.when(pl.col("captured_row").is_not_null()).then("call")
    called = kernels.with_columns(call_of_graph=replay)
    routed = called.join(_routing(called), on=OWNER, how="left", nulls_equal=True, maintain_order="left")
    unknown = pl.col("tokens").is_not_null() & pl.col("work_from").is_null()
    product, finalize, quantise = (
        unknown & pl.col("name").str.contains(name) for name in (GROUPED, FINALIZE, QUANTISE)
    )
    passes = finalize | quantise
    mine = product | passes
    return (
        routed.with_columns(where(product, _of_product()))
        .with_columns(where(passes, _of_pass(finalize)))
        .with_columns(where(mine, {"work_from": pl.lit("geometry"), "share": pl.lit(1.0)}))
        .select(kernels.columns)
    )


def _of_product() -> dict[str, pl.Expr]:
    """A GEMM per expert that tokens visit, its weights read as they are stored."""
    name, item = pl.col("name").str, _item_bytes()
    gated, visited, half = name.contains(GATED), pl.min_horizontal("experts", PAIRS), pl.col("wide") // 2
    n = pl.when(gated).then("wide").otherwise("hidden")
    k = pl.when(gated).then("hidden").otherwise(half)
    activations = PAIRS * half + pl.when(gated).then("tokens").otherwise(PAIRS) * pl.col("hidden")
    stored = visited * n * k * FOUR_BIT_SHARE + activations * item
    narrow = pl.when(name.contains(FOUR_BITS)).then(FOUR_BIT_SHARE).otherwise(1.0)
    return {
        "family": pl.lit("gemm"),
        "batch": visited,
        "m": PAIRS.floordiv(visited) + (PAIRS % visited > 0),
        "n": n,
        "k": k,
        "bytes": pl.when(name.contains(STORED)).then(stored.cast(pl.Int64)).otherwise("bytes"),
        "work_low": pl.col("top_k") / visited * narrow,
        "work_high": pl.lit(1.0),
    }


def _of_pass(finalize: pl.Expr) -> dict[str, pl.Expr]:
    """Over the tokens: one that sums the experts' outputs, or casts the input."""
    summed = (PAIRS + pl.col("tokens")) * _item_bytes()
    cast = pl.col("tokens") * (_item_bytes() + QUANTISED_BYTES)
    return {
        "family": pl.when(finalize).then(pl.lit("reduction")).otherwise("family"),
        "rows": pl.col("tokens"),
        "cols": pl.col("hidden"),
        "flops": 2 * pl.when(finalize).then(PAIRS).otherwise("tokens") * pl.col("hidden"),
        "bytes": (pl.when(finalize).then(summed).otherwise(cast) * pl.col("hidden")).cast(pl.Int64),
    }


def _item_bytes() -> pl.Expr:
    return pl.col("dtype").replace_strict(ITEM_BYTES, default=2, return_dtype=pl.Int64)


def _routing(kernels: pl.DataFrame) -> pl.DataFrame:
    """Per call with both products: ``tokens``, ``hidden``, ``experts``, ``top_k``, ``wide`` (output of the first)."""
    name, shape = pl.col("name"), r"^\[\[(\d+),(\d+)\],\[(\d+),(\d+)\]"
    products = kernels.filter(name.str.contains(GROUPED) & pl.col("op").str.contains("moe"))
    dims = pl.col("input_dims").str.replace_all(" ", "")
    sized = products.with_columns(
        *(dims.str.extract(shape, i).cast(pl.Int64, strict=False).alias(size) for i, size in enumerate(SIZES, start=1)),
        gated=name.str.contains(GATED),
    ).filter(pl.col("tokens") == pl.col("scored"))
    first, second = (
        sized.filter(gated).unique(OWNER, keep="none").drop_nulls(["blocks", "tile_m", "tile_n"])
        for gated in (pl.col("gated"), ~pl.col("gated"))
    )
    both = first.join(second.select(*OWNER, second_blocks="blocks", second_tile="tile_n"), on=OWNER, nulls_equal=True)
    across = (pl.col("hidden") + pl.col("second_tile") - 1) // pl.col("second_tile")
    tiles = pl.col("second_blocks") // across
    beyond = (tiles - pl.col("experts")).clip(0)
    least = pl.min_horizontal(tiles, "experts") + beyond * pl.col("tile_m")
    top_k = (least + pl.col("tokens") - 1) // pl.col("tokens")
    explained = (top_k * pl.col("tokens") - least < pl.col("tile_m")) & (top_k <= pl.col("experts"))
    exact = (pl.col("second_blocks") % across == 0) & (pl.col("blocks") % tiles == 0) & explained
    return both.filter(exact).select(
        *OWNER, "tokens", "hidden", "experts", top_k=top_k, wide=pl.col("blocks") // tiles * pl.col("tile_n")
    )
