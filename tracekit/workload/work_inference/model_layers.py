"""Infer the work of an engine's kernels from the model's sizes, as its ``config.json`` gives them.

CUDA graphs hide the ops of their kernels. The order of the GEMMs and of attention tells which matrix of which layer
each one multiplies by (:mod:`.model_roles`). The engine's mark tells the tokens, and the queries and keys of attention.
What lies between two GEMMs passes over the activations there.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from tracekit.ingest import batches
from tracekit.ingest.batches import select_within
from tracekit.messages import Message
from tracekit.messages import models as messages
from tracekit.models.llm import ModelConfig, TransformerLayer
from tracekit.trace import RankTrace
from tracekit.workload.work_inference import model_roles as roles
from tracekit.workload.work_inference.gemms import build_expert_gemm_columns, find_tokens_of_calls
from tracekit.workload.work_inference.model_attention import (
    LATENT_COLUMNS,
    build_attention_columns,
    count_queries_and_keys,
)
from tracekit.workload.work_inference.model_linear import LINEAR_TYPES, build_pass_columns, list_linear_changes
from tracekit.workload.work_inference.rule import WorkRule, override_columns

WORK_SOURCE = "model"
PRODUCT_FAMILIES = ("gemm", "moe")
SPLIT_SUM_KERNEL = r"(?i)split_?k.*reduce|reduce.*split_?k|PostGSU"
"""Kernels that add up what a GEMM with a split depth left."""
ATTENTION_SUM_KERNEL = r"(?i)reduce|combine|merge"
"""Kernels that add up what attention with split keys left."""
MIN_MATCHED_FRACTION = 0.9
"""Least part of the segments that a variant has to explain."""
MIXER_FAMILIES = ("attention", "linear_attention")
ACTIVATION_KERNEL = r"(?i)silu|swiglu|gelu|relu|act_and_mul"
CAST_DTYPES = ("fp8", "int8", "nvfp4")
"""Precisions to which engines cast the input of a GEMM. A GEMM whose name has no precision computes in that of the
cast before it."""
SEGMENT_KEY = ("batch_of_engine", "segment")


def infer_model_work(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Infer the work of kernels by their place in the model's layers, and mark it ``model``.

    Batches with another number of layers, and segments with another number of GEMMs, are left unchanged.
    """
    model = trace.model
    if model is None or not kernels["work_from"].null_count():
        return kernels
    ranks = _count_tensor_parallel_ranks(kernels, trace)
    placed = _place_in_segments(kernels, trace, len(model.layers))
    expected = _choose_roles(placed, model, ranks)
    if expected.is_empty():
        return kernels
    table = _join_roles(placed, expected, _tabulate_layers(model, ranks))
    for chosen, columns in _list_changes():
        mine = pl.col("work_from").is_null() & pl.col("is_known") & chosen
        marks = {"work_from": pl.lit(WORK_SOURCE), "share": pl.lit(1.0)}
        table = table.with_columns(override_columns(mine, {**columns, **marks}))
    mine = pl.col("work_from") == WORK_SOURCE
    of_experts = mine & pl.col("role").is_in(roles.OF_EXPERTS)
    told = {"dtype": mine, **dict.fromkeys(("tokens", "experts", "top_k"), of_experts)}
    kept = [pl.when(rows).then(name).otherwise(kernels[name]).alias(name) for name, rows in told.items()]
    return table.sort("row").with_columns(kept).select(kernels.columns)


MODEL_LAYERS_RULE = WorkRule(
    "model-layers",
    "With the model's config.json, the order of GEMMs and attention tells what each kernel of a batch does.",
    "vLLM's gpt-oss-20b and OLMoE, SGLang's Qwen3-8B: 90 to 100 % of GPU time has known work, 1 to 10 % without the "
    "rule.",
    infer_model_work,
)


def _list_changes() -> tuple[tuple[pl.Expr, Mapping[str, pl.Expr]], ...]:
    """List which kernels get which columns."""
    product, attention, role = pl.col("is_product"), pl.col("is_attention"), pl.col("role")
    linear = pl.col("linear_heads").is_not_null() & attention & pl.col("sequences").is_not_null()
    softmax = attention & (pl.col("family") == "attention") & pl.col("keys").is_not_null()
    per_head = product & role.is_in(roles.PER_HEAD)
    is_expert = role.is_in(roles.OF_EXPERTS)
    rows = pl.when(role == roles.LOGITS).then("rows_of_logits").otherwise("tokens")
    sizes = {"m": rows, "n": pl.col("n_of_model"), "k": pl.col("k_of_model")}
    return (
        (product & is_expert, build_expert_gemm_columns(role == roles.EXPERTS_IN)),
        (per_head, {"family": pl.lit("gemm"), **sizes, "batch": pl.col("layer_heads")}),
        (product & ~is_expert, {"family": pl.lit("gemm"), "batch": pl.lit(1), **sizes}),
        (softmax, build_attention_columns()),
        *((linear & chosen, columns) for chosen, columns in list_linear_changes()),
        (~product & ~attention & (pl.col("kind") == "kernel"), build_pass_columns()),
    )


def describe_misfit(kernels: pl.DataFrame, trace: RankTrace) -> Message:
    """Say which count of the batches first differs from the model's: of batches, of layers, of GEMMs in a layer.

    ``kernels`` are as for :func:`infer_model_work`, which found nothing.
    """
    layers = len(trace.model.layers) if trace.model else 0
    segmented = _cut_segments(kernels, trace).drop_nulls("batch_of_engine")
    if trace.model is None or segmented.is_empty():
        return messages.FIT_WITHOUT_BATCHES()
    seen = segmented.group_by("batch_of_engine").agg(pl.col("segment").max().fill_null(0))
    if not (seen["segment"] == layers).any():
        return messages.FIT_LAYERS_DIFFER(seen=seen["segment"].mode().sort()[0], layers=layers)
    inner = segmented.join(seen.filter(segment=layers), on="batch_of_engine", how="semi")
    inner = inner.filter(pl.col("segment").is_between(1, max(layers - 1, 1)))
    found = inner.group_by(SEGMENT_KEY).agg(pl.col("is_product").sum())["is_product"].mode().sort()[0]
    ranks = _count_tensor_parallel_ranks(kernels, trace)
    variants = [roles.list_roles(trace.model, each, ranks) for each in roles.list_fusions(trace.model)]
    expected = sorted({each.filter(pl.col("segment") == 1).height for each in variants})
    if found in expected:
        return messages.FIT_ENDS_DIFFER(layers=layers, seen=found)
    return messages.FIT_GEMMS_DIFFER(layers=layers, seen=found, expected=expected, ranks=ranks)


def _place_in_segments(kernels: pl.DataFrame, trace: RankTrace, layers: int) -> pl.DataFrame:
    """Place the kernels of the batches with as many layers as the model.

    Returns:
        The table in order of time, with the original ``row``, ``batch_of_engine`` (null outside of these batches),
        ``segment``, the ``place`` of each GEMM in its segment, ``is_product``, ``is_attention``, ``tokens``, and the
        columns of :func:`count_queries_and_keys`.
    """
    segmented = _cut_segments(kernels, trace)
    complete = pl.col("segment").max().over("batch_of_engine") == layers
    within = segmented.with_columns(
        batch_of_engine=pl.when(complete).then("batch_of_engine"),
        products_before=pl.col("is_product").cast(pl.Int64).cum_sum().over(SEGMENT_KEY) - pl.col("is_product"),
    )
    is_cast = ~pl.col("is_product") & pl.col("dtype").is_in(CAST_DTYPES)
    cast = pl.when(is_cast).then("dtype").max().over(*SEGMENT_KEY, "products_before")
    return within.with_columns(
        place=pl.when("is_product").then("products_before"),
        dtype=pl.when("is_product", pl.col("work_from").is_null()).then(pl.coalesce("dtype", cast)).otherwise("dtype"),
    )


def _cut_segments(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Cut each batch at every attention into segments, numbered from 0."""
    served = batches.find_served_batches(trace)
    windows = served.select("pid", "begin", "end", "batch")
    called = select_within(trace.calls.select("correlation", "pid", "ts_ns"), windows).select("correlation", "batch")
    tokens = find_tokens_of_calls(kernels, trace).rename({"tokens": "tokens_of_call"})
    name, family = pl.col("name"), pl.col("family")
    product = family.is_in(PRODUCT_FAMILIES) & ~name.str.contains(SPLIT_SUM_KERNEL)
    attention = family.is_in(MIXER_FAMILIES) & ((family != "attention") | ~name.str.contains(ATTENTION_SUM_KERNEL))
    table = (
        kernels.drop("experts", "top_k")
        .with_row_index("row")
        .with_columns(is_product=product, is_attention=attention)
        .join(called.unique("correlation").rename({"batch": "batch_of_engine"}), on="correlation", how="left")
        .join(tokens, on="correlation", how="left")
        .join(count_queries_and_keys(served), left_on="batch_of_engine", right_on="batch", how="left")
        .sort("ts_ns", "row")
        .with_columns(tokens=pl.coalesce(pl.col("tokens_of_call").max().over("batch_of_engine"), "tokens_of_call"))
    )
    done = pl.col("is_product").cum_sum().over("batch_of_engine")
    before = pl.when("is_attention").then(done).forward_fill().shift(1).over("batch_of_engine")
    begins = pl.col("is_attention") & before.ne_missing(done)
    return table.with_columns(segment=begins.cast(pl.Int64).cum_sum().over("batch_of_engine"))


def _choose_roles(placed: pl.DataFrame, model: ModelConfig, ranks: int) -> pl.DataFrame:
    """Choose for prefills and for the other batches the variant whose segments hold as many GEMMs as the trace's.

    Of several such variants that one counts whose first activation comes after the GEMM that needs one. A kind of batch
    of which none explains most segments takes part in the choice for all.

    Returns:
        The roles with ``is_prefill``; no rows if nothing fits.
    """
    inside = placed.filter(pl.col("batch_of_engine").is_not_null())
    activation = pl.col("name").str.contains(ACTIVATION_KERNEL) & ~pl.col("is_product")
    counts = inside.group_by(*SEGMENT_KEY, "is_prefill").agg(
        found=pl.col("is_product").sum(), activated=pl.col("products_before").filter(activation).min()
    )
    variants = [(each, roles.list_roles(model, each, ranks)) for each in roles.list_fusions(model)]
    chosen = []
    for is_prefill in (True, False):
        mine = counts.filter(pl.col("is_prefill") == is_prefill)
        best = _find_best_variant(mine, variants)
        best = _find_best_variant(counts, variants) if best is None else best
        if mine.height and best is not None:
            chosen.append(best.with_columns(is_prefill=pl.lit(is_prefill)))
    return pl.concat(chosen) if chosen else pl.DataFrame()


def _find_best_variant(
    counts: pl.DataFrame, variants: Sequence[tuple[roles.Fusion, pl.DataFrame]]
) -> pl.DataFrame | None:
    best, most = None, (MIN_MATCHED_FRACTION * counts.height, 0)
    for fusion, expected in variants:
        needed = pl.col("place").filter(pl.col("role").is_in(roles.IN_ROLES)).min() + (1 if fusion.gate else 2)
        wanted = counts.join(expected.group_by("segment").agg(pl.len(), needed=needed), on="segment", how="left")
        same = pl.col("found") == pl.col("len").fill_null(0)
        matched = wanted.select(same.sum(), agreed=(same & (pl.col("activated") == pl.col("needed"))).sum()).row(0)
        if matched[0] > most[0] or (best is not None and matched > most):
            best, most = expected, matched
    return best if counts.height else None


def _join_roles(placed: pl.DataFrame, expected: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """Join each kernel to its GEMM, the last GEMM or attention before it (``role_before``), and the sizes of its layer.

    ``is_known`` tells whether its segment has as many GEMMs as expected.
    """
    key = ("is_prefill", "segment")
    absorbs = pl.col("role").is_in(roles.PER_HEAD).any()
    wanted = (
        expected.group_by("is_prefill")
        .agg(is_absorbed=absorbs)
        .join(expected.group_by(key).agg(wanted=pl.len()), on="is_prefill")
    )
    joined = placed.join(expected, on=(*key, "place"), how="left", maintain_order="left")
    joined = joined.join(wanted, on=key, how="left", maintain_order="left").with_columns(
        is_known=pl.col("batch_of_engine").is_not_null()
        & (pl.col("is_product").sum().over(SEGMENT_KEY) == pl.col("wanted").fill_null(0)),
        role_before=pl.coalesce(pl.when("is_attention").then(pl.lit(roles.ATTENTION)), "role"),
        layer=pl.when("is_attention").then(pl.col("segment") - 1).otherwise("layer"),
    )
    filled = joined.with_columns(
        pl.col("role_before", "layer").forward_fill().over(SEGMENT_KEY),
    ).with_columns(pl.col("role_before").fill_null(roles.START), pl.col("layer").fill_null(0))
    more = pl.col("more_experts").fill_null(0)
    return filled.join(layers, on="layer", how="left", maintain_order="left").with_columns(
        experts=pl.col("experts") + more, top_k=pl.col("top_k") + more
    )


def _tabulate_layers(model: ModelConfig, ranks: int) -> pl.DataFrame:
    """Tabulate the sizes of each layer on one rank."""
    rows = [
        {
            "layer": number,
            "layer_heads": roles.split(layer.heads, ranks),
            "layer_kv_heads": roles.split(layer.kv_heads, ranks),
            "layer_head_dim": layer.head_dim,
            "layer_window": layer.window,
            "layer_chunk": layer.chunk,
            "mixer_out": roles.get_mixer_width(layer, ranks),
            "mixer_in": _count_columns_into(layer, ranks),
            **_tabulate_latent(layer),
            **_tabulate_linear(layer, ranks),
            "inner": roles.split(layer.mlp_width, ranks),
            "wide": (2 if layer.is_gated else 1) * roles.split(layer.mlp_width, ranks),
            "experts": layer.experts,
            "top_k": layer.top_k,
            "token_width": model.hidden,
            "vocabulary": roles.split(model.vocabulary, ranks),
        }
        for number, layer in enumerate(model.layers)
    ]
    nullable = dict.fromkeys(("layer_window", "layer_chunk", *LATENT_COLUMNS), pl.Int64)
    return pl.DataFrame(rows, schema_overrides={**nullable, **LINEAR_TYPES})


def _count_columns_into(layer: TransformerLayer, ranks: int) -> int:
    """Count the columns of what the GEMMs before a layer's attention give it."""
    if layer.linear:
        return sum(roles.list_linear_widths(layer.linear, ranks))
    if layer.latent:
        return roles.split(layer.heads, ranks) * (layer.latent.plain + layer.latent.rotated) + layer.latent.cached
    return (roles.split(layer.heads, ranks) + 2 * roles.split(layer.kv_heads, ranks)) * layer.head_dim


def _tabulate_latent(layer: TransformerLayer) -> dict[str, int | None]:
    latent = layer.latent
    if latent is None:
        return dict.fromkeys(LATENT_COLUMNS)
    widths = ((latent.cached + latent.kv_rank) // 2, latent.cached, (latent.plain + latent.rotated + latent.value) // 2)
    return dict(zip(LATENT_COLUMNS, widths, strict=True))


def _tabulate_linear(layer: TransformerLayer, ranks: int) -> dict[str, int | bool | None]:
    linear = layer.linear
    if linear is None:
        return dict.fromkeys(LINEAR_TYPES)
    return {
        "linear_key_heads": roles.split(linear.key_heads, ranks),
        "linear_heads": roles.split(linear.heads, ranks),
        "linear_key_width": linear.key_width,
        "linear_value_width": linear.value_width,
        "linear_taps": linear.taps,
        "linear_chunk": linear.chunk,
        "linear_is_delta": linear.is_delta_rule,
        "linear_in": sum(roles.list_linear_widths(linear, ranks)),
    }


def _count_tensor_parallel_ranks(kernels: pl.DataFrame, trace: RankTrace) -> int:
    """Count the ranks that share each layer: those of its all-reduces, whose number only some kernels record."""
    reduced = kernels.filter(pl.col("family") == "collective", pl.col("collective").str.contains("all_?reduce"))
    if reduced.is_empty():
        return 1
    recorded = reduced["ranks"].drop_nulls().mode().sort()
    return int(recorded[0]) if recorded.len() else max(trace.world_size, 1)
