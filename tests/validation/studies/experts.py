"""Holds what a rank's part of the experts takes, by the law, against kernels measured with all experts and with a part.

python -m tests.validation.studies.experts --data moe.parquet

aiconfigurator's tables have the experts' kernels of serving engines on one GPU: of a layer whose experts it has all,
and of a rank that has one of ``n`` parts and gets its tokens from ``n`` ranks. Where both were measured with as many
tokens of each rank, their ratio is what tracekit multiplies a measured time by. bf16, tokens spread evenly.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import polars as pl

import predictors
from predictors import load_gpu
from tests.validation.tables import print_table
from tracekit.parallelism.expert_parallel import MoeExperts, split_experts

LAYER = ["system", "framework", "version", "kernel_source", "hidden_size", "inter_size", "topk", "num_experts"]
TRITON = "triton|fused_moe"
ENGINES = {True: "Triton (SGLang, vLLM)", False: "CUTLASS and TensorRT-LLM's"}


def main() -> None:
    """Prints a row for each kind of kernel and number of ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    table = pairs(pl.read_parquet(parser.parse_args().data))
    heading = "| kernels | ranks | pairs | measured | predicted | median error | 90 % within a factor of |"
    print_table(heading, rows(table))


def pairs(measured: pl.DataFrame) -> pl.DataFrame:
    """Layers measured with a part of their experts, beside the same with all: ``measured`` and ``predicted`` ratio."""
    even = (pl.col("dtype") == "bfloat16") & (pl.col("distribution") == "balanced") & (pl.col("moe_tp_size") == 1)
    text = pl.col("framework", "version", "dtype", "distribution", "kernel_source").cast(pl.String)
    known = measured.with_columns(text).filter(even).with_columns(each=pl.col("num_tokens") // pl.col("moe_ep_size"))
    whole = known.filter(moe_ep_size=1).group_by(*LAYER, "each").agg(all_us=pl.col("latency_us").mean())
    part = known.filter(
        (pl.col("moe_ep_size") > 1) & (pl.col("num_tokens") == pl.col("each") * pl.col("moe_ep_size"))
        & (pl.col("num_experts") % pl.col("moe_ep_size") == 0)
    )  # fmt: skip
    both = part.join(whole, on=[*LAYER, "each"]).with_columns(measured=pl.col("latency_us") / pl.col("all_us"))
    return pl.concat(
        rows.with_columns(predicted=ratios(rows, *key))
        for key, rows in both.group_by("system", "num_experts", "moe_ep_size")
    )


def ratios(layers: pl.DataFrame, system: str, number: int, ranks: int) -> pl.Series:
    """By the law, the time of a rank's two products over that of a layer's."""
    visits = pl.col("each") * pl.col("topk")
    gates = pl.when(pl.col("kernel_source").str.contains("nongated")).then(1).otherwise(2)
    nothing = {name: pl.lit(None, pl.Int64) for name in ("rows", "cols", "flops", "bytes")}
    sides = layers.select(
        "hidden_size", batch=pl.min_horizontal(number, visits), visits=visits,
        wide=gates * pl.col("inter_size"), narrow="inter_size",
    )  # fmt: skip
    products = pl.concat(
        sides.select(
            "batch", m=(pl.col("visits") / pl.col("batch")).ceil().cast(pl.Int64), n=n, k=k, family=pl.lit("gemm"),
            dtype=pl.lit("bf16"), phase=pl.lit("forward"), input_dims=pl.lit(None, pl.String), **nothing,
        )
        for n, k in (("wide", "hidden_size"), ("hidden_size", "narrow"))
    )  # fmt: skip
    experts = MoeExperts(number, 0, frozenset(), False, pl.DataFrame({"row": range(products.height)}))
    gpu = load_gpu(system)
    after, before = (
        predictors.predict(table.drop("changed", strict=False), gpu)["time_us"].to_numpy().reshape(2, -1).sum(axis=0)
        for table in (split_experts(products, experts, 0.0, ranks), products)
    )
    return pl.Series(after / before)


def rows(table: pl.DataFrame) -> Iterator[str]:
    """A line for each kind of kernel and number of ranks."""
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
        times = f"{measured:.2f} | {predicted:.2f}"
        yield f"| {ENGINES[triton]} | {ranks} | {count} | {times} | {error:+.0f} % | {within:.1f} |"


if __name__ == "__main__":
    main()
