"""Holds products that ran for a second under a GPU's power limit against the same in short benchmarks.

python -m tests.validation.studies.power AICONFIGURATOR

github.com/ai-dynamo/aiconfigurator measured some GPUs once more with each kernel repeated for a second and the board's
power sampled. Each large product in bf16 from there beside the same in the short runs of the framework's versions
before and after, and beside what is predicted from its shape. tests/validation/notes/accuracy.md's figures: commit
095f58a5.
"""

import argparse
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from pathlib import Path

import polars as pl

from predictors import load_gpu, predict
from tests.validation.tables import print_table

FOLDER = "aic-core/src/aiconfigurator_core/systems/data"
RUNS = {
    "h200-sxm": ("h200_sxm", "0.22.0", ("0.18.0", "0.24.0")),
    "b200": ("b200_sxm", "0.22.0", ("0.19.0", "0.24.0")),
    "gb200": ("gb200", "0.22.0", ("0.19.0",)),
}
"""GPU -> its folder, the version of vLLM that ran for a second, and versions with short runs."""
SHAPE = ["m", "n", "k"]
LEAST, ROWS = 1024, 4000
"""Of each side of a product, and how many are drawn of a GPU's."""
RANGES_US = (64, 256, 1024, 4096, inf)


def main() -> None:
    """Prints a line for each GPU and each range of times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    heading = "| GPU | short run, µs | GEMMs | power, W | long over short | 10 to 90 % | predicted, of long |"
    checkout = parser.parse_args().checkout
    print_table(heading, (line for gpu in RUNS for line in lines(checkout, gpu)))


def lines(checkout: Path, gpu: str) -> Iterator[str]:
    """A GPU's."""
    products = measured(checkout / FOLDER, *RUNS[gpu]).sample(ROWS, seed=0, shuffle=True)
    asked = products.select(*SHAPE, family=pl.lit("gemm"), dtype=pl.lit("bf16"))
    rows = products.select("power", "short_us", ratio=pl.col("long_us") / pl.col("short_us"),
                           predicted=predict(asked, gpu)["time_us"] / pl.col("long_us"))  # fmt: skip
    for low, high in pairwise(RANGES_US):
        some = rows.filter(pl.col("short_us").is_between(low, high, closed="left"))
        power, ratio, predicted = some.select(pl.col("power", "ratio", "predicted").median()).row(0)
        lowest, highest = (some["ratio"].quantile(part) for part in (0.1, 0.9))
        yield (
            f"| {load_gpu(gpu).name} | {low:g} to {high:g} | {some.height} | {power:.0f} | {ratio:.2f} "
            f"| {lowest:.2f} to {highest:.2f} | {100 * (predicted - 1):+.0f} % |"
        )


def measured(folder: Path, system: str, long: str, short: tuple[str, ...]) -> pl.DataFrame:
    """Large products in bf16 with their times in the long run and in the short ones."""

    def version(name: str) -> pl.DataFrame:
        table = pl.read_parquet(folder / system / "gemm" / "vllm" / name / "gemm_perf.parquet")
        large = (pl.col(side) >= LEAST for side in SHAPE)
        return table.filter(pl.col("gemm_dtype") == "bfloat16", *large).unique(SHAPE)

    runs = pl.concat(version(name).select(*SHAPE, short_us=1000 * pl.col("latency")) for name in short)
    mean = runs.group_by(SHAPE, maintain_order=True).agg(pl.col("short_us").mean())
    return version(long).select(*SHAPE, "power", long_us=1000 * pl.col("latency")).join(mean, on=SHAPE).sort(SHAPE)


if __name__ == "__main__":
    main()
