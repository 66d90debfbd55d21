"""Score what a measured time on one GPU says of the same kernel on another: exponents and widths of intervals.

Both GPUs are predicted with what a trace tells of the software. For example a kernel took 1.3 times as long as
predicted on an H100 and 1.2 times as long on an H200; with an exponent of 0.8 it is predicted 1.3^0.8 = 1.23 times as
long there, and 0.03 are missed, as a logarithm.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats
from predictors.kernel_identity import IDENTITY_COLUMNS
from predictors.result import NEW_RELEASE, get_width_key
from predictors.training.evaluate import tell_as_traces
from predictors.transfer import classify_kinship
from predictors.weights_file import load_hardware

MIN_PAIRS = 200
"""Pairs of a law and a kinship from which an exponent is fitted."""
MAX_LOG_ERROR = 1.0
CARRIED_KINSHIPS = ("sibling", "class", "other")
"""GPUs between which what is missed is carried, with intervals of its own."""
_KERNEL = ("law", "situation", "shape", *IDENTITY_COLUMNS, "dtype")
_PAIR_COLUMNS = ("law", "situation", "gpu", *IDENTITY_COLUMNS, "kinship", "told", "missed", "missed_there")


def pair_kernels(rows: pl.DataFrame) -> pl.DataFrame:
    """Pair scored kernels with the same kernels on other GPUs.

    Args:
        rows: From ``evaluate.cross_validate``.

    Returns:
        One row per pair: ``law``, ``situation`` and ``gpu`` of the target, the software's identity, ``kinship``, what
        is ``told`` of it, and the logarithms of measured over predicted time, ``missed`` on the target and
        ``missed_there`` on the source.
    """
    missed = (pl.col("latency_us") / pl.col("model_us")).log()
    told = tell_as_traces(rows).with_columns(missed=missed)
    left_out = told.filter(pl.col("source_ratio").is_not_null()).rename({"source_ratio": "missed_there"})
    fitted = told.filter(pl.col("situation").is_in(["base", NEW_RELEASE])).select(*_KERNEL, "gpu", "told", "missed")
    there = fitted.drop("told").rename({"gpu": "source", "missed": "missed_there"})
    pairs = fitted.join(there, on=_KERNEL, nulls_equal=True).filter(pl.col("gpu") != pl.col("source"))
    both = (left_out, pairs.with_columns(kinship=_classify_pairs(pairs)))
    return pl.concat([one.select(_PAIR_COLUMNS) for one in both])


def _classify_pairs(pairs: pl.DataFrame) -> pl.Series:
    """The kinship of each pair's GPUs."""
    boards = pairs.select("source", "gpu").unique()
    kinds = [classify_kinship(load_hardware(there), load_hardware(here)) for there, here in boards.iter_rows()]
    known = boards.with_columns(kinship=pl.Series(kinds, dtype=pl.String))
    return pairs.select("source", "gpu").join(known, on=["source", "gpu"], how="left", maintain_order="left")["kinship"]


def fit_exponents(pairs: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Law -> kinship -> how much of what the model missed on one GPU it misses on the other.

    Pairs of the base don't count: of their software and GPUs the fit knows what a trace's kernels don't tell.
    """
    here, there = (pl.col(name).clip(-MAX_LOG_ERROR, MAX_LOG_ERROR) for name in ("missed", "missed_there"))
    slope = (here * there).sum() / ((there * there).sum() + 1e-9)
    unknown = pairs.filter(pl.col("situation") != "base")
    slopes = unknown.group_by("law", "kinship").agg(slope=slope, n=pl.len())
    exponents: dict[str, dict[str, float]] = {}
    for law, kinship, value in (
        slopes.filter(pl.col("n") > MIN_PAIRS).sort("law").select("law", "kinship", "slope").iter_rows()
    ):
        exponents.setdefault(law, {})[kinship] = float(np.clip(value, 0.0, 1.0))
    return exponents


def list_carried_errors(pairs: pl.DataFrame, exponents: dict[str, dict[str, float]] | None = None) -> pl.DataFrame:
    """Return the pairs of one vendor's GPUs with the ``error`` of the carried time, as a logarithm.

    Args:
        pairs: From ``pair_kernels``.
        exponents: From ``fit_exponents``; laws without one are left out.
    """
    exponents = fit_exponents(pairs) if exponents is None else exponents
    known = pl.DataFrame(
        [(law, kinship, value) for law, of in exponents.items() for kinship, value in of.items()],
        schema={"law": pl.String, "kinship": pl.String, "exponent": pl.Float64},
        orient="row",
    )
    error = pl.col("missed") - pl.col("exponent") * pl.col("missed_there")
    alike = pairs.filter(pl.col("kinship").is_in(CARRIED_KINSHIPS))
    return alike.join(known, on=["law", "kinship"]).with_columns(error=error)


def collect_carried_errors(
    pairs: pl.DataFrame, exponents: dict[str, dict[str, float]]
) -> dict[tuple[str, tuple[str, str, str]], dict[str, Floats]]:
    """(law, by vendor; kinship, target and what is told) -> GPU -> log error, of fitted and new releases apart.

    Args:
        pairs: From ``pair_kernels``.
        exponents: From ``fit_exponents``; laws without one are left out.
    """
    errors = list_carried_errors(pairs, exponents)
    found: dict[tuple[str, tuple[str, str, str]], dict[str, Floats]] = {}
    keys = ("law", "kinship", "situation", "told", "gpu")
    for (law, *what, gpu), part in errors.sort(keys).group_by(keys, maintain_order=True):
        vendor, (kinship, where, told) = load_hardware(str(gpu)).gpu.vendor, map(str, what)
        key = get_width_key(str(law), vendor), (kinship, where, told)
        found.setdefault(key, {})[str(gpu)] = part["error"].to_numpy()
    return found
