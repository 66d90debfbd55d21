"""Infer the work of the grouped GEMMs of a mixture of experts (MoE) from their launch.

The op of a serving engine has the number of tokens, the hidden width and the number of experts. It has neither an
expert's width nor the number of experts per token (top-k). The grids of TensorRT-LLM's GEMMs (``bmm_..._dynBatch``, now
``dynB``) and of Triton's (``_matmul_ogs``) give both.

Such a grid has one row of tiles across the output for each tile of tokens. It has as many tiles of tokens as any
routing could need (``getMaxNumCtasInBatchDim``, ``RoutingData.n_blocks``): one per expert, and one for each full tile
of the remaining tokens. The output of the second GEMM is as wide as the model, which gives the tiles of tokens. The
tiles of tokens then give the width of the first GEMM:

    second GEMM: blocks / ceil(hidden / tile_n) = tiles of tokens -> top-k
    first GEMM:  blocks / tiles of tokens * tile_n = width of the first output

Triton's persistent GEMMs (``_p_matmul_ogs``) have one block per SM, so their grid gives nothing.

The distribution of tokens over experts isn't recorded; it is assumed to be even.
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.signature import ITEM_BYTES
from tracekit.workload.work_inference.op_gemms import OP_CALL_KEY
from tracekit.workload.work_inference.override import override_columns
from tracekit.workload.work_inference.rule import WorkRule

GROUPED_GEMM_KERNEL = r"^bmm_.*_dynB(?:atch)?_|^_matmul_ogs_\w*\dx1(?:_swiglu)?$"
GATED_GEMM_KERNEL = r"_(?:swiGlu|geGlu)_|_swiglu$"
FINALIZE_KERNEL = r"^void moe::dev::finalize::|^_finalize_matmul_scatter"
FOUR_BIT_GEMM_KERNEL = r"^_matmul_ogs_.*xmxfp4_"
"""GEMMs that read 4-bit weights and compute with wider ones."""
QUANTISE_KERNEL = r"quantize_with_block_size<\(tensorrt_llm::BlockScaleQuantizationType\)2, \w+, 32,"
"""Casts to 8-bit elements with one byte of scale per 32 of them (MXFP8)."""
MXFP8_ITEM_BYTES = 33 / 32
FOUR_BIT_TYPE = "E2m1"
FOUR_BIT_FRACTION = 17 / 32
"""Bytes of 4-bit weights, with one byte of scale per 32 of them, over those of 8-bit weights."""

ROUTING_SIZES = ("tokens", "hidden", "scored", "experts")
TOKEN_EXPERT_PAIRS = pl.col("tokens") * pl.col("top_k")
"""Pairs of a token and one of its experts."""


def infer_grouped_gemm_work(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Infer the work of grouped GEMMs, and of the kernels that cast their input and sum their output.

    A grouped GEMM becomes a ``gemm`` of one GEMM per expert. It is left unchanged if no number of experts per token
    explains its grid.

    Args:
        kernels: Table with the columns of ``schema.KERNELS``; ``work_from`` is null where the work isn't known.

    Returns:
        The table with ``work_from`` ``geometry`` on these rows. The bounds on a GEMM's work come from its experts: at
        least those of one token, with weights as narrow as the name says, at most all.
    """
    replay = pl.when(pl.col("captured_row").is_not_null()).then("call")
    called = kernels.with_columns(call_of_graph=replay)
    routing = _infer_routing(called)
    if routing.is_empty():
        return kernels
    routed = called.join(routing, on=OP_CALL_KEY, how="left", nulls_equal=True, maintain_order="left")
    unknown = pl.col("tokens").is_not_null() & pl.col("work_from").is_null()
    product, finalize, quantise = (
        unknown & pl.col("name").str.contains(name) for name in (GROUPED_GEMM_KERNEL, FINALIZE_KERNEL, QUANTISE_KERNEL)
    )
    passes = finalize | quantise
    mine = product | passes
    return (
        routed.with_columns(override_columns(product, _build_gemm_columns()))
        .with_columns(override_columns(passes, _build_pass_columns(finalize)))
        .with_columns(override_columns(mine, {"work_from": pl.lit("geometry"), "share": pl.lit(1.0)}))
        .select(kernels.columns)
    )


RULE = WorkRule(
    "grouped-gemm-launch",
    "The grids of an MoE's two GEMMs give an expert's width and the experts per token.",
    "The sources of TensorRT-LLM and Triton's matmul_ogs; tokens are assumed to be spread evenly.",
    infer_grouped_gemm_work,
)


def _build_gemm_columns() -> dict[str, pl.Expr]:
    """Build the columns of a GEMM per expert with tokens; its weights are read as they are stored."""
    name, item = pl.col("name").str, _get_item_bytes()
    gated, visited, half = (
        name.contains(GATED_GEMM_KERNEL),
        pl.min_horizontal("experts", TOKEN_EXPERT_PAIRS),
        pl.col("wide") // 2,
    )
    n = pl.when(gated).then("wide").otherwise("hidden")
    k = pl.when(gated).then("hidden").otherwise(half)
    activations = TOKEN_EXPERT_PAIRS * half + pl.when(gated).then("tokens").otherwise(TOKEN_EXPERT_PAIRS) * pl.col(
        "hidden"
    )
    stored = visited * n * k * FOUR_BIT_FRACTION + activations * item
    narrow = pl.when(name.contains(FOUR_BIT_TYPE)).then(FOUR_BIT_FRACTION).otherwise(1.0)
    return {
        "family": pl.lit("gemm"),
        "batch": visited,
        "m": TOKEN_EXPERT_PAIRS.floordiv(visited) + (TOKEN_EXPERT_PAIRS % visited > 0),
        "n": n,
        "k": k,
        "bytes": pl.when(name.contains(FOUR_BIT_GEMM_KERNEL)).then(stored.cast(pl.Int64)).otherwise("bytes"),
        "work_low": pl.col("top_k") / visited * narrow,
        "work_high": pl.lit(1.0),
    }


def _build_pass_columns(finalize: pl.Expr) -> dict[str, pl.Expr]:
    """Build the columns of a pass over the tokens: the sum of the experts' outputs, or the cast of the input."""
    summed = (TOKEN_EXPERT_PAIRS + pl.col("tokens")) * _get_item_bytes()
    cast = pl.col("tokens") * (_get_item_bytes() + MXFP8_ITEM_BYTES)
    return {
        "family": pl.when(finalize).then(pl.lit("reduction")).otherwise("family"),
        "rows": pl.col("tokens"),
        "cols": pl.col("hidden"),
        "flops": 2 * pl.when(finalize).then(TOKEN_EXPERT_PAIRS).otherwise("tokens") * pl.col("hidden"),
        "bytes": (pl.when(finalize).then(summed).otherwise(cast) * pl.col("hidden")).cast(pl.Int64),
    }


def _get_item_bytes() -> pl.Expr:
    return pl.col("dtype").replace_strict(ITEM_BYTES, default=2, return_dtype=pl.Int64)


def _infer_routing(kernels: pl.DataFrame) -> pl.DataFrame:
    """Infer the routing of each call that has both GEMMs.

    Returns:
        ``tokens``, ``hidden``, ``experts``, ``top_k`` and ``wide`` (width of the first GEMM's output).
    """
    name, shape = pl.col("name"), r"^\[\[(\d+),(\d+)\],\[(\d+),(\d+)\]"
    products = kernels.filter(name.str.contains(GROUPED_GEMM_KERNEL) & pl.col("op").str.contains("moe"))
    dims = pl.col("input_dims").str.replace_all(" ", "")
    sized = products.with_columns(
        *(
            dims.str.extract(shape, i).cast(pl.Int64, strict=False).alias(size)
            for i, size in enumerate(ROUTING_SIZES, start=1)
        ),
        gated=name.str.contains(GATED_GEMM_KERNEL),
    ).filter(pl.col("tokens") == pl.col("scored"))
    first, second = (
        sized.filter(gated).unique(OP_CALL_KEY, keep="none").drop_nulls(["blocks", "tile_m", "tile_n"])
        for gated in (pl.col("gated"), ~pl.col("gated"))
    )
    both = first.join(
        second.select(*OP_CALL_KEY, second_blocks="blocks", second_tile="tile_n"), on=OP_CALL_KEY, nulls_equal=True
    )
    across = (pl.col("hidden") + pl.col("second_tile") - 1) // pl.col("second_tile")
    tiles = pl.col("second_blocks") // across
    beyond = (tiles - pl.col("experts")).clip(0)
    least = pl.min_horizontal(tiles, "experts") + beyond * pl.col("tile_m")
    top_k = (least + pl.col("tokens") - 1) // pl.col("tokens")
    explained = (top_k * pl.col("tokens") - least < pl.col("tile_m")) & (top_k <= pl.col("experts"))
    exact = (pl.col("second_blocks") % across == 0) & (pl.col("blocks") % tiles == 0) & explained
    return both.filter(exact).select(
        *OP_CALL_KEY, "tokens", "hidden", "experts", top_k=top_k, wide=pl.col("blocks") // tiles * pl.col("tile_n")
    )
