"""Infer the work of GEMMs whose op didn't record it."""

import re

import numpy as np
import polars as pl

from tracekit.arrays import Ints, has_name, list_distinct, make_nulls
from tracekit.ingest import batches
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.trace import RankTrace
from tracekit.workload.names import infer_family
from tracekit.workload.ops import gemm_sequences, recurrent
from tracekit.workload.ops.gemm_sequences import LEAST_TOKENS_FRACTION, count_hit_experts
from tracekit.workload.signature import ITEM_BYTES
from tracekit.workload.work_inference.rule import WorkRule, override_columns

GROUPED_GEMM_NAME = re.compile(r"fused_moe_kernel|grouped_?gemm", re.IGNORECASE)
OP_CALL_KEY = ("op_row", "captured_row", "call_of_graph")
"""Columns that identify one call of an op."""


def number_op_gemms(kernels: pl.DataFrame) -> pl.DataFrame:
    """Add ``place`` and ``products``: the position of each GEMM among those of its op's call, and their number.

    Both are null for all kernels but the GEMMs of an op in ``chains.GEMM_SEQUENCES``.

    Args:
        kernels: Table with ``name``, ``ts_ns``, ``op``, ``op_row``, ``captured_row`` and ``call``.
    """
    if gemm_sequences.GEMM_SEQUENCES.keys().isdisjoint(list_distinct(kernels["op"])):
        return kernels.hstack([make_nulls(name, kernels.height) for name in ("place", "products")])
    table = kernels.with_row_index("row")
    products = _select_gemms(table, list(gemm_sequences.GEMM_SEQUENCES))
    placed = products.sort("ts_ns", "row").select(
        "row",
        place=pl.int_range(pl.len(), dtype=pl.Int64).over(OP_CALL_KEY),
        products=pl.len().cast(pl.Int64).over(OP_CALL_KEY),
    )
    return table.join(placed, on="row", how="left", maintain_order="left").drop("row")


def list_recurrent_gemms(kernels: pl.DataFrame) -> pl.DataFrame:
    """Add ``of_call``: the GEMMs that the call ran, one line ``count name`` for each kernel name.

    Null for all kernels but the GEMMs of a recurrent op.
    """
    if recurrent.STATE_AND_DIRECTION_POSITIONS.keys().isdisjoint(list_distinct(kernels["op"])):
        return kernels.hstack([make_nulls("of_call", kernels.height, pl.String)])
    table = kernels.with_row_index("row")
    products = _select_gemms(table, list(recurrent.STATE_AND_DIRECTION_POSITIONS))
    names = products.group_by(*OP_CALL_KEY, "name").len().with_columns(line=pl.format("{} {}", "len", "name"))
    calls = names.group_by(OP_CALL_KEY).agg(of_call=pl.col("line").sort().str.join("\n"))
    told = products.select("row", *OP_CALL_KEY).join(calls, on=OP_CALL_KEY, nulls_equal=True).select("row", "of_call")
    return table.join(told, on="row", how="left", maintain_order="left").drop("row")


def _select_gemms(kernels: pl.DataFrame, ops: list[str]) -> pl.DataFrame:
    """Select the GEMMs of some ops, with the columns ``OP_CALL_KEY``."""
    owned = kernels.filter(pl.col("op").is_in(ops), pl.col("kind") == "kernel")
    names = [name for name in owned["name"].unique() if infer_family(name) == "gemm" or GROUPED_GEMM_NAME.search(name)]
    return owned.filter(pl.col("name").is_in(names)).with_columns(
        call_of_graph=pl.when(pl.col("captured_row").is_not_null()).then("call")
    )


TOKEN_EXPERT_PAIRS = pl.col("tokens") * pl.col("top_k")
"""Pairs of a token and one of its experts."""


def build_expert_gemm_columns(is_first: pl.Expr) -> dict[str, pl.Expr]:
    """Build the columns of a GEMM per expert with tokens.

    Args:
        is_first: Whether it is the GEMM into the experts, not the one out of them. The table has the columns
            ``tokens``, ``top_k``, ``experts``, ``token_width``, ``wide`` (columns of the first GEMM's output) and
            ``inner`` (columns of the second one's input: half of them after a gate).
    """
    experts, top_k = pl.col("experts"), pl.col("top_k")
    visited = count_hit_experts(pl.col("tokens"), experts, top_k).round().cast(pl.Int64).clip(1)
    n = pl.when(is_first).then("wide").otherwise("token_width")
    k = pl.when(is_first).then("token_width").otherwise("inner")
    least = count_hit_experts((pl.col("tokens") * LEAST_TOKENS_FRACTION).clip(1), experts, top_k)
    return {
        "family": pl.lit("gemm"),
        "batch": visited,
        "m": (TOKEN_EXPERT_PAIRS + visited - 1) // visited,
        "n": n,
        "k": k,
        "work_low": pl.min_horizontal(least / visited, 1.0),
        "tokens": pl.col("tokens"),
        "experts": experts,
        "top_k": top_k,
        "work_high": pl.max_horizontal(pl.min_horizontal("experts", TOKEN_EXPERT_PAIRS) / visited, 1.0),
    }


def get_item_bytes() -> pl.Expr:
    """Return the bytes of an element by the kernel's precision."""
    return pl.col("dtype").replace_strict(ITEM_BYTES, default=2, return_dtype=pl.Int64)


GROUPED_GEMM_KERNEL = r"^bmm_.*_dynB(?:atch)?_|^_matmul_ogs_\w*\dx1(?:_swiglu)?$"
FIRST_GEMM_KERNEL = r"_(?:swiGlu|geGlu)_|_swiglu$"
FINALIZE_KERNEL = r"^void moe::dev::finalize::|^_finalize_matmul_scatter"
QUANTISE_KERNEL = r"quantize_with_block_size<\(tensorrt_llm::BlockScaleQuantizationType\)2, \w+, 32,"
"""Casts to 8-bit elements with one byte of scale per 32 of them (MXFP8)."""
MXFP8_ITEM_BYTES = 33 / 32
ROUTED = ("tokens", "experts", "top_k")
ROUTING_SIZES = ("tokens", "token_width", "scored", "experts")


def infer_grouped_gemm_work(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Infer the work of grouped GEMMs, and of the kernels that cast their input and sum their output.

    A grouped GEMM becomes a ``gemm`` of one GEMM per expert. It is left unchanged if no number of experts per token
    explains its grid.

    Returns:
        The table with ``work_from`` ``geometry`` on these rows; bounds as in ``build_expert_gemms``.
    """
    if not has_name(kernels, GROUPED_GEMM_KERNEL):
        return kernels
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


GROUPED_GEMM_RULE = WorkRule(
    "grouped-gemm-launch",
    "The grids of an MoE's two GEMMs give an expert's width and the experts per token.",
    "The sources of TensorRT-LLM and Triton's matmul_ogs; tokens are assumed to be spread evenly.",
    infer_grouped_gemm_work,
)
"""The op of a serving engine has the number of tokens, the hidden width and the number of experts. It has neither an
expert's width nor the number of experts per token (top-k). The grids of TensorRT-LLM's GEMMs (``bmm_..._dynBatch``, now
``dynB``) and of Triton's (``_matmul_ogs``) give both.

Such a grid has one row of tiles across the output for each tile of tokens. It has as many tiles of tokens as any
routing could need (``getMaxNumCtasInBatchDim``, ``RoutingData.n_blocks``): one per expert, and one for each full tile
of the remaining tokens. The output of the second GEMM is as wide as the model, which gives the tiles of tokens. The
tiles of tokens then give the width of the first GEMM:

    second GEMM: blocks / ceil(token_width / tile_n) = tiles of tokens -> top-k
    first GEMM:  blocks / tiles of tokens * tile_n = width of the first output

Triton's persistent GEMMs (``_p_matmul_ogs``) have one block per SM, so their grid gives nothing.

The distribution of tokens over experts isn't recorded: ``build_expert_gemms`` assumes one.
"""


def _build_pass_columns(finalize: pl.Expr) -> dict[str, pl.Expr]:
    """Build the columns of a pass over the tokens: the sum of the experts' outputs, or the cast of the input."""
    summed = (TOKEN_EXPERT_PAIRS + pl.col("tokens")) * get_item_bytes()
    cast = pl.col("tokens") * (get_item_bytes() + MXFP8_ITEM_BYTES)
    return {
        "family": pl.when(finalize).then(pl.lit("reduction")).otherwise("family"),
        "rows": pl.col("tokens"),
        "cols": pl.col("token_width"),
        "flops": 2 * pl.when(finalize).then(TOKEN_EXPERT_PAIRS).otherwise("tokens") * pl.col("token_width"),
        "bytes": (pl.when(finalize).then(summed).otherwise(cast) * pl.col("token_width")).cast(pl.Int64),
    }


def _infer_routing(kernels: pl.DataFrame) -> pl.DataFrame:
    """Infer the routing of each call that has both GEMMs.

    Returns:
        ``tokens``, ``token_width``, ``experts``, ``top_k``, ``wide`` (width of the first GEMM's output) and ``inner``.
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
    across = (pl.col("token_width") + pl.col("second_tile") - 1) // pl.col("second_tile")
    tiles = pl.col("second_blocks") // across
    beyond = (tiles - pl.col("experts")).clip(0)
    least = pl.min_horizontal(tiles, "experts") + beyond * pl.col("tile_m")
    top_k = (least + pl.col("tokens") - 1) // pl.col("tokens")
    explained = (top_k * pl.col("tokens") - least < pl.col("tile_m")) & (top_k <= pl.col("experts"))
    exact = (pl.col("second_blocks") % across == 0) & (pl.col("blocks") % tiles == 0) & explained
    wide = pl.col("blocks") // tiles * pl.col("tile_n")
    return both.filter(exact).select(
        *OP_CALL_KEY, "tokens", "token_width", "experts", top_k=top_k, wide=wide, inner=wide // 2
    )


MAX_NARROW_SIDE = 32
MAX_TOKENS = 1024
"""Up to so many, products run on as many rows as the batch has tokens; of more, some run on the last of each
sequence only."""
MAX_BLOCKS = 1_000_000
PERSISTENT_KERNEL = r"(?i)nvjet|sm(?:90|1[0-2]\d)|cutlass3x|persistent|stream_?k"
"""Kernels since Hopper, which may have one block per SM."""
MIN_PERSISTENT_FRACTION = 0.85
"""Least part of the SMs that the clusters of a persistent kernel's blocks fill."""
AMD_KERNEL = r"^Cijk_"
ALIGNMENT = r"align([12])(?:\D|$)"
"""Of 16-bit operands whose rows don't begin at multiples of 16 bytes, CUTLASS's kernels load one or two elements."""
KEY = ("blocks", "tile_m", "tile_n")


def infer_covered_outputs(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Fill in ``covered_m`` and ``covered_n``."""
    sms = trace.device.sms if trace.device else 0
    told = kernels.with_row_index("row").filter(_has_grid_of_tiles(sms)) if sms else kernels.clear()
    if told.is_empty():
        return kernels
    few = pl.col("tokens") <= MAX_TOKENS
    sizes = pl.concat([_cover_tokens(told.filter(few)), _cover_squares(told.filter(~few.fill_null(False)))])
    return kernels.with_row_index("row").join(sizes, on="row", how="left", maintain_order="left").drop("row")


def _has_grid_of_tiles(sms: int) -> pl.Expr:
    """Whether a kernel is a GEMM of unknown work with a block for each tile of its output."""
    unknown = (pl.col("family") == "gemm") & pl.all_horizontal(pl.col("work_from", "m", "n", "k").is_null())
    waves = pl.col("blocks") / sms
    alone = pl.col("name").str.contains(PERSISTENT_KERNEL) & waves.is_between(MIN_PERSISTENT_FRACTION, 1)
    return (
        unknown
        & pl.col("blocks").is_between(1, MAX_BLOCKS)
        & (pl.min_horizontal("tile_m", "tile_n") > 0)
        & pl.col("tile_m").is_not_null()
        & pl.col("tile_n").is_not_null()
        & ~pl.col("split_k").fill_null(False)
        & ~(alone | waves.is_in([1.0, 2.0]))
    )


def _cover_tokens(told: pl.DataFrame) -> pl.DataFrame:
    """Cover outputs with as many rows as the batch has tokens, where whole columns of tiles do."""
    down = (pl.col("tokens") / pl.col("tile_m")).ceil().cast(pl.Int64)
    whole = (pl.col("blocks") % down == 0) & ~pl.col("name").str.contains(AMD_KERNEL)
    columns = pl.col("blocks") // down * pl.col("tile_n")
    return told.filter(whole).select("row", covered_m="tokens", covered_n=columns - _find_misalignment())


def _cover_squares(told: pl.DataFrame) -> pl.DataFrame:
    """Cover outputs that are as near to a square as the tiles' number allows."""
    wide = told.filter(pl.min_horizontal("tile_m", "tile_n") > MAX_NARROW_SIDE)
    grids = wide.select(KEY).unique()
    down = pl.Series("down", _divide_near_square(*(grids[name].to_numpy() for name in KEY)), dtype=pl.Int64)
    placed = wide.join(grids.with_columns(down), on=KEY, maintain_order="left")
    columns = pl.col("blocks") // pl.col("down") * pl.col("tile_n")
    return placed.select("row", covered_m=pl.col("down") * pl.col("tile_m"), covered_n=columns - _find_misalignment())


def _divide_near_square(blocks: Ints, tile_m: Ints, tile_n: Ints) -> Ints:
    """Return the rows of tiles of the grids whose outputs are nearest to squares."""
    small = np.arange(1, int(np.sqrt(blocks.max(initial=1))) + 1)
    large = blocks[:, None] // small
    down = np.concatenate([np.broadcast_to(small, large.shape), large], axis=1)
    divides = np.tile((large > 0) & (large * small == blocks[:, None]), 2)
    across = blocks[:, None] // np.maximum(down, 1)
    with np.errstate(divide="ignore"):
        oblong = np.abs(np.log(down * tile_m[:, None]) - np.log(across * tile_n[:, None]))
    return np.take_along_axis(down, np.where(divides, oblong, np.inf).argmin(axis=1)[:, None], axis=1)[:, 0]


def _find_misalignment() -> pl.Expr:
    """Elements by which rows of the operands miss a length that is aligned."""
    elements = pl.col("name").str.extract(ALIGNMENT).cast(pl.Int64)
    return pl.when(pl.col("dtype").is_in(["fp16", "bf16"])).then(elements).fill_null(0)


OUTPUT_TILES_RULE = WorkRule(
    "output-tiles",
    "Tile and grid give the output's size of a GEMM without shapes, and its time the depth.",
    "24 traces from an A100, H100, H200, MI300X and V100, shapes taken away, each predicted for five GPUs: half of the "
    "GEMMs that it tells of miss the prediction with shapes by 19 % (without the rule 24 %), their sum in a trace by "
    "27 % (36 %).",
    infer_covered_outputs,
)
"""Each block computes one tile of the output, so that blocks and tile give its size; the names of cuBLAS, CUTLASS and
Tensile tell the tile. The time on the trace's GPU then gives the depth (``predictors.without_shapes``):

    ampere_bf16_s16816gemm_bf16_128x256..., 96 blocks     8 x 12 tiles: 1024 x 3072

Which of the products of two numbers that make up the grid it is can't be told: the one nearest to a square counts, or
the one with the rows of the batch's tokens. Grids that say nothing are left out:

- A persistent kernel has about as many blocks as the GPU has SMs, or a small multiple.
- Of blocks that share the depth of a tile the name tells on NVIDIA's GPUs, but on AMD's seldom. There the sizes of
  decoding, whose few tiles are split most, stay with the law's narrow tile.
- A tile with a side up to 32 is taken for any few rows.
"""


WEIGHT_BOUND_FAMILIES = ("gemm", "moe")
BLOCK_PER_TOKEN_KERNEL = (
    r"vllm::(?:fused_add_)?rms_norm_kernel|flashinfer::norm::\w*RMSNormKernel|^_rms_norm_fwd_fused$|"
    r"reshape_and_cache|concat_and_cache|_destindex_copy_kv"
)
"""Kernels of vLLM, SGLang (FlashInfer) and LightLLM."""


def infer_token_counts(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Fill in ``tokens`` where the work isn't known; null where nothing gives the number."""
    lacks = pl.col("family").is_in(WEIGHT_BOUND_FAMILIES) & pl.col("work_from").is_null()
    if not kernels.select(lacks.any()).item():
        return kernels
    tokens = find_tokens_of_calls(kernels, trace).rename({"tokens": "found"})
    joined = kernels.join(tokens, on="correlation", how="left", maintain_order="left")
    return joined.with_columns(tokens=pl.when(lacks).then("found").otherwise("tokens")).drop("found")


def find_tokens_of_calls(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Find the tokens that the kernels of each call process.

    Returns:
        ``correlation`` and ``tokens`` of the calls of which they are known.
    """
    graphs = trace.calls.filter(pl.col("name").str.contains(GRAPH_LAUNCH_CALLS))
    by_token = pl.col("name").str.contains(BLOCK_PER_TOKEN_KERNEL)
    blocks = (
        kernels.join(graphs, on="correlation", how="semi")
        .filter(by_token)
        .group_by("correlation")
        .agg(pl.col("blocks").min())
    )
    told = batches.find_call_batch_sizes(trace, trace.calls).join(blocks, on="correlation", how="full", coalesce=True)
    return told.select("correlation", tokens=pl.coalesce("blocks", "size")).filter(pl.col("tokens") > 0)


TOKENS_RULE = WorkRule(
    "token-counts",
    "Kernels with one block per token, and marks of the engine, give the tokens of GEMMs without shapes.",
    "Kernels of vLLM, SGLang (FlashInfer) and LightLLM. vLLM with full CUDA graphs: predicted 15 % longer without "
    "the rule.",
    infer_token_counts,
)
"""The number decides whether reading the weights bounds them. Serving engines decode in CUDA graphs, which record no
shapes. But the engine marks its batches, and some kernels of a graph have one block per token: norms, and kernels that
write to the key cache. A norm over heads has more blocks than one over tokens, so the smallest grid counts.
"""
