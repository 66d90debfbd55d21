"""Measure how often the interval of a sum of kernels holds it, by how much of their errors is taken as common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.result import CALIBRATED, NOTHING, SITUATIONS, TOLD_ALL, get_width_key, sum_with_interval
from predictors.weights_file import load_hardware

FRACTIONS = (0.0, 0.2, 0.4, 0.6)
DRAWS, KERNELS = 40, 20
"""Sums that are drawn of a GPU's kernels, and kernels of a sum."""
MIN_US, MIN_KERNELS = 2.0, 60
_COLUMN_TOLD = {TOLD_ALL: "model_us", NOTHING: f"{NOTHING}_us"}


def compute_sum_coverage(rows: pl.DataFrame, intervals: Mapping[str, Mapping[str, float]]) -> pl.DataFrame:
    """Draw sums of one GPU's kernels of all laws, each as some share of a step, and count those inside the interval.

    Args:
        rows: From ``evaluate.cross_validate``.
        intervals: ``Weights.intervals``.

    Returns:
        One row per `situation`, what is `told` of the software, and GPU: for each of `FRACTIONS` the percentage of
        sums inside their interval, and `sums`.
    """
    return pl.DataFrame(list(_score_gpus(rows, intervals)), infer_schema_length=None)


def _score_gpus(rows: pl.DataFrame, intervals: Mapping[str, Mapping[str, float]]) -> Iterator[dict[str, object]]:
    draw = np.random.default_rng(0)
    long = rows.filter(pl.col("latency_us") >= MIN_US, pl.col("situation").is_in([*SITUATIONS, CALIBRATED]))
    for told, column in _COLUMN_TOLD.items():
        known = long.drop_nulls(column)
        for (where, gpu), part in known.group_by("situation", "gpu", maintain_order=True):
            if part.height < MIN_KERNELS:
                continue
            width = _find_widths(part, str(where), told, intervals)
            predicted, measured = part[column].to_numpy(), part["latency_us"].to_numpy()
            inside = [_draw_sum(predicted, measured, width, draw) for _ in range(DRAWS)]
            share = 100 * np.mean(inside, axis=0)
            found = {f"{fraction:g}": float(one) for fraction, one in zip(FRACTIONS, share, strict=True)}
            yield {"situation": where, "told": told, "gpu": gpu, "sums": DRAWS, **found}


def _find_widths(part: pl.DataFrame, where: str, told: str, intervals: Mapping[str, Mapping[str, float]]) -> Floats:
    """Return the half-width of each kernel's interval."""
    vendor = load_hardware(part["gpu"][0]).gpu.vendor
    of_law = {}
    for law in part["law"].unique():
        key = get_width_key(law, vendor)
        widths = intervals[key if key in intervals else law]
        more = 0.0 if where == CALIBRATED else widths.get(told, 0.0)
        of_law[law] = float(np.hypot(widths[where], more))
    return part["law"].replace_strict(of_law, return_dtype=pl.Float64).to_numpy()


def _draw_sum(predicted: Floats, measured: Floats, width: Floats, draw: np.random.Generator) -> list[bool]:
    """Draw a sum and return, for each of `FRACTIONS`, whether it is inside its interval."""
    some = draw.choice(predicted.size, min(KERNELS, predicted.size), replace=False)
    often = draw.lognormal(0.0, 1.0, some.size) / predicted[some]
    time, total = predicted[some] * often, float(np.sum(measured[some] * often))
    ends = time * np.exp(-width[some]), time * np.exp(width[some])
    sums = (sum_with_interval(time, *ends, common_fraction=fraction) for fraction in FRACTIONS)
    return [low <= total <= high for _, low, high in sums]
