"""Convolutions on AMD GPUs by fits without their weights' shapes, and without their GPU.

MIOpen's find databases, the fastest solver of each convolution, and some of jobs on an MI300X.
"""

import math
from collections.abc import Iterator

import numpy as np
import polars as pl

from predictors.kernels import MIOPEN_LAWS
from predictors.result import SITUATIONS, get_width_key
from predictors.training.__main__ import BUNDLED_TABLES
from predictors.training.evaluate import MIN_SHOWN_US, cross_validate
from predictors.training.fit import LawMeasurements, load_measurements
from predictors.training.widths import fit_intervals
from tests.validation.study import KERNEL_DATA, find_input, format_table

INPUTS = (KERNEL_DATA,)

HEADINGS = ("GPU", "fit without", "convolutions", "pass", "type", "kernels", "error, median", "90th percentile", "bias",
            "inside", "high over low")  # fmt: skip
LEFT_OUT = {"base": "weights' shapes", **dict.fromkeys(SITUATIONS[1:], "the GPU")}
LEGEND = (
    f"|predicted / measured - 1| of convolutions from {MIN_SHOWN_US:g} µs on. *Weights' shapes*: the fit had other "
    "convolutions of the same GPU, none with as many groups, filters and elements that each filter sees. *The GPU*: it "
    "had the other GPUs only, and these weights on neither. Inside: of the interval of 90 %, whose ends are so far "
    "apart; for a GPU left out its width is that of all GPUs left out, one by one.\n"
)


def run() -> str:
    """Return a table of errors by GPU and kind of convolution."""
    data = find_input(KERNEL_DATA)
    measured = load_measurements([data / "miopen", data / "tracelens", *BUNDLED_TABLES])
    scored = pl.concat([score_law(law, measured[law]) for law in MIOPEN_LAWS if law in measured])
    return "\n".join(("# Convolutions on AMD GPUs\n", LEGEND, format_table(HEADINGS, list_errors(scored))))


def score_law(law: str, parts: list[LawMeasurements]) -> pl.DataFrame:
    """Score one law on what its fits lacked.

    Returns:
        One row per kernel and fit: ``gpu``, ``left_out``, ``kind``, ``direction``, ``dtype``, ``latency_us``,
        ``model_us``, ``half_width`` and ``centre``.
    """
    _, rows = cross_validate(law, parts)
    found, key = fit_intervals(rows), get_width_key(law, "amd")
    widths, centres = found.widths[key], found.centres.get(key, {})
    kinds = [part.table.select("shape", "dtype", "direction", gpu=pl.lit(part.gpu), kind=classify()) for part in parts]
    known = rows.filter(pl.col("situation").is_in(SITUATIONS), pl.col("latency_us") > MIN_SHOWN_US)
    named = known.join(pl.concat(kinds).unique(["gpu", "shape", "dtype"]), on=["gpu", "shape", "dtype"])
    return named.select(
        *("gpu", "kind", "direction", "dtype", "latency_us", "model_us"),
        left_out=pl.col("situation").replace_strict(LEFT_OUT),
        half_width=pl.col("situation").replace_strict(widths, return_dtype=pl.Float64),
        centre=pl.col("situation").replace_strict(centres, default=0.0, return_dtype=pl.Float64),
    )


def classify() -> pl.Expr:
    """Return whether convolutions are dense, grouped or depthwise."""
    depthwise = pl.min_horizontal("m", "n", "k") == 1
    groups = pl.when(depthwise).then(pl.lit("depthwise")).otherwise(pl.lit("grouped"))
    return pl.when(pl.col("batch") > 1).then(groups).otherwise(pl.lit("dense"))


def list_errors(scored: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each GPU and kind, of all passes and formats together and then of each."""
    for (left_out, kind, gpu), rows in sorted_groups(scored, "left_out", "kind", "gpu"):
        yield gpu, left_out, kind, "all", "all", *summarize(rows)
        for (direction, dtype), some in sorted_groups(rows, "direction", "dtype"):
            yield gpu, left_out, kind, direction, dtype, *summarize(some)


def sorted_groups(rows: pl.DataFrame, *by: str) -> list[tuple[tuple[str, ...], pl.DataFrame]]:
    """Return rows by the values of some columns, in the alphabet's order."""
    return [(tuple(map(str, key)), group) for key, group in sorted(rows.group_by(by), key=lambda one: one[0])]


def summarize(rows: pl.DataFrame) -> tuple[str, ...]:
    """Return the last cells of `HEADINGS`."""
    ratio = (rows["model_us"] / rows["latency_us"]).to_numpy()
    error_pct, width = 100 * np.abs(ratio - 1), rows["half_width"].to_numpy()
    inside = 100 * np.mean(np.abs(np.log(ratio) + rows["centre"].to_numpy()) <= width)
    return (
        *(str(rows.height), f"{np.median(error_pct):.0f} %", f"{np.quantile(error_pct, 0.9):.0f} %"),
        *(f"{100 * (np.median(ratio) - 1):+.0f} %", f"{inside:.0f} %", f"{math.exp(2 * float(np.median(width))):.1f}"),
    )
