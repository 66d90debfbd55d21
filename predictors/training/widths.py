"""Compute interval widths and transfer exponents from errors on held-out GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.laws.law import SUBSTITUTE_LAWS
from predictors.result import (
    CALIBRATED,
    ENGINE,
    NEW_RELEASE,
    NEW_SOFTWARE,
    SITUATIONS,
    TOLD_LEVELS,
    UNVERSIONED,
    get_carried_key,
    get_cell_key,
    get_width_key,
)
from predictors.training.carried import collect_carried_errors, fit_exponents, pair_kernels
from predictors.training.cells import CELL_COLUMNS, MIN_CELL_KERNELS, MIN_INSIDE_PERCENT
from predictors.training.views import VIEWS, get_spread_column, get_time_column
from predictors.weights_file import load_hardware

WIDTH_SITUATIONS = (*SITUATIONS, CALIBRATED)
MIN_SCORED_KERNELS = 5
"""A GPU with fewer scored kernels of a law says nothing about its intervals."""
MIN_TESTED_KERNELS = 12
"""Nor does one with fewer ask for more than all GPUs need on average, or test whether that will do for the next."""
_Errors = Mapping[str, Floats]
MANY_KERNELS, MANY_KERNELS_MARGIN = 150, 1.25
"""So many of each GPU tell its errors well, however few GPUs there are. On an MI300X and an MI355X, each a fifth of its
weights at a time, the width of four fifths times this holds 93 % of the last (results/kernels/amd_gemms.md)."""
CELL_QUANTILE = 0.85
"""Of a release's kernels on a GPU that are inside an interval of its own."""
MAX_UNSEEN_WIDTH = float(np.log(10.0))
"""Of GPUs left out: a wider interval says nothing. MIOpen's depthwise convolutions took ten times as long on an MI300X,
with a newer release, as those of an MI100 and an MI210 tell."""
MAX_MARGIN = 3.0
"""Of three GPUs or more: where one would need more, the others' kernels (long and in fp32, say) are not its kind."""


def compute_widths_and_exponents(rows: pl.DataFrame) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Interval widths and transfer exponents from scored rows.

    Returns:
        Law, by vendor -> situation -> half-width of a 90 % interval, as a logarithm, and as each of ``TOLD_LEVELS`` the
        extra half-width, in squares, of kernels of whose software less is told; and law -> kinship -> exponent.
    """
    errors = _collect_errors(rows, "model_us")
    intervals: dict[str, dict[str, float]] = {}
    for (law, where), of_gpus in errors.items():
        if where in WIDTH_SITUATIONS:
            known = compute_measured_width if where == "base" else compute_unseen_width
            intervals.setdefault(law, {})[where] = known(list(of_gpus.values()))
    usual = {s: float(np.median([w[s] for w in intervals.values() if s in w] or [0.0])) for s in SITUATIONS}
    filled = {law: _fill_situations(known, usual) for law, known in intervals.items()}
    filled |= {law: _borrow_widths(filled[law], filled[other]) for law, other in _list_single_gpu_laws(errors)}
    less_told = {level: _collect_errors(rows, get_time_column(level), get_spread_column(level)) for level in VIEWS}
    less_told |= dict.fromkeys(NEW_SOFTWARE, _collect_errors(rows, "model_us", "model_spread"))
    for level in TOLD_LEVELS:
        where = level if level in NEW_SOFTWARE else "base"
        for law in filled.keys() & {law for law, situation in less_told[level] if situation == where}:
            filled[law][level] = _compute_extra_width(law, level, less_told[level], intervals[law]["base"])
    for extra in filled.values():
        extra |= _fill_levels(extra)
    for law, of_cells in _compute_cell_widths(rows, filled).items():
        filled[law] |= of_cells
    pairs = pair_kernels(rows)
    exponents = fit_exponents(pairs)
    for law, widths in _compute_carried_widths(collect_carried_errors(pairs, exponents)).items():
        filled.setdefault(law, {}).update(widths)
    return filled, exponents


def _compute_cell_widths(rows: pl.DataFrame, known: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Law, by vendor -> cell -> half-width that holds 85 % of it, where its GPU's interval holds less than 80."""
    found: dict[str, dict[str, float]] = {}
    base = rows.filter(pl.col("situation") == "base").drop_nulls(["engine", "release"])
    errors = base.with_columns(error=(pl.col("model_us") / pl.col("latency_us")).log().abs()).sort(CELL_COLUMNS)
    for (law, gpu, engine, release), cell in errors.group_by(CELL_COLUMNS, maintain_order=True):
        key, own = get_width_key(str(law), load_hardware(str(gpu)).gpu.vendor), cell["error"].to_numpy()
        if own.size >= MIN_CELL_KERNELS and np.mean(own <= known[key]["base"]) < MIN_INSIDE_PERCENT / 100:
            cell_key = get_cell_key(str(gpu), str(engine), cast("float", release))
            found.setdefault(key, {})[cell_key] = float(np.quantile(own, CELL_QUANTILE))
    return found


def _compute_carried_widths(
    errors: Mapping[tuple[str, tuple[str, str, str]], _Errors],
) -> dict[str, dict[str, float]]:
    """Law, by vendor -> what was carried where -> half-width; in the base of fitted and left-out releases together."""
    widths: dict[str, dict[str, float]] = {}
    for (law, (kinship, where, told)), of_gpus in errors.items():
        if where == NEW_RELEASE:
            continue
        newer = errors.get((law, (kinship, NEW_RELEASE, told)), {}) if where == "base" else {}
        known = [each for each in _pool_errors([of_gpus, newer]).values() if each.size >= MIN_SCORED_KERNELS]
        if known:
            width = (compute_measured_width if where == "base" else compute_unseen_width)(known)
            widths.setdefault(law, {})[get_carried_key(kinship, where, told)] = width
    return widths


def _pool_errors(parts: Sequence[_Errors]) -> dict[str, Floats]:
    """The errors of several situations by GPU."""
    gpus = dict.fromkeys(gpu for part in parts for gpu in part)
    return {gpu: np.concatenate([part[gpu] for part in parts if gpu in part]) for gpu in gpus}


def _fill_levels(extra: Mapping[str, float]) -> dict[str, float]:
    """The levels of unknown software; one that no measurement tells of is as unsure as what is nearer, at least."""
    found, least = {}, max((extra[level] for level in (UNVERSIONED, ENGINE) if level in extra), default=None)
    for level in NEW_SOFTWARE:
        if level in extra or least is not None:
            found[level] = least = extra.get(level, least)
    return {level: width for level, width in found.items() if width is not None}


def _compute_extra_width(law: str, level: str, errors: Mapping[tuple[str, str], _Errors], base: float) -> float:
    """Half-width that is missing in squares where so much is told.

    Of unknown software it is what holds 90 % of a GPU's kernels on average: releases differ more than GPUs do.
    """
    if level in NEW_SOFTWARE:
        needed = float(np.mean([np.quantile(of_gpu, 0.9) for of_gpu in errors[law, level].values()]))
    else:
        needed = compute_measured_width(list(errors[law, "base"].values()))
    return float(np.sqrt(max(needed**2 - base**2, 0.0)))


def _list_single_gpu_laws(errors: Mapping[tuple[str, str], Mapping[str, Floats]]) -> list[tuple[str, str]]:
    """Laws of which one of NVIDIA's GPUs was measured, with those that stand in for them and know several.

    A fit without that GPU has no GPU of its vendor, so its error says nothing about the weights that include the GPU.
    """
    gpus = {law: len(of_gpus) for (law, where), of_gpus in errors.items() if where == "base"}
    return [(law, other) for law, other in SUBSTITUTE_LAWS.items() if gpus.get(law) == 1 < gpus.get(other, 0)]


def _borrow_widths(own: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Widths away from the base: what the law that stands in has, and what its own kernels miss in the base."""
    away = {where: float(np.hypot(own["base"], other[where])) for where in (*SITUATIONS[1:], CALIBRATED)}
    return {**own, **away}


def compute_measured_width(errors: Sequence[Floats]) -> float:
    """Half-width, as a logarithm, for the GPUs themselves that the |log errors| are of.

    It is the width that holds 90 % of all their kernels, each GPU with the same weight, and 80 % of each single GPU's,
    times 1 + 1 / number of GPUs; of few GPUs with many kernels times ``MANY_KERNELS_MARGIN``.
    """
    many = min(each.size for each in errors) >= MANY_KERNELS
    margin = 1 + 1 / len(errors)
    return _compute_needed_width(errors) * (min(margin, MANY_KERNELS_MARGIN) if many else margin)


def compute_unseen_width(errors: Sequence[Floats]) -> float:
    """Half-width, as a logarithm, for the next GPU, from the |log errors| of the kernels of several."""
    tested = _select_tested(errors)
    needed = max(compute_measured_width(errors), _compute_needed_width(tested) * compute_margin(tested))
    return min(needed, MAX_UNSEEN_WIDTH)


def compute_margin(errors: Sequence[Floats]) -> float:
    """How much wider than what the GPUs needed, as the next one may be worse than any of them.

    It is 1 + 1 / number of GPUs, or more if needed to hold three quarters of each GPU's kernels inside the width of the
    others, up to ``MAX_MARGIN``.
    """
    others = [[e for other, e in enumerate(errors) if other != own] for own in range(len(errors))]
    ratios = [
        float(np.quantile(own, 0.78)) / _compute_needed_width(rest)
        for own, rest in zip(errors, others, strict=True)
        if rest
    ]
    if not ratios:
        return 2.0
    return max(1 + 1 / len(errors), min(max(ratios), MAX_MARGIN if len(errors) > 2 else np.inf))


def _select_tested(errors: Sequence[Floats]) -> list[Floats]:
    return [e for e in errors if e.size >= MIN_TESTED_KERNELS] or list(errors)


def _compute_needed_width(errors: Sequence[Floats]) -> float:
    worst = max(float(np.quantile(e, 0.8)) for e in _select_tested(errors))
    usual = float(np.mean([np.quantile(e, 0.9) for e in errors]))
    return max(usual, worst)


def compute_coverage(rows: pl.DataFrame) -> pl.DataFrame:
    """Share of each GPU's kernels inside their interval; but for the base, one made of the other GPUs alone.

    Returns:
        One row per law, situation and GPU: ``inside``, in percent.
    """
    found = [
        {"law": law, "situation": where, "gpu": gpu, "inside": 100 * float(np.mean(own <= limit))}
        for (law, where), of_gpus in _collect_errors(rows, "model_us").items()
        if where in WIDTH_SITUATIONS
        for gpu, own in of_gpus.items()
        if own.size >= MIN_TESTED_KERNELS
        if (limit := _compute_limit(where, gpu, of_gpus)) is not None
    ]
    schema = {"law": pl.String, "situation": pl.String, "gpu": pl.String, "inside": pl.Float64}
    return pl.DataFrame(found, schema=schema)


def _compute_limit(where: str, gpu: str, of_gpus: Mapping[str, Floats]) -> float | None:
    """The half-width to hold a GPU's errors against."""
    if where == "base":
        return compute_measured_width(list(of_gpus.values()))
    others = _select_tested([errors for other, errors in of_gpus.items() if other != gpu])
    return _compute_needed_width(others) * compute_margin(_select_tested(list(of_gpus.values()))) if others else None


def _collect_errors(
    rows: pl.DataFrame, column: str, spread: str | None = None
) -> dict[tuple[str, str], dict[str, Floats]]:
    """(law, situation) -> GPU -> |log error| of its kernels; without GPUs that have next to none.

    Of an error, the spread of the software that is told is taken off in squares, as intervals have it on top.

    The GPUs of each vendor have separate widths, ``get_width_key``: with the errors of an MI300X's short norms, an
    A100's intervals would be five times as wide.
    """
    error, known = (
        (pl.col(column) / pl.col("latency_us")).log(),
        pl.col(spread).fill_null(0.0) if spread else pl.lit(0.0),
    )
    errors = rows.drop_nulls(column).with_columns(error=(error**2 - known**2).clip(0.0).sqrt())
    found: dict[tuple[str, str], dict[str, Floats]] = {}
    for (law, where, gpu), part in errors.sort("law", "situation", "gpu").group_by(
        "law", "situation", "gpu", maintain_order=True
    ):
        if part.height >= MIN_SCORED_KERNELS:
            key = get_width_key(str(law), load_hardware(str(gpu)).gpu.vendor), str(where)
            found.setdefault(key, {})[str(gpu)] = part["error"].drop_nulls().to_numpy()
    return {key: of_gpus for key, of_gpus in found.items() if all(e.size for e in of_gpus.values())}


def _fill_situations(known: dict[str, float], usual: dict[str, float]) -> dict[str, float]:
    """Widths of all situations, never narrowing with distance.

    A situation without data gets a width between its neighbours, or the usual one of other laws.
    """
    widths: dict[str, float] = {}
    last = 0.0
    for i, name in enumerate(SITUATIONS):
        farther = [known[s] for s in SITUATIONS[i + 1 :] if s in known]
        between = (last * farther[0]) ** 0.5 if farther and last else usual[name]
        last = max(last, known.get(name, between))
        widths[name] = last
    between = (widths["base"] * widths["class"]) ** 0.5
    return widths | {CALIBRATED: max(widths["base"], known.get(CALIBRATED, between))}
