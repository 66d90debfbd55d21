"""Published nccl-tests and rccl-tests results of one to 248 nodes, and with one or two of each sweep given."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from tests.validation.studies.collectives.published_results import (
    GIVEN_HEADINGS,
    LONG_BYTES,
    list_sweeps,
    predict_from_measured,
    predict_published,
    summarize_given,
)
from tests.validation.study import format_table, format_yes
from tracekit.format import format_bytes, format_duration

INPUTS = ()
SHORT_BYTES = 2**16
"""A shorter message's bus bandwidth says nothing; its time does."""


def run() -> str:
    """Return the errors by group, of sweeps with some results given, and of each result."""
    rows = predict_published()
    given = {
        "the longest": pl.concat(predict_from_measured(part, [-1]) for part in list_sweeps()),
        "the shortest and the longest": pl.concat(predict_from_measured(part, [0, -1]) for part in list_sweeps()),
    }
    headings = (
        "cluster", "collective", "sound", "size", "ranks", "measured", "predicted", "error", "in interval",
        "algorithm", "source",
    )  # fmt: skip
    return "\n".join(
        (
            "# Published collectives\n",
            format_table(
                ("sound results", "number", "error, median", "worst, factor", "in interval"), list_groups(rows)
            ),
            "## Some results of each sweep given\n",
            format_table(GIVEN_HEADINGS, (summarize_given(title, found) for title, found in given.items())),
            "## All results\n",
            format_table(headings, map(format_row, rows.iter_rows(named=True))),
        )
    )


def list_groups(rows: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of sound results."""
    several, long = pl.col("nodes") > 1, pl.col("bytes") >= LONG_BYTES
    staged = pl.col("note").str.contains("no peer access").fill_null(False)
    groups = {
        "several nodes": several,
        "several nodes, 32 MiB and more": several & long,
        "several nodes, less": several & ~long,
        "one node with peer access": ~several & ~staged,
        "one node without it": ~several & staged,
    }
    for name, group in groups.items():
        part = rows.filter(pl.col("sound") & group)
        factor = part["error"].abs().exp().to_numpy()
        yield name, str(part.height), f"{np.median(factor) - 1:.0%}", f"{factor.max():.2f}", str(part["inside"].sum())


def format_row(row: dict[str, object]) -> tuple[str, ...]:
    """Return the cells of one result."""
    size = int(str(row["bytes"]))
    names = ("measured_us", "time_us") if size < SHORT_BYTES else ("busbw_gbps", "predicted_gbps")
    figures = {name: float(str(row[name])) for name in (*names, "error")}
    shown = [format_duration(figures[name]) if name.endswith("us") else f"{figures[name]:.3g} GB/s" for name in names]
    return (
        *(str(row["cluster"]), str(row["collective"]), format_yes(bool(row["sound"])), format_bytes(size)),
        *(str(row["ranks"]), *shown, f"{np.expm1(figures['error']):+.0%}", format_yes(bool(row["inside"]))),
        *(str(row["algorithm"]), str(row["source"])),
    )
