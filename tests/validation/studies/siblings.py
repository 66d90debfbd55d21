"""Holds predicted kernels against those that others measured on GPUs of which the weights have seen nothing.

python -m tests.validation.studies.siblings AICONFIGURATOR [--write]

A checkout of github.com/ai-dynamo/aiconfigurator has tables of more GPUs than are fitted. Their kernels over 20 µs are
predicted from shapes, with the serving framework named and not, from the time of the same kernel on the nearest GPU
that is fitted, and with a few others measured on the GPU itself. tests/validation/notes/kernels.md's figures: commit
095f58a5. `--write` keeps the medians beside the weights, for reports.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from predictors import load_gpu, predict
from predictors.attention_stacks import SERVING_FRAMEWORKS
from predictors.columns import prepare_kernels
from predictors.training.datasets import KEY_COLUMNS, load_datasets
from predictors.training.report import LAW_TITLES
from predictors.weights_file import SHIPPED_WEIGHTS, shipped_sha256
from tests.validation.tables import print_table

SOURCES = {
    "h200-sxm": "h100-sxm", "gb200": "b200", "b300": "b200", "gb300": "b200", "rtx-pro-6000-server": "l40s",
}  # fmt: skip
"""GPU that isn't fitted -> the one that is, which a trace would come from."""
KNOWN = 30
"""Kernels of one framework that calibrate a GPU, drawn at random."""
WAYS = (
    "from shapes", "from shapes, framework not named", "carried from the GPU in brackets", f"{KNOWN} kernels measured"
)  # fmt: skip
SHORTEST_US = 20.0
ROWS = 1500
"""Kernels of one framework, law and GPU that are scored."""


@dataclass(frozen=True)
class Score:
    """Errors of predictions, in percent.

    Attributes:
        kernels: how many.
        median: of |error|.
        p90: of |error|.
        bias: median error.
        inside: share of the times in their 90 % intervals.
    """

    kernels: int
    median: float
    p90: float
    bias: float
    inside: float


def main() -> None:
    """Prints a table for each way to predict, and one of the intervals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    measured = load_datasets(options.checkout).filter(pl.col("framework").is_in(SERVING_FRAMEWORKS))
    scores = {(law, gpu): found for gpu in SOURCES for law, found in scores_of(measured, gpu)}
    laws = [law for law in LAW_TITLES if any((law, gpu) in scores for gpu in SOURCES)]
    for way, title in enumerate(WAYS):
        sys.stdout.write(f"\n{title}: median / 90th percentile of |error|, bias, inside the interval\n\n")
        heading = f"| | {' | '.join(f'{gpu} ({source})' for gpu, source in SOURCES.items())} |"
        cells = ([cell(scores.get((law, gpu)), way) for gpu in SOURCES] for law in laws)
        print_table(
            heading, (f"| {LAW_TITLES[law]} | {' | '.join(row)} |" for law, row in zip(laws, cells, strict=True))
        )
    if options.write:
        write(scores)


def write(scores: Mapping[tuple[str, str], list[Score]]) -> None:
    """Keeps the medians from shapes, with which weights they are of."""
    lines = [
        "# Median |error| of kernels on GPUs that only others measured, percent, by tests/validation",
        "# on github.com/ai-dynamo/aiconfigurator at 095f58a5.",
        f'weights = "{shipped_sha256()}"',
    ]
    for law in dict.fromkeys(law for law, _ in scores):
        lines += ["", f'[laws."{law}"]']
        lines += [f"{gpu} = {of[0].median:.1f}" for (of_law, gpu), of in scores.items() if of_law == law]
    (SHIPPED_WEIGHTS / "elsewhere.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def cell(scores: list[Score] | None, way: int) -> str:
    """One GPU's errors, with one way to predict."""
    if scores is None or not scores[way].kernels:
        return "–"
    of = scores[way]
    return f"{of.median:.1f} / {of.p90:.0f}, {of.bias:+.0f}, {of.inside:.0f}"


def scores_of(measured: pl.DataFrame, gpu: str) -> Iterator[tuple[str, list[Score]]]:
    """The law of some kernels and how far they are off, in the order of `WAYS`."""
    mine = measured.filter(pl.col("gpu") == gpu, pl.col("latency_us") > SHORTEST_US)
    mine = mine.with_columns(prepare_kernels(mine)["law"]).drop_nulls("law")
    keys = [key for key in KEY_COLUMNS if key in measured.columns and key != "gpu"]
    other = measured.filter(pl.col("gpu") == SOURCES[gpu]).select(*keys, measured_us="latency_us")
    for (law,), of_law in mine.group_by("law", maintain_order=True):
        parts = [part.sample(fraction=1, shuffle=True, seed=0) for part in of_law.partition_by("framework")]
        sampled = pl.concat(part.slice(KNOWN, ROWS) for part in parts)
        nameless = sampled.with_columns(framework=pl.lit(None, pl.String))
        pairs = sampled.join(other, on=keys, nulls_equal=True)
        yield (
            str(law),
            [
                score(sampled, predict(sampled, gpu)),
                score(nameless, predict(nameless, gpu)),
                score(pairs, predict(pairs, gpu, source_gpu=SOURCES[gpu])),
                score(sampled, pl.concat(calibrated(part, gpu) for part in parts)),
            ],
        )


def calibrated(kernels: pl.DataFrame, gpu: str) -> pl.DataFrame:
    """Predictions of all but the first few, which were measured."""
    known = kernels.head(KNOWN).select(pl.exclude("gpu", "latency_us"), measured_us="latency_us")
    return predict(kernels.slice(KNOWN, ROWS), gpu, calibrations={load_gpu(gpu): known})


def score(kernels: pl.DataFrame, predicted: pl.DataFrame) -> Score:
    """Predictions beside `latency_us`."""
    errors = kernels.select(off=100 * (predicted["time_us"] / pl.col("latency_us") - 1))
    inside = kernels["latency_us"].is_between(predicted["low_us"], predicted["high_us"])
    size = pl.col("off").abs()
    row = errors.select(pl.len(), size.median(), size.quantile(0.9).alias("p90"), pl.col("off").median().alias("bias"))
    return Score(*row.row(0), 100 * (inside.mean() or 0))


if __name__ == "__main__":
    main()
