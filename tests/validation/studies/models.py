"""Holds whole fp32 models against what NeuSight measured, on GPUs of whose operators the weights have some or none.

python -m tests.validation.studies.models NEUSIGHT DATA

A checkout of github.com/sitar-lab/NeuSight has the measured time of each model; DATA holds
`neusight/workload_kernels.parquet`, the kernels of each model. Each prediction is their sum, from shapes alone.
tests/validation/notes/accuracy.md's figures: commit 6945927d.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from predictors import load_gpu, predict
from predictors.intervals import sum_with_interval
from tests.validation.tables import print_table
from tests.validation.words import given

FITTED = (
    *("Tesla_V100-PCIE-32GB", "Tesla_P100-PCIE-16GB", "NVIDIA_A100-PCIE-40GB", "NVIDIA_A100_80GB_PCIe"),
    *("Tesla_T4", "Tesla_P4"),
)
"""Folders of GPUs whose operators were fitted, the models never."""
OTHERS = ("NVIDIA_H100_80GB_HBM3", "NVIDIA_L4")
"""Of those of which nothing was."""


def main() -> None:
    """Prints a row for each model, and the mean for each GPU."""
    checkout, data = map(Path, given(__doc__, 2, 2))
    kernels = pl.read_parquet(data / "neusight" / "workload_kernels.parquet")
    rows = [row for gpu in (*FITTED, *OTHERS) for row in outcomes(checkout / "scripts/asplos/label" / gpu, kernels)]
    if not rows:
        raise SystemExit(f"evaluate_models: {checkout} has no measured models in scripts/asplos/label/{FITTED[0]}")
    table = pl.DataFrame(rows, schema=["gpu", "model", "measured", "predicted", "low", "high"], orient="row")
    table = table.with_columns(error=100 * (pl.col("predicted") / pl.col("measured") - 1))
    print_table("| GPU | model | measured, ms | predicted (90 % interval) | error |", map(line, table.iter_rows()))
    of_gpu = table.group_by("gpu", maintain_order=True).agg(
        pl.len(), off=pl.col("error").abs().mean(), worst=pl.col("error").abs().max(), bias=pl.col("error").mean(),
        inside=pl.col("measured").is_between("low", "high").sum(),
    )  # fmt: skip
    summary = (
        f"| {gpu} | {n} | {off:.1f} | {worst:.0f} | {bias:+.0f} | {inside} |"
        for gpu, n, off, worst, bias, inside in of_gpu.iter_rows()
    )
    print_table("\n| GPU | models | mean error, % | worst | bias | inside |", summary)


def outcomes(folder: Path, kernels: pl.DataFrame) -> Iterator[tuple[str, str, float, float, float, float]]:
    """GPU, model, and in ms the measured time, the predicted one and its interval."""
    gpu = load_gpu(folder.name)
    shapes = kernels.drop("workload", "count", "op", "kind")
    times = predict(shapes, gpu).select("time_us", "low_us", "high_us")
    all_times = kernels.select("workload", "count").hstack(times)
    for (model,), of_model in all_times.group_by("workload", maintain_order=True):
        label = folder / f"{model}.json"
        if label.exists():
            measured = json.loads(label.read_text(encoding="utf-8"))["e2e_latency"]
            sums = sum_with_interval(*((of_model[name] * of_model["count"]).to_numpy() for name in times.columns))
            yield gpu.slug, str(model), measured, *(us / 1e3 for us in sums)


def line(row: tuple[str, str, float, float, float, float, float]) -> str:
    """One model's row."""
    gpu, model, measured, predicted, low, high, error = row
    return f"| {gpu} | {model} | {measured:.4g} | {predicted:.4g} ({low:.4g}–{high:.4g}) | {error:+.0f} % |"


if __name__ == "__main__":
    main()
