"""Split what the model misses into a part that a law's kernels share and one of each kernel: variance components.

All kernels of one law that one release of a library runs on a GPU are a group. What they share is the second moment of
the groups' means, less what kernels alone make of it. For example a group's kernels are missed by 0.1, 0.2 and 0.3, as
logarithms: 0.2 of it, and so 0.84 of the whole (0.04 - 0.01/3 of 0.047, as a root), is the same for all.
"""

from __future__ import annotations

import polars as pl

from predictors.result import (
    CALIBRATED,
    NEW_RELEASE,
    NEW_SOFTWARE,
    SHARED_ERROR_FRACTION,
    SITUATIONS,
    get_carried_key,
    get_width_key,
)
from predictors.training.carried import list_carried_errors
from predictors.training.views import VIEWS, get_time_column
from predictors.transfer import clip_errors
from predictors.weights_file import load_hardware

STACK = ("gpu", "framework", "engine", "release")
MIN_GROUP_KERNELS = 10
"""Kernels of a group that tell their mean."""
PSEUDO_GROUPS = 3
"""How many groups are added to those of a law that share as much as laws' median, or what is assumed without any: a
law of few groups has constants that follow them, so that they seem to share nothing."""
MAX_LOG_ERROR = 1.5
"""A kernel missed by more, as a logarithm, counts as missed by this."""


def fit_shared_fractions(rows: pl.DataFrame, pairs: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Fit which fraction of a kernel's error its law's other kernels in a job share.

    Args:
        rows: From ``evaluate.cross_validate``.
        pairs: From ``carried.pair_kernels``.

    Returns:
        Law, by vendor -> situation, what is told or what was carried where -> fraction of the error's size.
    """
    groups = pl.concat([_group_errors(part) for part in (*_list_errors(rows), _list_carried(pairs))])
    moments = groups.group_by("law", "cell").agg(
        count=pl.len(), shared=(pl.col("between").mean() / pl.col("total").mean()).clip(0.0, 1.0)
    )
    usual = moments.with_columns(usual=pl.col("shared").median().over("cell").clip(SHARED_ERROR_FRACTION**2, 1.0))
    count = pl.col("count")
    shrunk = (count * pl.col("shared") + PSEUDO_GROUPS * pl.col("usual")) / (count + PSEUDO_GROUPS)
    found: dict[str, dict[str, float]] = {}
    for law, cell, fraction in usual.sort("law", "cell").select("law", "cell", shrunk.sqrt()).iter_rows():
        found.setdefault(law, {})[cell] = fraction
    return found


def correlate_laws(rows: pl.DataFrame) -> pl.DataFrame:
    """Correlate what laws' kernels share on one GPU with what other laws' share: a row per situation left out.

    Args:
        rows: From ``evaluate.cross_validate``.

    Returns:
        ``situation``, ``correlation`` and ``pairs``, each of a GPU and two laws.
    """
    error = (pl.col("latency_us") / pl.col("model_us")).log().clip(-MAX_LOG_ERROR, MAX_LOG_ERROR)
    left_out = rows.filter(pl.col("situation").is_in(SITUATIONS[1:]))
    groups = left_out.group_by("situation", "gpu", "law").agg(pl.len(), mean=error.mean() / (error**2).mean().sqrt())
    means = groups.filter(pl.col("len") >= MIN_GROUP_KERNELS).select("situation", "gpu", "law", "mean")
    pairs = means.join(means, on=["situation", "gpu"]).filter(pl.col("law") < pl.col("law_right"))
    own, other = pl.col("mean"), pl.col("mean_right")
    size = ((own**2).mean() * (other**2).mean()).sqrt()
    return pairs.group_by("situation").agg(correlation=(own * other).mean() / size, pairs=pl.len()).sort("situation")


def fit_slowness_error(pairs: pl.DataFrame) -> pl.DataFrame:
    """Fit how far a stack's carried times are off for each unit of what the model misses of the stack on the source.

    The squares of the means of groups are taken as a constant and a multiple of the square of what is missed there,
    within a factor of two; by least squares.

    Args:
        pairs: From ``carried.pair_kernels``.

    Returns:
        One row per ``kinship``: ``error`` of each unit, the ``rest`` without any, both standard deviations of
        logarithms, and the ``groups``.
    """
    error = pl.col("error").clip(-MAX_LOG_ERROR, MAX_LOG_ERROR).mean()
    by = ("law", "kinship", "situation", "told", *STACK)
    means = (
        list_carried_errors(pairs)
        .group_by(by)
        .agg(pl.len(), square=error**2, there=clip_errors(pl.col("missed_there")).mean() ** 2)
    )
    slope = pl.cov("square", "there") / pl.col("there").var()
    fitted = (
        means.filter(pl.col("len") >= MIN_GROUP_KERNELS)
        .group_by("kinship")
        .agg(slope.alias("slope"), rest=pl.col("square").mean() - slope * pl.col("there").mean(), groups=pl.len())
    )
    return fitted.select(
        "kinship", pl.col("slope").clip(0.0).sqrt().alias("error"), pl.col("rest").clip(0.0).sqrt(), "groups"
    ).sort("kinship")


def _list_errors(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """List the errors of each situation, and of kernels of which less is told."""
    known = pl.col("situation").is_in([*SITUATIONS, CALIBRATED, *NEW_SOFTWARE])
    errors = [_measure(rows.filter(known), "model_us", pl.col("situation"))]
    base = rows.filter(pl.col("situation") == "base")
    return errors + [_measure(base, get_time_column(view), pl.lit(view)) for view in VIEWS]


def _measure(rows: pl.DataFrame, column: str, cell: pl.Expr) -> pl.DataFrame:
    error = (pl.col("latency_us") / pl.col(column)).log()
    return rows.drop_nulls(column).select("law", *STACK, cell=cell, error=error)


def _list_carried(pairs: pl.DataFrame) -> pl.DataFrame:
    """List what is missed of carried times; in the base of fitted and left-out releases together."""
    where = pl.col("situation").replace(NEW_RELEASE, "base")
    errors = list_carried_errors(pairs).with_columns(situation=where)
    cells = errors.select("kinship", "situation", "told").unique()
    names = [get_carried_key(*cell) for cell in cells.iter_rows()]
    named = cells.with_columns(cell=pl.Series(names, dtype=pl.String))
    return errors.join(named, on=["kinship", "situation", "told"]).select("law", *STACK, "cell", "error")


def _group_errors(errors: pl.DataFrame) -> pl.DataFrame:
    """Return of each group the second moment of what is shared, and of all; laws by vendor."""
    error = pl.col("error").clip(-MAX_LOG_ERROR, MAX_LOG_ERROR)
    groups = errors.group_by("law", "cell", *STACK).agg(
        pl.len(), between=error.mean() ** 2 - error.var() / pl.len(), total=(error**2).mean()
    )
    laws = groups.select("law", "gpu").unique()
    keys = [get_width_key(law, load_hardware(gpu).gpu.vendor) for law, gpu in laws.iter_rows()]
    named = laws.with_columns(key=pl.Series(keys, dtype=pl.String))
    many = groups.filter(pl.col("len") >= MIN_GROUP_KERNELS).join(named, on=["law", "gpu"])
    return many.select("cell", "between", "total", law="key")
