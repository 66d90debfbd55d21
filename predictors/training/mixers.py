"""Read aiconfigurator's times of linear attention, of sparse attention and its indexer, and of mHC's mixing.

Of sparse attention only the tables of kernels are read: those of whole modules hold the modules' products as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import polars as pl

from predictors.kernels import HYPER_PARTS, INDEXER_LAW, SPARSE_LAW
from predictors.linear_attention import (
    CHUNKS,
    CONVOLUTION,
    ITEM_BYTES,
    STEP,
    count_convolution_bytes,
    count_scan_bytes,
    count_scan_flops,
)

INDEXER_HEADS, INDEXER_WIDTH, SELECTED_KEYS = 32, 128, 2048
"""Of GLM-5, whose ``config.json`` calls them ``index_n_heads``, ``index_head_dim`` and ``index_topk``."""
LATENT_WIDTH, LATENT_CACHED = 544, 576
"""Mean of keys' and values' elements, and elements of a token in the cache, as DeepSeek's latent attention has them."""
SCORE_BYTES = 4
BY_CHANNEL_ENGINE, BY_CHANNEL_RELEASE = "trtllm", 510.0
"""An engine, and a release of SGLang, whose convolution has a block for each sequence and channel: of prompts of few
tokens it takes 30 times as long as others. TensorRT-LLM's before delta rules moves up to five times as many bytes as
the memory could: it must have been measured on fewer channels."""
TORCH_SOURCE = "torch"
"""In the ``kernel_source`` of mHC's mixing by PyTorch's kernels one after the other."""
MAX_ROWS_PER_KERNEL = 700
"""Of one library, so that a fit of all six laws takes minutes: each is smooth in few sizes."""

Columns = Mapping[str, pl.Expr]


def _convert_linear(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert the layers of gated delta rules and Mamba-2: one row per kernel of a layer, or its group of them."""
    convolves, prompts = pl.col("kernel_source").str.contains("conv1d"), pl.col("phase") == "context"
    sizes = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "nheads", "head_dim", "n_groups", "d_state")
    missing = [pl.lit(None, pl.Int64).alias(name) for name in sizes if name not in frame.columns]
    tokens = pl.col("batch_size") * pl.col("seq_len")
    key_heads, key_width, heads, width = (
        pl.coalesce(*names)
        for names in (("num_k_heads", "n_groups"), ("head_k_dim", "d_state"), ("num_v_heads", "nheads"),
                      ("head_v_dim", "head_dim"))
    )  # fmt: skip
    channels = 2 * key_heads * key_width + heads * width
    shape = (tokens, pl.col("batch_size"), heads, key_heads, key_width, width)
    is_delta_rule = pl.col("num_k_heads").is_not_null()
    by_channel = (pl.col("engine") == BY_CHANNEL_ENGINE) | (pl.col("release") == BY_CHANNEL_RELEASE)
    convolved = count_convolution_bytes(tokens, pl.col("batch_size"), channels, pl.col("d_conv"))
    scanned = count_scan_flops(tokens, *shape[2:])
    # A prompt of one token and a step of decoding would be one row.
    sound = pl.when(convolves).then(((pl.col("seq_len") > 1) | ~prompts) & ~by_channel).otherwise(is_delta_rule)
    rows = frame.with_columns(missing).filter(sound)
    return rows.with_columns(
        family=pl.lit("linear_attention"),
        part=pl.when(convolves).then(pl.lit(CONVOLUTION)).otherwise(pl.when(prompts).then(pl.lit(CHUNKS)).otherwise(pl.lit(STEP))),
        batch="batch_size", q_len="seq_len", heads=heads, kv_heads=key_heads, head_dim=width,
        rows=tokens, cols=pl.when(convolves).then(channels).otherwise(key_width),
        bytes=pl.when(convolves).then(convolved).otherwise(count_scan_bytes(*shape)),
        flops=pl.when(convolves).then(2 * tokens * channels * pl.col("d_conv")).otherwise(scanned),
    )  # fmt: skip


def _convert_mixing(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert mHC: a time is that of a layer's two sites."""
    enters, hidden = pl.col("op_name") == "pre", pl.col("num_tokens") * pl.col("hidden_size")
    # Into a layer all streams are read for the factors that mix them, then to be mixed into one that is written; back,
    # all are read and written, and the layer's output is read.
    passes = 2 * pl.col("hc_mult") + 1
    return frame.filter(~pl.col("kernel_source").str.contains(TORCH_SOURCE)).with_columns(
        family=pl.lit("norm"), part=pl.when(enters).then(pl.lit(HYPER_PARTS[0])).otherwise(pl.lit(HYPER_PARTS[1])),
        rows="num_tokens", cols="hidden_size", bytes=(hidden * passes * ITEM_BYTES).cast(pl.Float64),
        latency_us=pl.col("latency_us") / pl.col("num_sites"),
    )  # fmt: skip


def _convert_scores(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert the indexer: each query sees the keys before it."""
    keys, queries = pl.col("step") + (pl.col("isl") + 1) // 2, pl.col("isl") * INDEXER_HEADS
    moved = pl.col("isl") * keys * SCORE_BYTES + (queries + pl.col("step") + pl.col("isl")) * INDEXER_WIDTH
    return frame.with_columns(
        family=pl.lit("gemm"), part=pl.lit(INDEXER_LAW), dtype=pl.lit("fp8"), batch="batch_size",
        m=queries, n=keys, k=pl.lit(INDEXER_WIDTH), bytes=(pl.col("batch_size") * moved).cast(pl.Float64),
    )  # fmt: skip


def _convert_selected(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert sparse attention: places beyond the keys that there are are worked on as well."""
    return frame.with_columns(
        family=pl.lit("attention"), part=pl.lit(SPARSE_LAW), batch="batch_size", q_len="isl",
        kv_len=pl.max_horizontal(pl.col("step") + pl.col("isl"), SELECTED_KEYS), window=pl.lit(SELECTED_KEYS),
        heads="num_heads", kv_heads=pl.lit(1), head_dim=pl.lit(LATENT_WIDTH), cache_width=pl.lit(LATENT_CACHED),
        causal=pl.lit(False),
    )  # fmt: skip


CONVERTERS: Mapping[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "gdn_perf": _convert_linear,
    "mamba2_perf": _convert_linear,
    "mhc_module_perf": _convert_mixing,
    "glm5_mqa_logits_module_perf": _convert_scores,
    "glm5_dsa_attn_module_perf": _convert_selected,
}
"""Table of a checkout -> what makes the columns of ``predictors.kernels`` of it."""
_COLUMNS = (
    "family", "part", "dtype", "batch", "q_len", "kv_len", "window", "heads", "kv_heads", "head_dim", "cache_width",
    "causal", "rows", "cols", "m", "n", "k", "bytes", "flops", "latency_us",
)  # fmt: skip


def convert_mixers(name: str, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the kernels of a table, with the columns that tell whose they are."""
    converted = CONVERTERS[name](frame.filter(pl.col("latency_us") > 0))
    yield converted.select(
        "engine", "release", *(column for column in _COLUMNS if column in converted.columns),
        framework="engine", gpu="system", source=pl.lit("graph"), table=pl.lit(name),
    )  # fmt: skip
