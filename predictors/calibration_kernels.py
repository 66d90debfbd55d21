"""Select kernels to calibrate a GPU with, and measure how they change the predictions."""

from __future__ import annotations

import polars as pl

from predictors.calibrate import calibrate
from predictors.columns import prepare_kernels
from predictors.errors import KernelTableError
from predictors.gpu import Gpu
from predictors.hardware import derive_hardware
from predictors.kernels import INTEGER_COLUMNS, KERNEL_COLUMNS
from predictors.model import evaluate_kernels, split_by_law
from predictors.weights_file import Weights, load_weights

CROSS_VALIDATION_FOLDS = 5
MAX_KERNELS_PER_LAW = 200
"""Of one law; more add little and cost time in every prediction."""
MAX_ERROR_INCREASE_POINTS = 1.0
"""Points of error by which measurements may make predictions worse before they are left out."""
HOST_BOUND_FAMILIES = ("memcpy",)
"""How fast these run is up to the host."""
_LAUNCH_COLUMNS = ("measured_us", "blocks", "threads_per_block", "registers_per_thread", "shared_memory_bytes",
"tile_m",
                "tile_n", "split_k")  # fmt: skip


def select_distinct_kernels(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """The measured kernels worth keeping: each distinct one once, with its median time.

    Args:
        kernels: Kernel table with ``measured_us``, one row per launch.
        gpu: GPU that they were measured on.

    Returns:
        Non-empty columns of the kernel table. Of each law, the ``MAX_KERNELS_PER_LAW`` kernels with the largest total
        time.

    Raises:
        KernelTableError: No row has both a shape and a measurement.
    """
    table = prepare_kernels(kernels, derive_hardware(gpu))
    usable = table.filter(
        pl.col("law").is_not_null(), pl.col("measured_us") > 0, ~pl.col("family").is_in(HOST_BOUND_FAMILIES)
    ).with_columns(dtype="asked")
    if usable.is_empty():
        raise KernelTableError("no kernel has both a shape and a measured time")
    integers = [name for name in INTEGER_COLUMNS if name not in _LAUNCH_COLUMNS]
    key = ["law", *(name for name in KERNEL_COLUMNS if name not in _LAUNCH_COLUMNS)]
    alike = usable.group_by(key, maintain_order=True).agg(
        pl.col("measured_us").median(), in_all=pl.col("measured_us").sum()
    )
    kept = alike.filter(pl.col("in_all").rank("ordinal", descending=True).over("law") <= MAX_KERNELS_PER_LAW)
    held = [name for name in kept.columns if name in KERNEL_COLUMNS and kept[name].null_count() < kept.height]
    return kept.select(held).with_columns(pl.col([name for name in integers if name in held]).cast(pl.Int64))


def cross_validate_calibration(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """How far off measured kernels are predicted without any of them, and each fifth of them with the others.

    Args:
        kernels: From ``select_distinct_kernels``.
        gpu: GPU that they were measured on.

    Returns:
        One row per law: ``law``, ``kernels``, ``before`` and ``after`` (medians of |error| in percent; ``after`` is
        null for fewer than five kernels), ``sharpens`` (the kernels do not make predictions worse). A single kernel
        never sharpens: calibrated with a transformer's patch embedding, other convolutions came out three times as
        slow.
    """
    weights = load_weights()
    rows = kernels.with_columns(fold=pl.int_range(pl.len()) % CROSS_VALIDATION_FOLDS)
    parts = [
        _compute_errors(part, gpu, weights, calibrate(rest, gpu, weights))
        for fold in range(CROSS_VALIDATION_FOLDS)
        if (part := rows.filter(pl.col("fold") == fold)).height and (rest := rows.filter(pl.col("fold") != fold)).height
    ]
    errors = pl.concat(parts or [_compute_errors(rows, gpu, weights, weights)])
    enough = pl.len() >= CROSS_VALIDATION_FOLDS
    return (
        errors.group_by("law")
        .agg(pl.len().alias("kernels"), pl.col("before").median(), pl.when(enough).then(pl.col("after").median()))
        .sort("law")
        .with_columns(
            sharpens=(pl.col("after") <= pl.col("before") + MAX_ERROR_INCREASE_POINTS).fill_null(pl.col("kernels") > 1)
        )
    )


def select_improving_kernels(kernels: pl.DataFrame, errors: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """Those of the measured kernels that don't make predictions worse.

    Args:
        kernels: From ``select_distinct_kernels``.
        errors: From ``cross_validate_calibration``.
        gpu: GPU that they were measured on.
    """
    laws = errors.filter("sharpens")["law"]
    return kernels.filter(prepare_kernels(kernels, derive_hardware(gpu))["law"].is_in(laws.implode()))


def _compute_errors(kernels: pl.DataFrame, gpu: Gpu, without: Weights, with_others: Weights) -> pl.DataFrame:
    table = prepare_kernels(kernels, derive_hardware(gpu))
    rows = split_by_law(table)
    times = {"before": without, "after": with_others}
    return table.select(
        "law",
        *(
            (
                (
                    pl.lit(pl.Series(evaluate_kernels(rows, derive_hardware(gpu), weights).time_us))
                    / pl.col("measured_us")
                    - 1
                ).abs()
                * 100
            ).alias(name)
            for name, weights in times.items()
        ),
    )
