"""Kernels of `make on-gpu`: cold and short, held on the hot GPU, by the profiler, and predicted from their shapes.

The tables of predictors/training/measured, none of which the weights know. Held for a while, tensor-core kernels
reach the board's power limit, and the clock falls; what moves memory keeps its time.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from predictors import load_gpu, predict
from tests.validation.study import MEASURED, format_table

INPUTS = ()
HEAT_SECONDS = (0.1, 0.5, 1.0, 5.0, 20.0, 39.0)
SLOWED_RATIO = 1.04
MIN_US = 20.0


def run() -> str:
    """Return a table of the heat, one of the kernels by family, and one of their predictions."""
    folders = sorted(MEASURED.iterdir())
    heat = ("GPU", *(f"after {seconds:g} s" for seconds in HEAT_SECONDS))
    families = (
        "GPU", "family", "type", "kernels", "held over cold, median", "most", "lowest clock", "power, median",
        "profiler over events",
    )  # fmt: skip
    errors = (
        "GPU",
        "family",
        "type",
        "kernels from 20 µs on",
        "to cold times",
        "absolute",
        "to held times",
        "absolute",
    )
    return "\n".join(
        (
            "# Kernels, short and held\n",
            "A bf16 GEMM of 8,192 x 8,192 x 8,192, repeated without a pause: rate, SM clock and power.\n",
            format_table(heat, map(list_heat, folders)),
            "Each kernel of the bench, 0.3 s on the hot GPU against a few milliseconds on the cold one.\n",
            format_table(families, (row for folder in folders for row in list_families(folder))),
            "Predicted from shapes: median error, and median of its magnitude.\n",
            format_table(errors, (row for folder in folders for row in list_errors(folder))),
        )
    )


def list_heat(folder: Path) -> tuple[str, ...]:
    """Return a row of the GEMM's rate, clock and power over time."""
    table = pl.read_csv(folder / "heat.csv")
    rows = [table.row(int((table["seconds"] - seconds).abs().arg_min() or 0), named=True) for seconds in HEAT_SECONDS]
    cells = (f"{row['tflops']:.0f} TFLOP/s, {row['sm_mhz']:.0f} MHz, {row['power_w']:.0f} W" for row in rows)
    return folder.name, *cells


def list_families(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield how holding changes the kernels of each family and type."""
    kernels = read_kernels(folder).with_columns(held=pl.col("held_us") / pl.col("measured_us"))
    for rows in kernels.partition_by("family", "dtype"):
        yield (
            *(folder.name, *rows.row(0)[:2], str(rows.height)),
            *(f"{np.median(rows['held']):.2f}", f"{np.max(rows['held']):.2f}"),
            *(f"{np.min(rows['sm_mhz']):.0f} MHz", f"{np.median(rows['power_w']):.0f} W"),
            f"{np.median(rows['profiled_us'] / rows['measured_us']):.2f}",
        )


def list_errors(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield how far off the predictions from shapes are."""
    kernels = read_kernels(folder)
    predicted = predict(kernels, load_gpu(folder.name))["time_us"]
    long = kernels.with_columns(predicted=predicted).filter(pl.col("measured_us") >= MIN_US)
    for rows in long.partition_by("family", "dtype"):
        errors = [100 * (rows["predicted"] / rows[measured] - 1) for measured in ("measured_us", "held_us")]
        cells = (
            f"{value:{sign}.0f} %"
            for error in errors
            for value, sign in ((np.median(error), "+"), (np.median(error.abs()), ""))
        )
        yield folder.name, *rows.row(0)[:2], str(rows.height), *cells


def read_kernels(folder: Path) -> pl.DataFrame:
    """Read the kernels of a GPU."""
    return pl.read_csv(folder / "kernels.csv", infer_schema_length=None)
