"""What errors on GPUs that were held out ask for: widths of intervals, exponents of transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.fitted import machine_of
from predictors.intervals import CALIBRATED, SITUATIONS, STACK, of_vendor
from predictors.law import STAND_INS
from predictors.training.evaluate import OF_A_STACK

LEAST_SCORED = 5
"""A GPU with fewer scored kernels of a law says nothing about its intervals."""
LEAST_TESTED = 12
"""Nor does one with fewer ask for more than all GPUs need on average, or test whether that will do for the next."""
VERSIONS = "one version"
"""As a situation: measured GPUs, of which each version's time counts."""
MOST_MARGIN = 3.0
"""Of three GPUs or more: where one would need more, the others' kernels (long and in fp32, say) are not its kind."""


def summarise(rows: pl.DataFrame) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Interval widths and transfer exponents from scored rows.

    Returns:
        law, by vendor -> situation -> half-width of a 90 % interval, as a logarithm, and as `STACK` what kernels of an
        unnamed framework have on top, in squares; and law -> kinship -> exponent.
    """
    errors = _errors(rows, "model_us")
    intervals: dict[str, dict[str, float]] = {}
    for (law, where), of_gpus in errors.items():
        known = measured_interval if where in ("base", VERSIONS) else interval
        intervals.setdefault(law, {})[where] = known(list(of_gpus.values()))
    usual = {s: float(np.median([w[s] for w in intervals.values() if s in w] or [0.0])) for s in SITUATIONS}
    filled = {law: _filled(known, usual) for law, known in intervals.items()}
    filled |= {law: _borrowed(filled[law], filled[other]) for law, other in _measured_once(errors)}
    for (law, where), of_gpus in _errors(rows, "nameless_us").items():
        if where == "base":
            more = measured_interval(list(of_gpus.values())) ** 2 - intervals[law][where] ** 2
            filled[law][STACK] = float(np.sqrt(max(more, 0.0)))
    return filled, _exponents(rows)


def _measured_once(errors: Mapping[tuple[str, str], Mapping[str, Floats]]) -> list[tuple[str, str]]:
    """Laws of which one of NVIDIA's GPUs was measured, with those that stand in for them and know several.

    Without that GPU a fit knows no GPU of its vendor, which is no measure of what the weights that have it miss.
    """
    gpus = {law: len(of_gpus) for (law, where), of_gpus in errors.items() if where == "base"}
    return [(law, other) for law, other in STAND_INS.items() if gpus.get(law) == 1 < gpus.get(other, 0)]


def _borrowed(own: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Widths away from the base: what the law that stands in has, and what its own kernels miss in the base."""
    away = {where: float(np.hypot(own["base"], other[where])) for where in (*SITUATIONS[1:], CALIBRATED)}
    return {**own, **away}


def measured_interval(errors: Sequence[Floats]) -> float:
    """Half-width, as a logarithm, for the GPUs themselves that the |log errors| are of.

    What 90 % of all their other kernels need, each GPU counting the same, and 80 % of each single GPU's, times 1 + 1 /
    their number.
    """
    return _needed(errors) * (1 + 1 / len(errors))


def interval(errors: Sequence[Floats]) -> float:
    """Half-width, as a logarithm, for the next GPU, from the |log errors| of the kernels of several."""
    tested = _tested(errors)
    return max(measured_interval(errors), _needed(tested) * margin(tested))


def margin(errors: Sequence[Floats]) -> float:
    """How much wider than what the GPUs needed, as the next one may be worse than any of them.

    1 + 1 / their number, and no less than what keeps three quarters of each GPU's kernels inside the width that the
    others need, up to `MOST_MARGIN`.
    """
    others = [[e for other, e in enumerate(errors) if other != own] for own in range(len(errors))]
    ratios = [float(np.quantile(own, 0.78)) / _needed(rest) for own, rest in zip(errors, others, strict=True) if rest]
    if not ratios:
        return 2.0
    return max(1 + 1 / len(errors), min(max(ratios), MOST_MARGIN if len(errors) > 2 else np.inf))


def _tested(errors: Sequence[Floats]) -> list[Floats]:
    return [e for e in errors if e.size >= LEAST_TESTED] or list(errors)


def _needed(errors: Sequence[Floats]) -> float:
    worst = max(float(np.quantile(e, 0.8)) for e in _tested(errors))
    usual = float(np.mean([np.quantile(e, 0.9) for e in errors]))
    return max(usual, worst)


def coverage(rows: pl.DataFrame) -> pl.DataFrame:
    """Share of each GPU's kernels inside their interval; but for the base, one made of the other GPUs alone.

    Returns:
        One row per law, situation and GPU: `inside`, in percent.
    """
    found = [
        {"law": law, "situation": where, "gpu": gpu, "inside": 100 * float(np.mean(own <= limit))}
        for (law, where), of_gpus in _errors(rows, "model_us").items()
        if where != VERSIONS
        for gpu, own in of_gpus.items()
        if own.size >= LEAST_TESTED
        if (limit := _limit(where, gpu, of_gpus)) is not None
    ]
    schema = {"law": pl.String, "situation": pl.String, "gpu": pl.String, "inside": pl.Float64}
    return pl.DataFrame(found, schema=schema)


def _limit(where: str, gpu: str, of_gpus: Mapping[str, Floats]) -> float | None:
    """The half-width to hold a GPU's errors against."""
    if where == "base":
        return measured_interval(list(of_gpus.values()))
    others = _tested([errors for other, errors in of_gpus.items() if other != gpu])
    return _needed(others) * margin(_tested(list(of_gpus.values()))) if others else None


def _errors(rows: pl.DataFrame, column: str) -> dict[tuple[str, str], dict[str, Floats]]:
    """(law, situation) -> GPU -> |log error| of its kernels; without GPUs that have next to none.

    Kernels that are known by their stack are in here under their framework. Each vendor's GPUs have a law of their
    own here, `of_vendor`: what an MI300X's short norms need would make an A100's five times as wide.
    """
    rows = _as_versions(rows.filter(~OF_A_STACK))
    errors = rows.with_columns(error=(pl.col(column) / pl.col("latency_us")).log().abs())
    found: dict[tuple[str, str], dict[str, Floats]] = {}
    for (law, where, gpu), part in errors.sort("law", "situation", "gpu").group_by(
        "law", "situation", "gpu", maintain_order=True
    ):
        if part.height >= LEAST_SCORED:
            key = of_vendor(str(law), machine_of(str(gpu)).gpu.vendor), str(where)
            found.setdefault(key, {})[str(gpu)] = part["error"].drop_nulls().to_numpy()
    return {key: of_gpus for key, of_gpus in found.items() if all(e.size for e in of_gpus.values())}


def _as_versions(rows: pl.DataFrame) -> pl.DataFrame:
    """Scored rows with the time of one version, in turn, but on GPUs that were themselves measured.

    What a table has of those is the median of the versions that ran there. On any other GPU one of them runs, or
    another: which can't be known. `VERSIONS` are the measured ones once more, so.
    """
    own = pl.col("situation").is_in(["base", CALIBRATED])
    versions = pl.col("versions_us")
    one = versions.list.get(pl.col("shape") % versions.list.len(), null_on_oob=True)
    each = rows.with_columns(latency_us=pl.coalesce(one, "latency_us"))
    again = each.filter(situation="base").with_columns(situation=pl.lit(VERSIONS))
    return pl.concat([rows.filter(own), each.filter(~own), again])


def _exponents(rows: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Law -> kinship -> how much of what the model missed on one GPU it misses on the other."""
    residual = (pl.col("latency_us") / pl.col("model_us")).log().clip(-1, 1)
    paired = rows.filter(pl.col("source_ratio").is_not_null(), pl.col("situation") != "base")
    x = pl.col("source_ratio").clip(-1, 1)
    slope = (x * residual).sum() / ((x * x).sum() + 1e-9)
    slopes = paired.group_by("law", "kinship").agg(slope=slope, n=pl.len())
    transfer: dict[str, dict[str, float]] = {}
    enough = slopes.filter(pl.col("n") > 200).sort("law").select("law", "kinship", "slope")
    for law, kinship, value in enough.iter_rows():
        transfer.setdefault(law, {})[kinship] = float(np.clip(value, 0.0, 1.0))
    return transfer


def _filled(known: dict[str, float], usual: dict[str, float]) -> dict[str, float]:
    """Widths of all situations, never narrowing with distance, and on GPUs not measured no less than versions need.

    What wasn't seen is between its neighbours, or as wide as other laws usually are there.
    """
    widths: dict[str, float] = {}
    last = 0.0
    for i, name in enumerate(SITUATIONS):
        farther = [known[s] for s in SITUATIONS[i + 1 :] if s in known]
        between = (last * farther[0]) ** 0.5 if farther and last else usual[name]
        last = max(last, known.get(name, between))
        widths[name] = last
        last = max(last, known.get(VERSIONS, 0.0))
    between = (widths["base"] * widths["class"]) ** 0.5
    return widths | {CALIBRATED: max(widths["base"], known.get(CALIBRATED, between))}
