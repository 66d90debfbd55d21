"""A rank's part of the experts, by the law of GEMMs, against kernels measured with all experts and with a part.

aiconfigurator's tables have the experts' kernels of serving engines on one GPU: of a layer with all its experts, and of
a rank that has one of ``n`` parts and gets its tokens from ``n`` ranks. Where both were measured with as many tokens of
each rank, their ratio is what tracekit multiplies a measured time by. bf16, tokens spread evenly.
"""

from collections.abc import Iterator

import polars as pl

from predictors import load_gpu, predict
from tests.validation.study import KERNEL_DATA, find_input, format_table
from tracekit.parallelism.expert_parallel import MoeExperts, split_experts

INPUTS = (KERNEL_DATA,)
SYSTEMS = ("a100_sxm", "h100_sxm", "b200_sxm", "l40s")
LAYER = ("system", "framework", "version", "kernel_source", "hidden_size", "inter_size", "topk", "num_experts")
TRITON = "triton|fused_moe"
ENGINES = {True: "Triton (SGLang, vLLM)", False: "CUTLASS and TensorRT-LLM's"}
UNKNOWN_COLUMNS = ("rows", "cols", "flops", "bytes", "blocks")
"""Columns of a kernel table that no row here fills."""


def run() -> str:
    """Return a row for each kind of kernel and number of ranks."""
    measured = pl.read_parquet(find_input(KERNEL_DATA) / "aiconfigurator" / "moe.parquet")
    headings = ("kernels", "ranks", "pairs", "measured", "predicted", "error, median", "90 % within a factor of")
    return "\n".join(
        (
            "# A rank's part of the experts\n",
            "*measured* and *predicted*: the part's time over that of all experts, medians.\n",
            format_table(headings, list_rows(pair_layers(measured))),
            "Source: github.com/ai-dynamo/aiconfigurator, a subset of its tables.\n",
        )
    )


def pair_layers(measured: pl.DataFrame) -> pl.DataFrame:
    """Return layers measured with a part and with all of their experts, with `measured` and `predicted` ratio."""
    even = (pl.col("dtype") == "bfloat16") & (pl.col("distribution") == "balanced") & (pl.col("moe_tp_size") == 1)
    text = pl.col("framework", "version", "dtype", "distribution", "kernel_source").cast(pl.String)
    known = (
        measured.filter(pl.col("system").cast(pl.String).is_in(SYSTEMS))
        .with_columns(text)
        .filter(even)
        .with_columns(each=pl.col("num_tokens") // pl.col("moe_ep_size"))
    )
    whole = known.filter(moe_ep_size=1).group_by(*LAYER, "each").agg(all_us=pl.col("latency_us").mean())
    part = known.filter(
        (pl.col("moe_ep_size") > 1) & (pl.col("num_tokens") == pl.col("each") * pl.col("moe_ep_size"))
        & (pl.col("num_experts") % pl.col("moe_ep_size") == 0)
    )  # fmt: skip
    both = part.join(whole, on=[*LAYER, "each"]).with_columns(measured=pl.col("latency_us") / pl.col("all_us"))
    return pl.concat(
        rows.with_columns(predicted=predict_ratios(rows, *key))
        for key, rows in both.group_by("system", "num_experts", "moe_ep_size", maintain_order=True)
    )


def predict_ratios(layers: pl.DataFrame, system: str, experts: int, ranks: int) -> pl.Series:
    """Predict the time of a rank's two GEMMs over that of a layer's."""
    visits = pl.col("each") * pl.col("topk")
    gates = pl.when(pl.col("kernel_source").str.contains("nongated")).then(1).otherwise(2)
    sides = layers.select(
        "hidden_size", batch=pl.min_horizontal(experts, visits), visits=visits,
        wide=gates * pl.col("inter_size"), narrow="inter_size",
    )  # fmt: skip
    gemms = pl.concat(
        sides.select(
            "batch", m=(pl.col("visits") / pl.col("batch")).ceil().cast(pl.Int64), n=n, k=k, family=pl.lit("gemm"),
            dtype=pl.lit("bf16"), phase=pl.lit("forward"), input_dims=pl.lit(None, pl.String),
            **{name: pl.lit(None, pl.Int64) for name in UNKNOWN_COLUMNS},
        )
        for n, k in (("wide", "hidden_size"), ("hidden_size", "narrow"))
    )  # fmt: skip
    layer = MoeExperts(experts, 0, frozenset(), False, pl.DataFrame({"row": range(gemms.height)}))
    gpu = load_gpu(system)
    after, before = (
        predict(table.drop("changed", strict=False), gpu)["time_us"].to_numpy().reshape(2, -1).sum(axis=0)
        for table in (split_experts(gemms, layer, 0.0, ranks), gemms)
    )
    return pl.Series(after / before)


def list_rows(table: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of kernel and number of ranks."""
    off = pl.col("predicted") / pl.col("measured")
    summed = (
        table.with_columns(triton=pl.col("kernel_source").str.contains(TRITON))
        .group_by("triton", "moe_ep_size")
        .agg(
            pl.len(),
            pl.median("measured", "predicted"),
            error=100 * (off.median() - 1),
            within=off.log().abs().quantile(0.9).exp(),
        )
        .sort("triton", "moe_ep_size")
    )
    for triton, ranks, count, measured, predicted, error, within in summed.iter_rows():
        counts = (ENGINES[triton], str(ranks), str(count))
        yield *counts, f"{measured:.2f}", f"{predicted:.2f}", f"{error:+.0f} %", f"{within:.1f}"
