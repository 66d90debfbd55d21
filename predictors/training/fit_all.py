"""Fit all laws side by side, score them on held-out GPUs, and merge all fits into weights."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import polars as pl

from predictors.training.evaluate import cross_validate
from predictors.training.fit import LawFit, LawMeasurements, merge_fits, refit_corrections
from predictors.training.joined import join_and_score, split_joined
from predictors.training.widths import fit_intervals
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
        # Start with the laws of most measurements, which take longest.
        names = sorted(data, key=lambda law: -sum(part.table.height for part in data[law]))
        results = list(pool.map(_fit_and_score, names, [data[law] for law in names]))
    scored = pl.concat([rows for _, rows in results], how="diagonal_relaxed")
    return _set_widths(merge_fits([fitted for fitted, _ in results]), scored), scored


def _fit_and_score(law: str, parts: list[LawMeasurements]) -> tuple[LawFit, pl.DataFrame]:
    start = time.perf_counter()
    shared, joined = split_joined(parts)
    fitted, rows = cross_validate(law, shared)
    ships = refit_corrections(fitted, shared)
    for part in joined:
        ships, more = join_and_score(ships, part)
        rows = pl.concat([rows, more], how="diagonal_relaxed")
    print(f"{law}: {sum(part.table.height for part in parts):,} rows, {time.perf_counter() - start:.0f} s", flush=True)  # noqa: T201
    return ships, rows


def _set_widths(weights: Weights, scored: pl.DataFrame) -> Weights:
    fitted = fit_intervals(scored)
    return replace(
        weights,
        intervals=fitted.widths,
        centres=fitted.centres,
        shared=fitted.shared,
        transfer=fitted.exponents,
    )


def join_fits(fits: Sequence[tuple[Weights, pl.DataFrame]], shipped: Weights) -> tuple[Weights, pl.DataFrame]:
    """Return the laws of several fits as of one, and their scored rows.

    Args:
        fits: Weights in which some laws were fitted, and the scored rows of these. Of a law in several, the last one
            counts.
        shipped: Weights whose other laws the fits kept.
    """
    last: dict[str, int] = {}
    for at, (weights, rows) in enumerate(fits):
        # Laws whose measurements are too few for scores have no rows.
        changed = {law for law, constants in weights.laws.items() if constants != shipped.laws.get(law)}
        last |= dict.fromkeys(changed | set(rows["law"]), at)
    of_fit = [[law for law, its in last.items() if its == at] for at in range(len(fits))]
    rows = pl.concat(
        [rows.filter(pl.col("law").is_in(laws)) for (_, rows), laws in zip(fits, of_fit, strict=True)],
        how="diagonal_relaxed",
    )
    joined = [select_laws(weights, laws) for (weights, _), laws in zip(fits, of_fit, strict=True)]
    return _set_widths(functools.reduce(replace_laws, joined), rows), rows


def select_laws(weights: Weights, laws: Collection[str]) -> Weights:
    """Return some laws of weights, without widths."""
    return Weights(
        laws={law: weights.laws[law] for law in laws},
        corrections={name: of for name, of in weights.corrections.items() if name.split("/", 1)[1] in laws},
        spreads={law: spread for law, spread in weights.spreads.items() if law in laws},
    )


def replace_laws(shipped: Weights, fitted: Weights) -> Weights:
    """Return the shipped weights with the laws of a fit in place of their own."""
    others = {name: trees for name, trees in shipped.corrections.items() if name.split("/", 1)[1] not in fitted.laws}
    centres, shared = (
        {key: of for key, of in cells.items() if key not in fitted.intervals}
        for cells in (shipped.centres, shipped.shared)
    )
    return Weights(
        laws={**shipped.laws, **fitted.laws},
        corrections={**others, **fitted.corrections},
        intervals={**shipped.intervals, **fitted.intervals},
        centres={**centres, **fitted.centres},
        shared={**shared, **fitted.shared},
        transfer={**shipped.transfer, **fitted.transfer},
        spreads={**shipped.spreads, **fitted.spreads},
    )


def replace_widths(fitted: Weights, known: Weights) -> Weights:
    """Return a fit with the widths that other weights have; it keeps its own of the laws and vendors that they lack."""
    return replace(
        fitted,
        intervals={**fitted.intervals, **known.intervals},
        centres={**fitted.centres, **known.centres},
        shared={**fitted.shared, **known.shared},
        transfer={**fitted.transfer, **known.transfer},
    )
