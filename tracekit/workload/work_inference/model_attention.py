"""Attention of an engine's batch, from the queries and keys that its mark counts and the heads of the model."""

import polars as pl

LAYER_COLUMNS = ("layer_heads", "layer_kv_heads", "layer_head_dim", "layer_window")
LATENT_COLUMNS = ("latent_width", "latent_cached", "latent_apart")
"""Of latent attention: mean width of keys and values in the space of the cache, elements that the cache holds of a
token, and their mean width outside of it; null for other layers."""


def count_queries_and_keys(batches: pl.DataFrame) -> pl.DataFrame:
    """Count sequences, queries and keys of each batch.

    A batch of both kinds counts as its prefill, which sees the keys of all. Where a mark doesn't count keys, those of a
    prefill are taken to be its own tokens. Those of a decode step are known if the trace begins with the prompts of all
    of its sequences: each batch since then has added its tokens.

    Args:
        batches: Of :func:`tracekit.ingest.batches.find_served_batches`.

    Returns:
        ``batch``, ``sequences``, ``is_prefill``, ``queries`` and ``keys`` of a sequence; keys are null where nothing
        tells.
    """
    prefill, decode = (
        {name: pl.col(f"{kind}_{name}").fill_null(0) for name in ("requests", "queries")}
        for kind in ("prefill", "decode")
    )
    is_prefill = prefill["queries"] > decode["queries"]
    pairs = pl.col("prefill_pairs") + pl.col("decode_pairs").fill_null(0)
    seen = (prefill["queries"] + decode["queries"]).cum_sum()
    began_here = prefill["requests"].cum_sum() == decode["requests"]
    of_prefill = pl.coalesce(pairs / prefill["queries"], prefill["queries"] / prefill["requests"])
    of_decode = pl.coalesce(
        pl.col("decode_pairs") / decode["queries"], pl.when(began_here).then(seen / decode["requests"])
    )
    requests, queries = (
        pl.when(is_prefill).then(prefill[name]).otherwise(decode[name]) for name in ("requests", "queries")
    )
    sequences = pl.when(requests > 0).then(requests)
    return batches.select(
        "batch",
        is_prefill=is_prefill,
        sequences=sequences,
        queries=(queries / sequences).ceil().cast(pl.Int64),
        keys=pl.when(is_prefill).then(of_prefill).otherwise(of_decode).ceil().cast(pl.Int64, strict=False),
        rows_of_logits=prefill["requests"] + decode["requests"],
    )


def build_attention_columns() -> dict[str, pl.Expr]:
    """Build the columns of attention.

    They come from those of :func:`count_queries_and_keys`, ``LAYER_COLUMNS`` and ``LATENT_COLUMNS``.
    Latent attention ``is_absorbed`` if its queries were brought into the space of the cache: all heads then share its
    one vector for each token, key and value at once. Else each head has keys and values of its own. Where attention
    begins anew after ``layer_chunk`` keys, a prefill consists of so many shorter ones; of decode steps the mean counts.
    """
    heads, kv_heads, head_dim, window = map(pl.col, LAYER_COLUMNS)
    width, cached, apart = map(pl.col, LATENT_COLUMNS)
    chunk, queries, keys = pl.col("layer_chunk"), pl.col("queries"), pl.col("keys")
    latent, absorbed = width.is_not_null(), pl.col("is_absorbed")
    cut = pl.col("is_prefill") & (queries > chunk) & (keys == queries)
    seen = pl.when(cut).then(chunk).when(keys > chunk).then((chunk + 1) // 2).otherwise(keys)
    return {
        "batch": pl.col("sequences") * pl.when(cut).then((queries + chunk - 1) // chunk).otherwise(1),
        "heads": heads,
        "kv_heads": pl.when(latent & absorbed).then(1).when(latent).then(heads).otherwise(kv_heads),
        "q_len": pl.when(cut).then(chunk).otherwise(queries),
        "kv_len": pl.max_horizontal(seen, pl.when(cut).then(chunk).otherwise(queries)),
        "head_dim": pl.when(latent & absorbed).then(width).when(latent).then(apart).otherwise(head_dim),
        "dtype": pl.coalesce("dtype", pl.when(latent).then(pl.lit("bf16"))),
        "cache_width": pl.when(latent & absorbed).then(cached),
        "window": window,
        "causal": pl.col("is_prefill"),
        "paged": pl.lit(value=True),
        "direction": pl.lit("forward"),
    }
