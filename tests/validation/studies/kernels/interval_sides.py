"""Do intervals of kernels hold as many at the low as at the high end, by law and by what the fit lacked?

Held-out shapes, and GPUs left out: of these an interval is made of the other GPUs alone.
"""

import math
from collections.abc import Iterator

import numpy as np
import polars as pl

from predictors.result import CALIBRATED, SITUATIONS
from predictors.training.__main__ import SCORED_TABLE
from predictors.training.carried import pair_kernels
from predictors.training.report import LAW_TITLES, format_sum_coverage
from predictors.training.shared_errors import correlate_laws, fit_shared_fractions, fit_slowness_error
from predictors.training.sums import compute_sum_coverage
from predictors.training.widths import compute_coverage
from predictors.weights_file import load_weights
from tests.validation.study import FIT, find_input, format_table

INPUTS = (FIT,)
WHERE = (*SITUATIONS, CALIBRATED)
HEADINGS = ("law", "fit without", "GPUs", "kernels", "symmetric: below", "above", "inside", "high/low", "signed: below",
            "above", "inside", "high/low", "needed")  # fmt: skip
LEGEND = (
    "Shares in percent, each GPU with the same weight: of kernels that took less than the low end, more than the high "
    "end, neither. High/low: in the median of the GPUs; needed: what would hold 90 % of all kernels and 80 % of "
    "each GPU's. "
    "*base*: held-out shapes; *sibling*, *class*, *new*: the GPU left out with what is nearest to it left in, less and "
    "less; *calibrated*: left out, then calibrated with 30 kernels. *Symmetric*: about the predicted time, by the same "
    "rules otherwise.\n"
)


def run() -> str:
    """Return the coverage by side, what laws share, and the coverage of sums."""
    folder = find_input(FIT)
    rows = pl.read_parquet(folder / SCORED_TABLE)
    symmetric, signed = (compute_coverage(rows, is_signed=is_signed) for is_signed in (False, True))
    return "\n".join(
        (
            "# Intervals of kernels by side\n",
            LEGEND,
            "## All laws\n",
            format_table(HEADINGS[1:], (row[1:] for row in list_rows(symmetric, signed, ["situation"]))),
            "## By law\n",
            format_table(HEADINGS, list_rows(symmetric, signed, ["law", "situation"])),
            "## What a law's kernels share\n",
            "Fraction of a kernel's error that the others of its law, library and release on the same GPU share, by "
            "what the fit lacked or what is told; medians of the laws, and in brackets the least and the most.\n",
            format_table(("", "fraction", "laws"), list_shared(rows)),
            "Correlation of laws' mean errors on one GPU, of those that their kernels share:\n",
            format_table(("fit without", "correlation", "pairs"), list_correlations(rows)),
            "What a stack's carried times are off for each unit of what the model misses of it on the source, and "
            "without any of that, as standard deviations of logarithms:\n",
            format_table(("pair of GPUs", "for each unit", "rest", "groups"), list_slowness(rows)),
            format_sum_coverage(compute_sum_coverage(rows, load_weights(folder))),
        )
    )


def list_rows(symmetric: pl.DataFrame, signed: pl.DataFrame, by: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each law and situation."""
    before, after = (summarize(one, by) for one in (symmetric, signed))
    order = {name: place for place, name in enumerate((*LAW_TITLES, *WHERE))}
    both = before.join(after, on=by, suffix="_signed").sort(
        *(pl.col(name).replace_strict(order, default=len(order), return_dtype=pl.Int64) for name in by), *by
    )
    for row in both.iter_rows(named=True):
        sides = [
            (
                *(f"{row[f'{name}{suffix}']:.1f}" for name in ("below", "above", "inside")),
                _factor(row[f"width{suffix}"]),
            )
            for suffix in ("", "_signed")
        ]
        names = (row.get("law", ""), row["situation"], str(row["gpus"]), f"{row['kernels']:,}")
        yield *names, *sides[0], *sides[1], _factor(row["needed"])


def summarize(coverage: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return means of the shares and medians of the widths."""
    return coverage.group_by(by).agg(
        pl.col("inside", "below", "above").mean(),
        pl.col("width", "needed").median(),
        pl.col("kernels").sum(),
        gpus=pl.col("gpu").n_unique(),
    )


def _factor(width: float) -> str:
    return f"{math.exp(width):.2f}"


def list_shared(rows: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each cell."""
    found: dict[str, list[float]] = {}
    for cells in fit_shared_fractions(rows, pair_kernels(rows)).values():
        for cell, fraction in cells.items():
            found.setdefault(cell, []).append(fraction)
    for cell, fractions in sorted(found.items()):
        yield cell, f"{np.median(fractions):.2f} ({min(fractions):.2f}–{max(fractions):.2f})", str(len(fractions))


def list_correlations(rows: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each situation."""
    for where, correlation, pairs in correlate_laws(rows).iter_rows():
        yield where, f"{correlation:.2f}", f"{pairs:,}"


def list_slowness(rows: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kinship."""
    for kinship, error, rest, groups in fit_slowness_error(pair_kernels(rows)).iter_rows():
        yield kinship, f"{error:.2f}", f"{rest:.2f}", f"{groups:,}"
