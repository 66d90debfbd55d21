"""Fit all laws side by side, score them on held-out GPUs, and merge all fits into weights."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import polars as pl

from predictors.training.evaluate import cross_validate
from predictors.training.fit import LawMeasurements, merge_fits, refit_corrections
from predictors.training.widths import compute_widths_and_exponents
from predictors.weights_file import Weights


def fit_all(data: dict[str, list[LawMeasurements]], jobs: int = 2) -> tuple[Weights, pl.DataFrame]:
    """Fits every law, scores it on what was held out, and fits its trees again on all shapes.

    Args:
        data: From ``load_measurements``.
        jobs: Number of processes.

    Returns:
        The weights, and the scored rows of ``evaluate.cross_validate``.
    """
    # The threads of polars do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        # Start with the laws with the most GPUs, which take longest.
        names = sorted(data, key=lambda law: (-len(data[law]), law))
        results = list(pool.map(cross_validate, names, [data[law] for law in names]))
        ships = list(pool.map(refit_corrections, [fitted for fitted, _ in results], [data[law] for law in names]))
    scored = pl.concat([rows for _, rows in results], how="diagonal_relaxed")
    intervals, transfer = compute_widths_and_exponents(scored)
    weights = merge_fits(ships)
    return replace(weights, intervals=intervals, transfer=transfer), scored


def replace_laws(shipped: Weights, fitted: Weights) -> Weights:
    """Return the shipped weights with the laws of a fit in place of their own."""
    others = {name: trees for name, trees in shipped.corrections.items() if name.split("/", 1)[1] not in fitted.laws}
    return Weights(
        laws={**shipped.laws, **fitted.laws},
        corrections={**others, **fitted.corrections},
        intervals={**shipped.intervals, **fitted.intervals},
        transfer={**shipped.transfer, **fitted.transfer},
        spreads={**shipped.spreads, **fitted.spreads},
    )
