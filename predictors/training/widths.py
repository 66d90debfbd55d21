"""Compute interval widths and transfer exponents from errors on held-out GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.intervals import CALIBRATED, SITUATIONS, UNNAMED_FRAMEWORK, get_width_key
from predictors.laws.law import SUBSTITUTE_LAWS
from predictors.training.evaluate import IS_STACK_DUPLICATE
from predictors.weights_file import load_hardware

MIN_SCORED_KERNELS = 5
"""A GPU with fewer scored kernels of a law says nothing about its intervals."""
MIN_TESTED_KERNELS = 12
"""Nor does one with fewer ask for more than all GPUs need on average, or test whether that will do for the next."""
ONE_VERSION = "one version"
"""As a situation: measured GPUs, of which each version's time counts."""
MAX_MARGIN = 3.0
"""Of three GPUs or more: where one would need more, the others' kernels (long and in fp32, say) are not its kind."""


def compute_widths_and_exponents(rows: pl.DataFrame) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Interval widths and transfer exponents from scored rows.

    Returns:
        Law, by vendor -> situation -> half-width of a 90 % interval, as a logarithm, and as ``UNNAMED_FRAMEWORK`` the
        extra half-width, in squares, of kernels without a framework name; and law -> kinship -> exponent.
    """
    errors = _collect_errors(rows, "model_us")
    intervals: dict[str, dict[str, float]] = {}
    for (law, where), of_gpus in errors.items():
        known = compute_measured_width if where in ("base", ONE_VERSION) else compute_unseen_width
        intervals.setdefault(law, {})[where] = known(list(of_gpus.values()))
    usual = {s: float(np.median([w[s] for w in intervals.values() if s in w] or [0.0])) for s in SITUATIONS}
    filled = {law: _fill_situations(known, usual) for law, known in intervals.items()}
    filled |= {law: _borrow_widths(filled[law], filled[other]) for law, other in _list_single_gpu_laws(errors)}
    for (law, where), of_gpus in _collect_errors(rows, "nameless_us").items():
        if where == "base":
            more = compute_measured_width(list(of_gpus.values())) ** 2 - intervals[law][where] ** 2
            filled[law][UNNAMED_FRAMEWORK] = float(np.sqrt(max(more, 0.0)))
    return filled, _fit_exponents(rows)


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
    times 1 + 1 / number of GPUs.
    """
    return _compute_needed_width(errors) * (1 + 1 / len(errors))


def compute_unseen_width(errors: Sequence[Floats]) -> float:
    """Half-width, as a logarithm, for the next GPU, from the |log errors| of the kernels of several."""
    tested = _select_tested(errors)
    return max(compute_measured_width(errors), _compute_needed_width(tested) * compute_margin(tested))


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
        if where != ONE_VERSION
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


def _collect_errors(rows: pl.DataFrame, column: str) -> dict[tuple[str, str], dict[str, Floats]]:
    """(law, situation) -> GPU -> |log error| of its kernels; without GPUs that have next to none.

    Kernels with a known stack are counted under their framework. The GPUs of each vendor have separate widths,
    ``get_width_key``: with the errors of an MI300X's short norms, an A100's intervals would be five times as wide.
    """
    rows = _split_versions(rows.filter(~IS_STACK_DUPLICATE))
    errors = rows.with_columns(error=(pl.col(column) / pl.col("latency_us")).log().abs())
    found: dict[tuple[str, str], dict[str, Floats]] = {}
    for (law, where, gpu), part in errors.sort("law", "situation", "gpu").group_by(
        "law", "situation", "gpu", maintain_order=True
    ):
        if part.height >= MIN_SCORED_KERNELS:
            key = get_width_key(str(law), load_hardware(str(gpu)).gpu.vendor), str(where)
            found.setdefault(key, {})[str(gpu)] = part["error"].drop_nulls().to_numpy()
    return {key: of_gpus for key, of_gpus in found.items() if all(e.size for e in of_gpus.values())}


def _split_versions(rows: pl.DataFrame) -> pl.DataFrame:
    """Scored rows with the time of one version, in turn, but on GPUs that were themselves measured.

    Measured GPUs have the median of the versions that ran there. On any other GPU, one of the versions runs, and nobody
    knows which one. ``ONE_VERSION`` are the measured GPUs once more, with single versions.
    """
    own = pl.col("situation").is_in(["base", CALIBRATED])
    versions = pl.col("versions_us")
    one = versions.list.get(pl.col("shape") % versions.list.len(), null_on_oob=True)
    each = rows.with_columns(latency_us=pl.coalesce(one, "latency_us"))
    again = each.filter(situation="base").with_columns(situation=pl.lit(ONE_VERSION))
    return pl.concat([rows.filter(own), each.filter(~own), again])


def _fit_exponents(rows: pl.DataFrame) -> dict[str, dict[str, float]]:
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


def _fill_situations(known: dict[str, float], usual: dict[str, float]) -> dict[str, float]:
    """Widths of all situations, never narrowing with distance, and on GPUs not measured no less than versions need.

    Unmeasured GPUs have at least the width of single versions. A situation without data gets a width between its
    neighbours, or the usual one of other laws.
    """
    widths: dict[str, float] = {}
    last = 0.0
    for i, name in enumerate(SITUATIONS):
        farther = [known[s] for s in SITUATIONS[i + 1 :] if s in known]
        between = (last * farther[0]) ** 0.5 if farther and last else usual[name]
        last = max(last, known.get(name, between))
        widths[name] = last
        last = max(last, known.get(ONE_VERSION, 0.0))
    between = (widths["base"] * widths["class"]) ** 0.5
    return widths | {CALIBRATED: max(widths["base"], known.get(CALIBRATED, between))}
