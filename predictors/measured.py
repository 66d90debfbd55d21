"""Kernels measured on a GPU to calibrate it with: which of them are worth keeping, and what they change."""

from __future__ import annotations

import polars as pl

from predictors.calibrate import calibrate
from predictors.columns import prepare
from predictors.errors import KernelTableError
from predictors.fitted import Weights, load_weights
from predictors.gpu import Gpu
from predictors.kernels import COLUMNS, INTEGERS
from predictors.machine import machine
from predictors.model import model, split

FOLDS = 5
MOST_KERNELS = 200
"""Of one law; more add little and cost time in every prediction."""
NOTICEABLE = 1.0
"""Points of error by which measurements may make predictions worse before they are left out."""
HOST_FAMILIES = ("memcpy",)
"""How fast these run is up to the host."""
_OF_A_LAUNCH = ("measured_us", "blocks", "threads_per_block", "registers_per_thread", "shared_memory_bytes", "tile_m",
                "tile_n", "split_k")  # fmt: skip


def distinct(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """The measured kernels worth keeping: each distinct one once, with its median time.

    Args:
        kernels: a kernel table with `measured_us`, a row per launch.
        gpu: where they were measured.

    Returns:
        The columns of the kernel table that hold something; of each law the `MOST_KERNELS` that took longest in all.

    Raises:
        KernelTableError: no row has both a shape and a measurement.
    """
    table = prepare(kernels, machine(gpu))
    usable = table.filter(
        pl.col("law").is_not_null(), pl.col("measured_us") > 0, ~pl.col("family").is_in(HOST_FAMILIES)
    ).with_columns(dtype="asked")
    if usable.is_empty():
        raise KernelTableError("no kernel has both a shape and a measured time")
    integers = [name for name in INTEGERS if name not in _OF_A_LAUNCH]
    key = ["law", *(name for name in COLUMNS if name not in _OF_A_LAUNCH)]
    alike = usable.group_by(key, maintain_order=True).agg(
        pl.col("measured_us").median(), in_all=pl.col("measured_us").sum()
    )
    kept = alike.filter(pl.col("in_all").rank("ordinal", descending=True).over("law") <= MOST_KERNELS)
    held = [name for name in kept.columns if name in COLUMNS and kept[name].null_count() < kept.height]
    return kept.select(held).with_columns(pl.col([name for name in integers if name in held]).cast(pl.Int64))


def check(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """How far off measured kernels are predicted without any of them, and each fifth of them with the others.

    Args:
        kernels: from `distinct`.
        gpu: where they were measured.

    Returns:
        One row per law: `law`, `kernels`, and `before` and `after`, medians of |error| in percent; `after` is null
        where a law has fewer than five kernels; `sharpens`, whether they don't make predictions worse; one
        alone does: from the patches that a transformer embeds, other convolutions came out three times as slow.
    """
    weights = load_weights()
    rows = kernels.with_columns(fold=pl.int_range(pl.len()) % FOLDS)
    parts = [
        _errors(part, gpu, weights, calibrate(rest, gpu, weights))
        for fold in range(FOLDS)
        if (part := rows.filter(pl.col("fold") == fold)).height and (rest := rows.filter(pl.col("fold") != fold)).height
    ]
    errors = pl.concat(parts or [_errors(rows, gpu, weights, weights)])
    enough = pl.len() >= FOLDS
    return (
        errors.group_by("law")
        .agg(pl.len().alias("kernels"), pl.col("before").median(), pl.when(enough).then(pl.col("after").median()))
        .sort("law")
        .with_columns(sharpens=(pl.col("after") <= pl.col("before") + NOTICEABLE).fill_null(pl.col("kernels") > 1))
    )


def sharpening(kernels: pl.DataFrame, errors: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """Those of the measured kernels that don't make predictions worse.

    Args:
        kernels: from `distinct`.
        errors: from `check`.
        gpu: where they were measured.
    """
    laws = errors.filter("sharpens")["law"]
    return kernels.filter(prepare(kernels, machine(gpu))["law"].is_in(laws.implode()))


def _errors(kernels: pl.DataFrame, gpu: Gpu, without: Weights, with_others: Weights) -> pl.DataFrame:
    table = prepare(kernels, machine(gpu))
    rows = split(table)
    times = {"before": without, "after": with_others}
    return table.select(
        "law",
        *(
            (
                (pl.lit(pl.Series(model(rows, machine(gpu), weights).time_us)) / pl.col("measured_us") - 1).abs() * 100
            ).alias(name)
            for name, weights in times.items()
        ),
    )
