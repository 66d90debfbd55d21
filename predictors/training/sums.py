"""Measure how often the interval of a sum of kernels holds it, by how much of their errors is taken as shared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.result import (
    CALIBRATED,
    NOTHING,
    SHARED_ERROR_FRACTION,
    SITUATIONS,
    TOLD_ALL,
    get_width_key,
    sum_with_interval,
)
from predictors.weights_file import Weights, load_hardware

FRACTIONS = (0.0, 0.2, 0.4, 0.6)
BY_LAW = "by law"
"""What the fit says that a law's kernels share."""
DRAWS, KERNELS = 40, 20
"""Sums that are drawn of a GPU's kernels, and kernels of a sum."""
MIN_US, MIN_KERNELS = 2.0, 60
_COLUMN_TOLD = {TOLD_ALL: "model_us", NOTHING: f"{NOTHING}_us"}


def compute_sum_coverage(rows: pl.DataFrame, weights: Weights) -> pl.DataFrame:
    """Draw sums of one GPU's kernels of all laws, each as some share of a step, and count those inside the interval.

    Args:
        rows: From ``evaluate.cross_validate``.
        weights: Weights with the intervals.

    Returns:
        One row per `situation`, what is `told` of the software, and GPU: for each of `FRACTIONS` and `BY_LAW` the
        percentage of sums inside their interval, and `sums`.
    """
    return pl.DataFrame(list(_score_gpus(rows, weights)), infer_schema_length=None)


def _score_gpus(rows: pl.DataFrame, weights: Weights) -> Iterator[dict[str, object]]:
    draw = np.random.default_rng(0)
    long = rows.filter(pl.col("latency_us") >= MIN_US, pl.col("situation").is_in([*SITUATIONS, CALIBRATED]))
    for told, column in _COLUMN_TOLD.items():
        known = long.drop_nulls(column)
        for (where, gpu), part in known.group_by("situation", "gpu", maintain_order=True):
            if part.height < MIN_KERNELS:
                continue
            intervals = _find_intervals(part, str(where), told, weights)
            law = part["law"].rank("dense").cast(pl.Int64).to_numpy() - 1
            predicted, measured = part[column].to_numpy(), part["latency_us"].to_numpy()
            inside = [_draw_sum(predicted, measured, intervals, law, draw) for _ in range(DRAWS)]
            names = [*(f"{fraction:g}" for fraction in FRACTIONS), BY_LAW]
            yield {
                "situation": where,
                "told": told,
                "gpu": gpu,
                "sums": DRAWS,
                **dict(zip(names, (100 * np.mean(inside, axis=0)).tolist(), strict=True)),
            }


def _find_intervals(part: pl.DataFrame, where: str, told: str, weights: Weights) -> Floats:
    """Return each kernel's half-width and centre, and the fraction of its error that its law shares."""
    vendor, of_law = load_hardware(part["gpu"][0]).gpu.vendor, {}
    for law in part["law"].unique():
        own = get_width_key(law, vendor)
        key = own if own in weights.intervals else law
        widths = weights.intervals[key]
        more = 0.0 if where == CALIBRATED else widths.get(told, 0.0)
        cell = told if where == "base" and told in widths else where
        of_law[law] = (
            float(np.hypot(widths[where], more)),
            weights.centres.get(key, {}).get(cell, 0.0),
            weights.shared.get(key, {}).get(cell, SHARED_ERROR_FRACTION),
        )
    return np.array([of_law[law] for law in part["law"].to_list()]).T


def _draw_sum(
    predicted: Floats, measured: Floats, intervals: Floats, law: Ints, draw: np.random.Generator
) -> list[bool]:
    """Draw a sum and return, for each of `FRACTIONS` and by law, whether it is inside its interval."""
    some = draw.choice(predicted.size, min(KERNELS, predicted.size), replace=False)
    often = draw.lognormal(0.0, 1.0, some.size) / predicted[some]
    time, total = predicted[some] * often, float(np.sum(measured[some] * often))
    width, centre, shared = intervals[:, some]
    ends = (np.minimum(time * np.exp(centre - width), time), np.maximum(time * np.exp(centre + width), time))
    sums = [sum_with_interval(time, *ends, shared=fraction) for fraction in FRACTIONS]
    sums.append(sum_with_interval(time, *ends, shared=shared, family=law[some]))
    return [low <= total <= high for _, low, high in sums]
