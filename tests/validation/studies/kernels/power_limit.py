"""GEMMs that run for a second, under the board's power limit, against the same in short runs.

aiconfigurator repeated some GEMMs on three GPUs for a second each and recorded the board's power. The kernels'
laws are fitted to the short runs, the power law to the power of long ones, not to their times.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path

import polars as pl

from predictors import Gpu, load_gpu, predict
from predictors.power import load_power_law
from tests.validation.study import AICONFIGURATOR, find_input, format_table
from tracekit.prediction.clock import spread_slowdown

INPUTS = (AICONFIGURATOR,)
SYSTEMS = "aic-core/src/aiconfigurator_core/systems/data"
POWER_RUNS = {
    "h200-sxm": ("h200_sxm", "0.22.0", ("0.18.0", "0.24.0")),
    "b200": ("b200_sxm", "0.22.0", ("0.19.0", "0.24.0")),
    "gb200": ("gb200", "0.22.0", ("0.19.0",)),
}
"""GPU -> its folder, the version of vLLM that ran for a second, and versions with short runs."""
GEMM_SHAPE = ["m", "n", "k"]
MIN_SIDE, MAX_GEMMS = 1024, 4000
"""Of each side of a GEMM, and how many are drawn of a GPU's."""
RANGES_US = (64, 256, 1024, 4096, inf)
HEADINGS = (
    "GPU", "short run, µs", "GEMMs", "power, W", "long over short", "10 to 90 %", "boost clock", "kept clock",
    "absolute",
)  # fmt: skip


def run() -> str:
    """Return a table of long runs."""
    systems = find_input(AICONFIGURATOR) / SYSTEMS
    rows = (row for gpu in POWER_RUNS for row in compare_power_runs(systems, gpu))
    return "\n".join(
        (
            "# GEMMs under the power limit\n",
            format_table(HEADINGS, rows),
            "Source: github.com/ai-dynamo/aiconfigurator at 095f58a5.\n",
        )
    )


def compare_power_runs(systems: Path, gpu: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each range of times: GEMMs that ran for a second against the same in short runs."""
    gemms = read_power_runs(systems, *POWER_RUNS[gpu]).sample(MAX_GEMMS, seed=0, shuffle=True)
    shapes = gemms.select(*GEMM_SHAPE, family=pl.lit("gemm"), dtype=pl.lit("bf16"))
    boost, kept = predict_clocks(shapes, load_gpu(gpu))
    rows = gemms.select(
        "power",
        "short_us",
        ratio=pl.col("long_us") / pl.col("short_us"),
        boost=boost / pl.col("long_us"),
        kept=kept / pl.col("long_us"),
    )
    for low, high in pairwise(RANGES_US):
        some = rows.filter(pl.col("short_us").is_between(low, high, closed="left"))
        power, ratio, *predicted = some.select(pl.col("power", "ratio", "boost", "kept").median()).row(0)
        lowest, highest = (some["ratio"].quantile(part) for part in (0.1, 0.9))
        yield (
            load_gpu(gpu).name,
            f"{low:g} to {high:g}",
            str(some.height),
            f"{power:.0f}",
            f"{ratio:.2f}",
            f"{lowest:.2f} to {highest:.2f}",
            *(f"{100 * (error - 1):+.0f} %" for error in predicted),
            f"{100 * some.select((pl.col('kept') - 1).abs().median()).item():.0f} %",
        )


def predict_clocks(shapes: pl.DataFrame, gpu: Gpu) -> tuple[pl.Series, pl.Series]:
    """Predict GEMMs at the boost clock, and at the one that each keeps where nothing else runs."""
    law, times = load_power_law(), predict(shapes, gpu)
    kernels = shapes.select("family", "dtype").hstack(times)
    slowdown = pl.Series(law.compute_slowdown(kernels["demand_w"].to_numpy() / gpu.tdp_w, 1.0))
    return times["time_us"], times["time_us"] * spread_slowdown(kernels, slowdown)


def read_power_runs(systems: Path, system: str, long: str, short: Sequence[str]) -> pl.DataFrame:
    """Read large GEMMs in bf16 with their times in the long run and in the short ones."""

    def read_version(name: str) -> pl.DataFrame:
        table = pl.read_parquet(systems / system / "gemm" / "vllm" / name / "gemm_perf.parquet")
        large = (pl.col(side) >= MIN_SIDE for side in GEMM_SHAPE)
        return table.filter(pl.col("gemm_dtype") == "bfloat16", *large).unique(GEMM_SHAPE)

    runs = pl.concat(read_version(name).select(*GEMM_SHAPE, short_us=1000 * pl.col("latency")) for name in short)
    mean = runs.group_by(GEMM_SHAPE, maintain_order=True).agg(pl.col("short_us").mean())
    longest = read_version(long).select(*GEMM_SHAPE, "power", long_us=1000 * pl.col("latency"))
    return longest.join(mean, on=GEMM_SHAPE).sort(GEMM_SHAPE)
