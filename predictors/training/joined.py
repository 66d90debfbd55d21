"""Join a vendor's only measured GPU to a fit: offsets, trees and widths of its own, and nothing of the others moves.

What all GPUs share would bend towards the kernels of libraries that none of them runs: a vendor of two GPUs or more
can tell its own share of that, one of a single GPU can't.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from predictors.laws.law import LAWS
from predictors.training.evaluate import (
    count_fitted,
    sample_test_shapes,
    score_calibrated,
    score_kernels,
)
from predictors.training.fit import (
    LAW_ROWS_PER_KERNEL,
    MIN_RELEASE_ROWS,
    LawFit,
    LawMeasurements,
    choose_tree_settings,
    extract_fit,
    fit_own_trees,
    list_releases,
    sample_law_data,
)
from predictors.training.fit_law import fit_gpu_alone
from predictors.weights_file import Weights

JOINED_VENDORS = ("intel",)
"""Of which one GPU was measured: an Arc Pro B60, by aiconfigurator."""


def split_joined(parts: Sequence[LawMeasurements]) -> tuple[list[LawMeasurements], list[LawMeasurements]]:
    """Split measurements into those that a fit shares, and those that are joined to it; without the former, none."""
    joined = [part for part in parts if part.hardware.gpu.vendor in JOINED_VENDORS and not part.is_published_rate]
    shared = [part for part in parts if part not in joined]
    return (shared, joined) if shared else (joined, [])


def join_to_weights(
    weights: Weights, scored: pl.DataFrame, measured: Mapping[str, Sequence[LawMeasurements]]
) -> tuple[Weights, pl.DataFrame]:
    """Join GPUs to the laws of weights that they were measured for.

    Args:
        weights: Weights of a fit.
        scored: Its scored rows.
        measured: Measurements by law.

    Returns:
        The weights, without widths for the GPUs, and the rows with those of the GPUs.
    """
    rows = [scored]
    for law in sorted(measured.keys() & weights.laws.keys()):
        fit = extract_fit(weights, law)
        for part in measured[law]:
            fit, more = join_and_score(fit, part)
            rows.append(more)
        joined = fit.weights
        laws, corrections = {**weights.laws, **joined.laws}, {**weights.corrections, **joined.corrections}
        weights = replace(weights, laws=laws, corrections=corrections)
    return weights, pl.concat(rows, how="diagonal_relaxed")


def join_gpu(near: LawFit, part: LawMeasurements) -> LawFit:
    """Return a fit that knows one more GPU, by the measurements given."""
    law, own = near.law, part.hardware
    data = sample_law_data(part, LAW_ROWS_PER_KERNEL)
    fitted = fit_gpu_alone(LAWS[law], data, near.fitted)
    fitted = replace(fitted, releases={**fitted.releases, **list_releases(law, [part])})
    trees = dict(near.architecture_corrections)
    if part.table.height >= choose_tree_settings(law).min_own_rows:
        trees[own.architecture] = fit_own_trees(law, part, fitted)
    return replace(near, fitted=fitted, architecture_corrections=trees)


def join_and_score(near: LawFit, part: LawMeasurements) -> tuple[LawFit, pl.DataFrame]:
    """Join a GPU to a fit, and score it on shapes held out, without its releases one by one, and without it.

    Args:
        near: Fit of the others, as it ships.
        part: The GPU's measurements.

    Returns:
        The fit with trees on all shapes, and rows as of ``evaluate.cross_validate``.
    """
    test, train = sample_test_shapes(part), part.select_shapes(test=False)
    base = score_kernels(join_gpu(near, train), near, test).join(
        count_fitted([part]), on=["gpu", "engine", "release"], how="left", nulls_equal=True
    )
    rows = [base, score_kernels(near, near, test)]
    if near.spread is not None:
        rows.append(score_calibrated(near, near, part, test))
    several = part.table.group_by("engine", "release").len().drop_nulls().filter(pl.col("len") >= MIN_RELEASE_ROWS)
    several = several.filter(pl.len().over("engine") > 1).sort("engine", "release")
    for engine, release in several.select("engine", "release").iter_rows():
        is_new = ((pl.col("engine") == engine) & (pl.col("release") == release)).fill_null(value=False)
        older = join_gpu(near, LawMeasurements(part.gpu, train.table.filter(~is_new)))
        rows.append(score_kernels(older, near, LawMeasurements(part.gpu, test.table.filter(is_new))))
    scored = pl.concat([one for one in rows if not one.is_empty()], how="diagonal_relaxed")
    return join_gpu(near, part), scored
