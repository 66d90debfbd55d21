"""Whole fp32 models against the times that NeuSight measured, from shapes alone.

Each prediction is the sum over the model's kernels. The operators of the first GPUs are in the fit, the models never.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from predictors import load_gpu, predict
from predictors.result import sum_with_interval
from tests.validation.study import KERNEL_DATA, NEUSIGHT, MissingInputError, find_input, format_table

INPUTS = (KERNEL_DATA, NEUSIGHT)
FITTED = (
    *("Tesla_V100-PCIE-32GB", "Tesla_P100-PCIE-16GB", "NVIDIA_A100-PCIE-40GB", "NVIDIA_A100_80GB_PCIe"),
    *("Tesla_T4", "Tesla_P4"),
)
"""Folders of GPUs whose operators are in the fit."""
UNSEEN = ("NVIDIA_H100_80GB_HBM3", "NVIDIA_L4")
"""Folders of GPUs of which nothing is."""
LABELS = Path("scripts/asplos/label")


def run() -> str:
    """Return a row for each model, and the errors of each GPU."""
    labels = find_input(NEUSIGHT) / LABELS
    kernels = pl.read_parquet(find_input(KERNEL_DATA) / "neusight" / "workload_kernels.parquet")
    rows = [row for gpu in (*FITTED, *UNSEEN) for row in predict_models(labels / gpu, kernels)]
    if not rows:
        raise MissingInputError(f"{labels} has no measured models")
    table = pl.DataFrame(rows, schema=["gpu", "model", "measured", "predicted", "low", "high"], orient="row")
    table = table.with_columns(error=100 * (pl.col("predicted") / pl.col("measured") - 1))
    return "\n".join(
        (
            "# Whole fp32 models from shapes alone\n",
            format_table(
                ("GPU", "models", "mean absolute error, %", "worst", "bias", "in interval"), summarize_gpus(table)
            ),
            format_table(
                ("GPU", "model", "measured, ms", "predicted (90 % interval)", "error"),
                (format_model(*row) for row in table.iter_rows()),
            ),
            "Source: github.com/sitar-lab/NeuSight at 6945927d, scripts/asplos/label.\n",
        )
    )


def predict_models(folder: Path, kernels: pl.DataFrame) -> Iterator[tuple[str, str, float, float, float, float]]:
    """Yield GPU, model, and in ms the measured time, the predicted one and its interval."""
    gpu = load_gpu(folder.name)
    times = predict(kernels.drop("workload", "count", "op", "kind"), gpu).select("time_us", "low_us", "high_us")
    all_times = kernels.select("workload", "count").hstack(times)
    for (model,), of_model in all_times.group_by("workload", maintain_order=True):
        measured = read_label(folder / f"{model}.json")
        if measured is not None:
            time_us, low_us, high_us = ((of_model[name] * of_model["count"]).to_numpy() for name in times.columns)
            sums = sum_with_interval(time_us, low_us, high_us)
            step_us, shortest_us, longest_us = sums
            yield gpu.slug, str(model), measured, step_us / 1e3, shortest_us / 1e3, longest_us / 1e3


def read_label(label: Path) -> float | None:
    """Read the time of a model in ms; None if it wasn't measured."""
    return float(json.loads(label.read_text(encoding="utf-8"))["e2e_latency"]) if label.exists() else None


def summarize_gpus(table: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each GPU."""
    error = pl.col("error")
    by_gpu = table.group_by("gpu", maintain_order=True).agg(
        pl.len(), error.abs().mean().alias("mean"), error.abs().max().alias("worst"), error.mean().alias("bias"),
        inside=pl.col("measured").is_between("low", "high").sum(),
    )  # fmt: skip
    for gpu, count, mean, worst, bias, inside in by_gpu.iter_rows():
        yield gpu, str(count), f"{mean:.1f}", f"{worst:.0f}", f"{bias:+.0f}", str(inside)


def format_model(
    gpu: str, model: str, measured: float, predicted: float, low: float, high: float, error: float
) -> tuple[str, ...]:
    """Return the cells of one model."""
    return gpu, model, f"{measured:.4g}", f"{predicted:.4g} ({low:.4g}–{high:.4g})", f"{error:+.0f} %"
