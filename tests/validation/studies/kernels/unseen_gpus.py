"""Kernels on GPUs of which the weights have seen nothing, against the times that others measured there.

aiconfigurator has tables of more GPUs than are in the fit. Their kernels over 20 µs are predicted from shapes, with the
serving framework named and not, from the time of the same kernel on the nearest GPU in the fit, and with a few others
measured on the GPU itself. Some GEMMs were measured once more, repeated for a second under the board's power limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import inf
from pathlib import Path

import polars as pl

from predictors import load_gpu, predict
from predictors.attention_stacks import SERVING_FRAMEWORKS
from predictors.columns import prepare_kernels
from predictors.training.datasets import KEY_COLUMNS, load_datasets
from predictors.training.report import LAW_TITLES
from predictors.weights_file import SHIPPED_WEIGHTS
from tests.validation.study import AICONFIGURATOR, find_input, format_table, write_figures

INPUTS = (AICONFIGURATOR,)
NEAREST_FITTED = {
    "h200-sxm": "h100-sxm", "gb200": "b200", "b300": "b200", "gb300": "b200", "rtx-pro-6000-server": "l40s",
}  # fmt: skip
"""GPU that isn't in the fit -> the one that is, which a trace would come from."""
CALIBRATION_KERNELS = 30
"""Kernels of one framework that calibrate a GPU, drawn at random."""
METHODS = (
    "from shapes", "from shapes, framework not named", "from the time on the GPU in brackets",
    f"{CALIBRATION_KERNELS} kernels measured",
)  # fmt: skip
MIN_US = 20.0
MAX_KERNELS = 1500
"""Kernels of one framework, law and GPU that are scored."""

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

Scores = dict[tuple[str, str], list["Score"]]
"""(law, GPU) -> errors in the order of `METHODS`."""


@dataclass(frozen=True)
class Score:
    """Errors of predictions, in percent.

    Attributes:
        kernels: How many.
        median: Of |error|.
        p90: Of |error|.
        bias: Median error.
        inside: Part of the times in their 90 % intervals.
    """

    kernels: int
    median: float
    p90: float
    bias: float
    inside: float


def run() -> str:
    """Return a table for each method, and one of long runs."""
    checkout = find_input(AICONFIGURATOR)
    scores = score_all(checkout)
    laws = [law for law in LAW_TITLES if any((law, gpu) in scores for gpu in NEAREST_FITTED)]
    gpus = [f"{gpu} ({source})" for gpu, source in NEAREST_FITTED.items()]
    tables = ["# Kernels on GPUs that only others measured\n"]
    tables.append("Median / 90th percentile of |error|, bias, and part in their interval, all in percent.\n")
    for method, title in enumerate(METHODS):
        rows = ((LAW_TITLES[law], *list_cells(scores, law, method)) for law in laws)
        tables += [f"## {title[0].upper()}{title[1:]}\n", format_table(("", *gpus), rows)]
    headings = (
        "GPU", "short run, µs", "GEMMs", "power, W", "long over short", "10 to 90 %", "predicted, of long",
    )  # fmt: skip
    power = (row for gpu in POWER_RUNS for row in compare_power_runs(checkout / SYSTEMS, gpu))
    tables += ["## GEMMs under the power limit\n", format_table(headings, power)]
    tables.append("Source: github.com/ai-dynamo/aiconfigurator at 095f58a5.\n")
    return "\n".join(tables)


def update() -> None:
    """Write the medians from shapes, which reports cite, with the weights that they are of."""
    scores = score_all(find_input(AICONFIGURATOR))
    laws: dict[str, dict[str, float]] = {}
    for (law, gpu), of in scores.items():
        laws.setdefault(law, {})[gpu] = round(of[0].median, 1)
    write_figures(
        SHIPPED_WEIGHTS / "elsewhere.toml",
        "# Median |error| of kernels on GPUs that only others measured, percent, by\n"
        "# python -m tests.validation kernels/unseen_gpus --update\n"
        "# on github.com/ai-dynamo/aiconfigurator at 095f58a5.\n",
        {"laws": laws},
    )


@cache
def score_all(checkout: Path) -> Scores:
    """Return the errors of each law's kernels on each GPU."""
    scores: Scores = {}
    for source in dict.fromkeys(NEAREST_FITTED.values()):
        gpus = [gpu for gpu, nearest in NEAREST_FITTED.items() if nearest == source]
        measured = load_datasets(checkout, gpus=[source, *gpus])
        measured = measured.filter(pl.col("framework").is_in(SERVING_FRAMEWORKS))
        scores |= {(law, gpu): found for gpu in gpus for law, found in score_gpu(measured, gpu)}
    return scores


def score_gpu(measured: pl.DataFrame, gpu: str) -> Iterator[tuple[str, list[Score]]]:
    """Yield each law of a GPU's kernels, and their errors in the order of `METHODS`."""
    source = NEAREST_FITTED[gpu]
    mine = measured.filter(pl.col("gpu") == gpu, pl.col("latency_us") > MIN_US)
    mine = mine.with_columns(prepare_kernels(mine)["law"]).drop_nulls("law")
    keys = [key for key in KEY_COLUMNS if key in measured.columns and key != "gpu"]
    other = measured.filter(pl.col("gpu") == source).select(*keys, measured_us="latency_us")
    for (law,), of_law in mine.group_by("law", maintain_order=True):
        parts = [part.sample(fraction=1, shuffle=True, seed=0) for part in of_law.partition_by("framework")]
        sampled = pl.concat(part.slice(CALIBRATION_KERNELS, MAX_KERNELS) for part in parts)
        nameless = sampled.with_columns(framework=pl.lit(None, pl.String))
        pairs = sampled.join(other, on=keys, nulls_equal=True)
        yield (
            str(law),
            [
                score(sampled, predict(sampled, gpu)),
                score(nameless, predict(nameless, gpu)),
                score(pairs, predict(pairs, gpu, source_gpu=source)),
                score(sampled, pl.concat(predict_calibrated(part, gpu) for part in parts)),
            ],
        )


def predict_calibrated(kernels: pl.DataFrame, gpu: str) -> pl.DataFrame:
    """Predict all but the first few kernels, which calibrate the GPU."""
    known = kernels.head(CALIBRATION_KERNELS).select(pl.exclude("gpu", "latency_us"), measured_us="latency_us")
    return predict(kernels.slice(CALIBRATION_KERNELS, MAX_KERNELS), gpu, calibrations={load_gpu(gpu): known})


def score(kernels: pl.DataFrame, predicted: pl.DataFrame) -> Score:
    """Compare predictions with `latency_us`."""
    errors = kernels.select(off=100 * (predicted["time_us"] / pl.col("latency_us") - 1))
    inside = kernels["latency_us"].is_between(predicted["low_us"], predicted["high_us"])
    size = pl.col("off").abs()
    figures = {"median": size.median(), "p90": size.quantile(0.9), "bias": pl.col("off").median()}
    inside_pct = 100 * float(inside.sum()) / max(inside.len(), 1)
    return Score(kernels=errors.height, **errors.select(**figures).row(0, named=True), inside=inside_pct)


def list_cells(scores: Mapping[tuple[str, str], list[Score]], law: str, method: int) -> Iterator[str]:
    """Yield a cell for each GPU."""
    for gpu in NEAREST_FITTED:
        found = scores[law, gpu][method] if (law, gpu) in scores else None
        yield (
            f"{found.median:.1f} / {found.p90:.0f}, {found.bias:+.0f}, {found.inside:.0f}"
            if (found and found.kernels)
            else "–"
        )


def compare_power_runs(systems: Path, gpu: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each range of times: GEMMs that ran for a second against the same in short runs."""
    gemms = read_power_runs(systems, *POWER_RUNS[gpu]).sample(MAX_GEMMS, seed=0, shuffle=True)
    shapes = gemms.select(*GEMM_SHAPE, family=pl.lit("gemm"), dtype=pl.lit("bf16"))
    predicted = predict(shapes, gpu)["time_us"] / gemms["long_us"]
    rows = gemms.select("power", "short_us", ratio=pl.col("long_us") / pl.col("short_us"), predicted=predicted)
    for low, high in pairwise(RANGES_US):
        some = rows.filter(pl.col("short_us").is_between(low, high, closed="left"))
        power, ratio, error = some.select(pl.col("power", "ratio", "predicted").median()).row(0)
        lowest, highest = (some["ratio"].quantile(part) for part in (0.1, 0.9))
        yield (
            load_gpu(gpu).name,
            f"{low:g} to {high:g}",
            str(some.height),
            f"{power:.0f}",
            f"{ratio:.2f}",
            f"{lowest:.2f} to {highest:.2f}",
            f"{100 * (error - 1):+.0f} %",
        )


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
