"""Kernels by family and GPU, by fits without their shapes, their GPU or its class, and the intervals that follow.

What `python -m predictors.training fit` measured on the data that the shipped weights were fitted to.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from predictors.result import CALIBRATED, SITUATIONS
from predictors.training.__main__ import SCORED_TABLE
from predictors.training.evaluate import summarise_by_library, summarise_errors, summarise_views
from predictors.training.report import LAW_TITLES, format_markdown, format_sum_coverage
from predictors.training.sums import compute_sum_coverage
from predictors.training.widths import compute_coverage
from predictors.weights_file import load_weights
from tests.validation.study import FIT, find_input, format_table

INPUTS = (FIT,)
MEAN_LAWS = ("gemm half", "gemm fp8", "prefill", "decode", "moe half", "encoder")
MEAN_GPUS = (
    "a100-sxm-80gb", "l40s", "rtx-pro-6000-server", "h100-sxm", "h200-sxm", "b200", "b300", "gb200", "gb300",
)  # fmt: skip
MEANS = {
    "its class held out": ("class", "model"),
    "GPU held out": ("alone", "model"),
    "GPU held out, 30 kernels measured": (CALIBRATED, "model"),
    "in base": ("base", "model"),
    "GPU held out, law alone": ("alone", "law"),
    "roofline": ("alone", "roofline"),
    "peak ratio": ("alone", "peak_ratio"),
}
"""Row -> what the fit lacked, and the prediction."""
LEGEND = (
    "Median / 90th percentile of |error| in percent, over kernels longer than 20 µs that a fit had not seen. *In "
    "base*: the GPU's other shapes were in the fit. *GPU held out*: nothing of the GPU was; in brackets what it then "
    "was to the others (sibling, class, new). *Its class held out*: nothing of any GPU with the same generation of "
    "tensor cores was. *30 kernels measured*: the GPU was left out, then calibrated with 30 of its kernels, of which "
    "none is scored. *Law alone*: without the learned correction. *Roofline* and *peak ratio*: baselines, the "
    "datasheet's bound, and another GPU's time of the same kernel times the ratio of peaks. Each release of each "
    "engine counts by itself, and is told.\n"
)


def run() -> str:
    """Return the means of the main families, and a table for each family."""
    folder = find_input(FIT)
    weights, rows = load_weights(folder), pl.read_parquet(folder / SCORED_TABLE)
    errors = summarise_errors(rows)
    return "\n".join(
        (
            "# Kernels by family\n",
            LEGEND,
            "## Means over nine GPUs\n",
            format_table(("", *(LAW_TITLES[law] for law in MEAN_LAWS)), list_means(errors)),
            format_markdown(errors, summarise_views(rows), summarise_by_library(rows), weights, compute_coverage(rows)),
            format_sum_coverage(compute_sum_coverage(rows, weights)),
        )
    )


def list_means(errors: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row of means over the GPUs for each of `MEANS`.

    Args:
        errors: From ``evaluate.summarise_errors``.
    """
    found = {law: [pick_rows(errors.filter(law=law, gpu=gpu)) for gpu in MEAN_GPUS] for law in MEAN_LAWS}
    for title, (situation, name) in MEANS.items():
        yield title, *(format_mean([of[situation] for of in gpus if situation in of], name) for gpus in found.values())


def pick_rows(of_gpu: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Return the rows of one law and GPU by what the fit lacked; a GPU alone in its class is left out with it."""
    by = {row["situation"]: row for row in of_gpu.iter_rows(named=True)}
    left_out = [by[one] for one in SITUATIONS[1:] if one in by]
    picked = {one: by[one] for one in ("base", CALIBRATED) if one in by}
    return picked | ({"alone": left_out[0], "class": left_out[:2][-1]} if left_out else {})


def format_mean(rows: list[dict[str, float]], name: str) -> str:
    """Return the means of a prediction's medians and 90th percentiles, or a dash without rows."""
    if not rows:
        return "–"
    medians, p90s = ([row[f"{name}_{level}"] for row in rows] for level in ("median", "p90"))
    return f"{np.mean(medians):.1f} / {np.mean(p90s):.0f}"
