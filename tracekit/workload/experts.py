"""Work of the grouped products of a mixture of experts, from their launch.

The op of a serving engine names the tokens, the hidden width and the experts, but neither how wide an expert is nor how
many of them each token visits. The products of TensorRT-LLM (``bmm_..._dynBatch``, now ``dynB``) and of Triton
(``_matmul_ogs``) tell both: their grid has a row of tiles across the output for each tile of tokens, and as many tiles
of tokens as any routing could need (``getMaxNumCtasInBatchDim``, ``RoutingData.n_blocks``): one per expert and one for
each tile's worth of the remaining tokens. The output of the second product is as wide as the model, which gives the
tiles of tokens; these give the width of the first. Triton's persistent products (``_p_matmul_ogs``) have a block for
each processor, which tells nothing.

How the tokens are spread over experts isn't recorded. They are taken to be spread evenly.
"""

import polars as pl

from tracekit.workload.places import OWNER
from tracekit.workload.signature import ITEM_BYTES

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


def fill(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the work of grouped products, and of what casts their input and sums their output.

    A grouped product becomes a ``gemm`` of one product per expert. It is left alone where no number of experts per
    token explains its grid.

    Args:
        kernels: With the columns of ``schema.KERNELS``, and null in ``work_from`` where the work isn't known.

    Returns:
        The same with ``work_from`` ``geometry``. The bracket of a product is on its experts: at least those that one
        token visits, in weights as narrow as the name tells, at most all.
    """
    name, known = pl.col("name"), pl.col("tokens").is_not_null() & pl.col("work_from").is_null()
    replay = pl.when(pl.col("captured_row").is_not_null()).then("call")
    called = kernels.with_columns(call_of_graph=replay)
    routed = called.join(_routing(called), on=OWNER, how="left", nulls_equal=True, maintain_order="left")
    product, finalize, quantise = (known & name.str.contains(pattern) for pattern in (GROUPED, FINALIZE, QUANTISE))
    gated = name.str.contains(GATED)
    pairs = pl.col("tokens") * pl.col("top_k")
    visited = pl.min_horizontal("experts", pairs)
    item = pl.col("dtype").replace_strict(ITEM_BYTES, default=2, return_dtype=pl.Int64)
    half = pl.col("wide") // 2
    given = {
        "batch": visited,
        "m": pairs.floordiv(visited) + (pairs % visited > 0),
        "n": pl.when(gated).then("wide").otherwise("hidden"),
        "k": pl.when(gated).then("hidden").otherwise(half),
    }
    weights = visited * given["n"] * given["k"] * FOUR_BIT_SHARE
    activations = pairs * half + pl.when(gated).then("tokens").otherwise(pairs) * pl.col("hidden")
    stored = product & name.str.contains(STORED)
    moved = (
        pl.when(finalize).then((pairs + pl.col("tokens")) * item).otherwise(pl.col("tokens") * (item + QUANTISED_BYTES))
    ) * pl.col("hidden")
    passed = {
        "rows": pl.col("tokens"),
        "cols": pl.col("hidden"),
        "flops": 2 * pl.when(finalize).then(pairs).otherwise("tokens") * pl.col("hidden"),
    }
    size = pl.when(stored).then(weights + activations * item).when(finalize | quantise).then(moved)
    narrow = pl.when(name.str.contains(FOUR_BITS)).then(FOUR_BIT_SHARE).otherwise(1.0)
    return routed.with_columns(
        *(pl.when(product).then(value).otherwise(column).alias(column) for column, value in given.items()),
        *(pl.when(finalize | quantise).then(value).otherwise(column).alias(column) for column, value in passed.items()),
        bytes=pl.coalesce(size.cast(pl.Int64), "bytes"),
        family=pl.when(product).then(pl.lit("gemm")).when(finalize).then(pl.lit("reduction")).otherwise("family"),
        work_from=pl.when(product | finalize | quantise).then(pl.lit("geometry")).otherwise("work_from"),
        share=pl.when(product | finalize | quantise).then(1.0).otherwise("share"),
        work_low=pl.when(product).then(pl.col("top_k") / visited * narrow).otherwise("work_low"),
        work_high=pl.when(product).then(1.0).otherwise("work_high"),
    ).select(kernels.columns)


def _routing(kernels: pl.DataFrame) -> pl.DataFrame:
    """Per call with both products: ``tokens``, ``hidden``, ``experts``, ``top_k``, ``wide`` (output of the first)."""
    name, shape = pl.col("name"), r"^\[\[(\d+),(\d+)\],\[(\d+),(\d+)\]"
    products = kernels.filter(name.str.contains(GROUPED) & pl.col("op").str.contains("moe"))
    dims = pl.col("input_dims").str.replace_all(" ", "")
    sized = products.with_columns(
        *(dims.str.extract(shape, i).cast(pl.Int64).alias(size) for i, size in enumerate(SIZES, start=1)),
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
