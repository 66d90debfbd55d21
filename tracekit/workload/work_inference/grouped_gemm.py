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

The distribution of tokens over experts isn't recorded: :mod:`.expert_gemms` assumes one.
"""

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload.work_inference.expert_gemms import (
    TOKEN_EXPERT_PAIRS,
    build_expert_gemm_columns,
    get_item_bytes,
)
from tracekit.workload.work_inference.op_gemms import OP_CALL_KEY
from tracekit.workload.work_inference.override import override_columns
from tracekit.workload.work_inference.rule import WorkRule

GROUPED_GEMM_KERNEL = r"^bmm_.*_dynB(?:atch)?_|^_matmul_ogs_\w*\dx1(?:_swiglu)?$"
FIRST_GEMM_KERNEL = r"_(?:swiGlu|geGlu)_|_swiglu$"
FINALIZE_KERNEL = r"^void moe::dev::finalize::|^_finalize_matmul_scatter"
QUANTISE_KERNEL = r"quantize_with_block_size<\(tensorrt_llm::BlockScaleQuantizationType\)2, \w+, 32,"
"""Casts to 8-bit elements with one byte of scale per 32 of them (MXFP8)."""
MXFP8_ITEM_BYTES = 33 / 32
ROUTED = ("tokens", "experts", "top_k")
ROUTING_SIZES = ("tokens", "hidden", "scored", "experts")


def infer_grouped_gemm_work(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Infer the work of grouped GEMMs, and of the kernels that cast their input and sum their output.

    A grouped GEMM becomes a ``gemm`` of one GEMM per expert. It is left unchanged if no number of experts per token
    explains its grid.

    Args:
        kernels: Table with the columns of ``schema.KERNELS``; ``work_from`` is null where the work isn't known.

    Returns:
        The table with ``work_from`` ``geometry`` on these rows; bounds as in :mod:`.expert_gemms`.
    """
    replay = pl.when(pl.col("captured_row").is_not_null()).then("call")
    called = kernels.with_columns(call_of_graph=replay)
    routing = _infer_routing(called)
    if routing.is_empty():
        return kernels
    routing = routing.rename({name: f"routed {name}" for name in ROUTED})
    joined = called.join(routing, on=OP_CALL_KEY, how="left", nulls_equal=True, maintain_order="left")
    unknown = pl.col("routed tokens").is_not_null() & pl.col("work_from").is_null()
    names = (GROUPED_GEMM_KERNEL, FINALIZE_KERNEL, QUANTISE_KERNEL)
    routed = joined.with_columns(override_columns(unknown, {name: pl.col(f"routed {name}") for name in ROUTED}))
    product, finalize, quantise = (unknown & pl.col("name").str.contains(name) for name in names)
    passes = finalize | quantise
    mine = product | passes
    is_first = pl.col("name").str.contains(FIRST_GEMM_KERNEL)
    return (
        routed.with_columns(override_columns(product, build_expert_gemm_columns(is_first)))
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


def _build_pass_columns(finalize: pl.Expr) -> dict[str, pl.Expr]:
    """Build the columns of a pass over the tokens: the sum of the experts' outputs, or the cast of the input."""
    summed = (TOKEN_EXPERT_PAIRS + pl.col("tokens")) * get_item_bytes()
    cast = pl.col("tokens") * (get_item_bytes() + MXFP8_ITEM_BYTES)
    return {
        "family": pl.when(finalize).then(pl.lit("reduction")).otherwise("family"),
        "rows": pl.col("tokens"),
        "cols": pl.col("hidden"),
        "flops": 2 * pl.when(finalize).then(TOKEN_EXPERT_PAIRS).otherwise("tokens") * pl.col("hidden"),
        "bytes": (pl.when(finalize).then(summed).otherwise(cast) * pl.col("hidden")).cast(pl.Int64),
    }


def _infer_routing(kernels: pl.DataFrame) -> pl.DataFrame:
    """Infer the routing of each call that has both GEMMs.

    Returns:
        ``tokens``, ``hidden``, ``experts``, ``top_k``, ``wide`` (width of the first GEMM's output) and ``inner``.
    """
    name, shape = pl.col("name"), r"^\[\[(\d+),(\d+)\],\[(\d+),(\d+)\]"
    products = kernels.filter(name.str.contains(GROUPED_GEMM_KERNEL) & pl.col("op").str.contains("moe"))
    dims = pl.col("input_dims").str.replace_all(" ", "")
    sized = products.with_columns(
        *(
            dims.str.extract(shape, i).cast(pl.Int64, strict=False).alias(size)
            for i, size in enumerate(ROUTING_SIZES, start=1)
        ),
        gated=name.str.contains(FIRST_GEMM_KERNEL),
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
    wide = pl.col("blocks") // tiles * pl.col("tile_n")
    return both.filter(exact).select(
        *OP_CALL_KEY, "tokens", "hidden", "experts", top_k=top_k, wide=wide, inner=wide // 2
    )
