"""Compute interval widths and transfer exponents from errors on held-out GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.laws.law import SUBSTITUTE_LAWS
from predictors.result import (
    CALIBRATED,
    ENGINE,
    LIBRARY,
    NEW_RELEASE,
    NEW_SOFTWARE,
    NOTHING,
    RELEASE_ALONE,
    SITUATIONS,
    TOLD_LEVELS,
    UNVERSIONED,
    get_carried_key,
    get_cell_key,
    get_width_key,
)
from predictors.training.carried import collect_carried_errors, fit_exponents, pair_kernels
from predictors.training.cells import CELL_COLUMNS, MIN_CELL_KERNELS
from predictors.training.shared_errors import fit_shared_fractions
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
RELEASE = ("engine", "release")
TAILS = (0.05, 0.95)
PSEUDO_KERNELS, PSEUDO_GPUS = 30, 2
"""How many kernels, and GPUs left out, of which the predicted time is the middle, are added to those that were scored.
A single GPU left out says little of the side on which the next one errs."""
MIN_INSIDE, CELL_QUANTILE = 0.85, 0.9
"""The least share of a release's kernels on a GPU inside its law's interval, else it has one of its own that holds as
many as the quantile."""
MAX_UNSEEN_WIDTH = float(np.log(10.0))
"""Of GPUs left out: a wider interval says nothing. MIOpen's depthwise convolutions took ten times as long on an MI300X,
with a newer release, as those of an MI100 and an MI210 tell."""
MAX_ADDED_WIDTH = float(np.log(1.6)) / 2
"""What a margin adds to a half-width at most: an interval is no more than 1.6 times as wide, high over low, as the
scored kernels need."""
MAX_MARGIN = 3.0
"""Of three GPUs or more: where one would need more, the others' kernels (long and in fp32, say) are not its kind."""


_TELL_MORE = {ENGINE: (UNVERSIONED, RELEASE_ALONE), LIBRARY: (UNVERSIONED,), NOTHING: (ENGINE, LIBRARY)}
"""Level -> those at which all of that and more is told."""
Cells = dict[str, dict[str, float]]
"""Law, by vendor -> situation, what is told, release on a GPU or what was carried where -> value."""


class FittedIntervals(NamedTuple):
    """The 90 % intervals of kernels, and the exponents of what is missed on their source.

    Attributes:
        widths: Half-widths, as logarithms; as each of ``TOLD_LEVELS`` the extra half-width, in squares, of kernels of
            whose software less is told.
        centres: How far the middles are above the predicted times, as logarithms.
        exponents: Law -> kinship -> exponent.
        shared: Fractions of the errors that a law's kernels share in a job.
    """

    widths: Cells
    centres: Cells
    exponents: Cells
    shared: Cells


def fit_intervals(rows: pl.DataFrame) -> FittedIntervals:
    """Fit intervals and transfer exponents to rows of ``evaluate.cross_validate``."""
    errors = _collect_errors(rows, "model_us")
    centres: Cells = {}
    intervals: Cells = {}
    for (law, where), of_gpus in errors.items():
        if where in WIDTH_SITUATIONS:
            known, is_seen = (compute_measured_width, True) if where == "base" else (compute_unseen_width, False)
            centre = compute_centre(list(of_gpus.values()), is_seen=is_seen)
            centres.setdefault(law, {})[where] = centre
            intervals.setdefault(law, {})[where] = known(_measure_from(centre, of_gpus.values()))
    usual = {s: float(np.median([w[s] for w in intervals.values() if s in w] or [0.0])) for s in SITUATIONS}
    filled = {law: _fill_situations(known, usual) for law, known in intervals.items()}
    for law, other in _list_single_gpu_laws(errors):
        filled[law] = _borrow_widths(filled[law], filled[other])
        centres[law] = {where: centre for where, centre in centres[law].items() if where == "base"}
    less_told = {level: _collect_errors(rows, get_time_column(level), get_spread_column(level)) for level in VIEWS}
    less_told |= dict.fromkeys(NEW_SOFTWARE, _collect_errors(rows, "model_us", "model_spread"))
    releases = _count_releases(rows)
    for level in TOLD_LEVELS:
        where = level if level in NEW_SOFTWARE else "base"
        for law in filled.keys() & {law for law, situation in less_told[level] if situation == where}:
            known_errors = list(less_told[level][law, where].values())
            centre = 0.0
            # Left-out releases are few: on which side they err says nothing of the next (tried_kernels.md).
            if level not in NEW_SOFTWARE:
                centre = centres[law][level] = compute_centre(known_errors, is_seen=True)
            missed = _measure_from(centre, known_errors)
            left_out = releases.get((law, level), 1)
            filled[law][level] = _compute_extra_width(level, missed, intervals[law]["base"], left_out)
    for extra in filled.values():
        extra |= _fill_levels(extra)
        extra |= _order_levels(extra)
    _add_release_intervals(rows, filled, centres)
    pairs = pair_kernels(rows)
    exponents = fit_exponents(pairs)
    _add_carried_intervals(collect_carried_errors(pairs, exponents), filled, centres)
    return FittedIntervals(filled, centres, exponents, fit_shared_fractions(rows, pairs))


def compute_centre(errors: Sequence[Floats], *, is_seen: bool) -> float:
    """Half-way between the 5 % and the 95 % quantile of log(measured / predicted), in the mean over the GPUs.

    It is shrunk towards the predicted time like `PSEUDO_KERNELS` more kernels of each GPU that say 0, and, for a GPU
    that wasn't seen, like `PSEUDO_GPUS` more of these.

    Args:
        errors: Logarithms of each GPU.
        is_seen: Whether it is for the GPUs themselves, or for the next one.
    """
    middles = [np.mean(np.quantile(each, TAILS)) * each.size / (each.size + PSEUDO_KERNELS) for each in errors]
    count = len(middles)
    return float(np.mean(middles)) * (1.0 if is_seen else count / (count + PSEUDO_GPUS))


def _measure_from(centre: float, errors: Iterable[Floats]) -> list[Floats]:
    """How far errors are from an interval's middle."""
    return [np.abs(each - centre) for each in errors]


def _add_release_intervals(rows: pl.DataFrame, widths: Cells, centres: Cells) -> None:
    """Add the intervals of releases on a GPU of whose kernels its interval holds too few.

    Their middle is shrunk towards the law's like `PSEUDO_KERNELS` more kernels; they are never narrower than the law's.
    """
    base = rows.filter(pl.col("situation") == "base").drop_nulls(["engine", "release"])
    errors = base.with_columns(error=(pl.col("latency_us") / pl.col("model_us")).log()).sort(CELL_COLUMNS)
    for (law, gpu, engine, release), cell in errors.group_by(CELL_COLUMNS, maintain_order=True):
        key, own = get_width_key(str(law), load_hardware(str(gpu)).gpu.vendor), cell["error"].to_numpy()
        centre, width = centres[key]["base"], widths[key]["base"]
        if own.size >= MIN_CELL_KERNELS and np.mean(np.abs(own - centre) <= width) < MIN_INSIDE:
            cell_key = get_cell_key(str(gpu), str(engine), cast("float", release))
            centre += (np.mean(np.quantile(own, TAILS)) - centre) * own.size / (own.size + PSEUDO_KERNELS)
            centres[key][cell_key] = float(centre)
            widths[key][cell_key] = max(width, float(np.quantile(np.abs(own - centre), CELL_QUANTILE)))


def _add_carried_intervals(
    errors: Mapping[tuple[str, tuple[str, str, str]], _Errors], widths: Cells, centres: Cells
) -> None:
    """Add the intervals of what was carried where; in the base of fitted and left-out releases together."""
    for (law, (kinship, where, told)), of_gpus in errors.items():
        if where == NEW_RELEASE:
            continue
        newer = errors.get((law, (kinship, NEW_RELEASE, told)), {}) if where == "base" else {}
        known = [each for each in _pool_errors([of_gpus, newer]).values() if each.size >= MIN_SCORED_KERNELS]
        if known:
            key, is_seen = get_carried_key(kinship, where, told), where == "base"
            centre = centres.setdefault(law, {})[key] = compute_centre(known, is_seen=is_seen)
            width = (compute_measured_width if is_seen else compute_unseen_width)(_measure_from(centre, known))
            widths.setdefault(law, {})[key] = width


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


def _order_levels(extra: Mapping[str, float]) -> dict[str, float]:
    """The levels with less told than others, at least as wide as these."""
    found: dict[str, float] = {}
    for level, nearer in _TELL_MORE.items():
        if level in extra:
            found[level] = max(extra[level], *(found.get(one, extra.get(one, 0.0)) for one in nearer))
    return found


def _count_releases(rows: pl.DataFrame) -> dict[tuple[str, str], int]:
    """(law by vendor, situation) -> releases that were left out."""
    counted = rows.filter(pl.col("situation").is_in(NEW_SOFTWARE)).select("law", "situation", "gpu", *RELEASE).unique()
    vendors = {gpu: load_hardware(gpu).gpu.vendor for gpu in counted["gpu"].unique().to_list()}
    named = counted.with_columns(vendor=pl.col("gpu").replace_strict(vendors, return_dtype=pl.String))
    found = named.group_by("law", "situation", "vendor").agg(pl.struct(RELEASE).n_unique())
    return {(get_width_key(law, vendor), where): count for law, where, vendor, count in found.iter_rows()}


def _compute_extra_width(level: str, errors: Sequence[Floats], base: float, releases: int) -> float:
    """Half-width that is missing in squares where so much is told.

    Of unknown software it is what holds 90 % of a GPU's kernels on average: releases differ more than GPUs do. The next
    release may be worse than those that were left out, by as much as the next GPU.
    """
    if level in NEW_SOFTWARE:
        usual = float(np.mean([np.quantile(of_gpu, 0.9) for of_gpu in errors]))
        needed = _add_margin(usual, 1 + 1 / releases)
    else:
        needed = compute_measured_width(errors)
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
    return _add_margin(_compute_needed_width(errors), min(margin, MANY_KERNELS_MARGIN) if many else margin)


def _add_margin(needed: float, margin: float) -> float:
    return needed + min(needed * (margin - 1), MAX_ADDED_WIDTH)


def compute_unseen_width(errors: Sequence[Floats]) -> float:
    """Half-width, as a logarithm, for the next GPU, from the |log errors| of the kernels of several."""
    tested = _select_tested(errors)
    needed = max(compute_measured_width(errors), _add_margin(_compute_needed_width(tested), compute_margin(tested)))
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


def compute_coverage(rows: pl.DataFrame, *, is_signed: bool = True) -> pl.DataFrame:
    """Share of each GPU's kernels inside their interval; but for the base, one made of the other GPUs alone.

    Args:
        rows: From ``evaluate.cross_validate``.
        is_signed: Whether the intervals have a middle of their own, or the predicted time.

    Returns:
        One row per law, situation and GPU: ``kernels``, ``inside``, ``below`` and ``above``, in percent, and as
        logarithms the ``width`` of the interval, and the one ``needed`` for 90 % of all GPUs' kernels and 80 % of
        those of each.
    """
    errors = _collect_errors(rows, "model_us")
    found = [
        {"law": law, "situation": where, "gpu": gpu, **_describe_coverage(own, *interval), "needed": needed}
        for (law, where), of_gpus in errors.items()
        if where in WIDTH_SITUATIONS
        for needed in (_compute_needed_span(list(of_gpus.values()), is_seen=where == "base", is_signed=is_signed),)
        for gpu, own in of_gpus.items()
        if own.size >= MIN_TESTED_KERNELS
        if (interval := _fit_for_gpu(where, gpu, of_gpus, is_signed=is_signed)) is not None
    ]
    figures = dict.fromkeys(("inside", "below", "above", "width", "needed"), pl.Float64)
    schema = {"law": pl.String, "situation": pl.String, "gpu": pl.String, "kernels": pl.Int64, **figures}
    return pl.DataFrame(found, schema=schema)


def _describe_coverage(errors: Floats, centre: float, width: float) -> dict[str, float]:
    below, above = (100 * float(np.mean(side * (errors - centre) > width)) for side in (-1, 1))
    shares = {"inside": 100 - below - above, "below": below, "above": above}
    return {"kernels": errors.size, **shares, "width": 2 * width}


def _compute_needed_span(errors: Sequence[Floats], *, is_seen: bool, is_signed: bool) -> float:
    centre = is_signed * compute_centre(errors, is_seen=is_seen)
    return 2 * _compute_needed_width(_measure_from(centre, errors))


def _fit_for_gpu(where: str, gpu: str, of_gpus: Mapping[str, Floats], *, is_signed: bool) -> tuple[float, float] | None:
    """The centre and the half-width of the interval to hold a GPU's errors against."""
    if where == "base":
        centre = is_signed * compute_centre(list(of_gpus.values()), is_seen=True)
        return centre, compute_measured_width(_measure_from(centre, of_gpus.values()))
    others = _select_tested([errors for other, errors in of_gpus.items() if other != gpu])
    if not others:
        return None
    centre = is_signed * compute_centre(others, is_seen=False)
    missed = _measure_from(centre, others)
    margin = compute_margin(_select_tested(_measure_from(centre, of_gpus.values())))
    return centre, _add_margin(_compute_needed_width(missed), margin)


def _collect_errors(
    rows: pl.DataFrame, column: str, spread: str | None = None
) -> dict[tuple[str, str], dict[str, Floats]]:
    """(law, situation) -> GPU -> log(measured / predicted) of its kernels; without GPUs that have next to none.

    Of an error, the spread of the software that is told is taken off in squares, as intervals have it on top.

    The GPUs of each vendor have separate widths, ``get_width_key``: with the errors of an MI300X's short norms, an
    A100's intervals would be five times as wide.
    """
    error, known = (
        (pl.col("latency_us") / pl.col(column)).log(),
        pl.col(spread).fill_null(0.0) if spread else pl.lit(0.0),
    )
    errors = rows.drop_nulls(column).with_columns(error=error.sign() * (error**2 - known**2).clip(0.0).sqrt())
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
