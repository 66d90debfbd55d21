"""Predict published nccl-tests and rccl-tests results, as they are and with some of a cluster's results given."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from tests.validation.study import read_published
from tracekit.comm import load_cluster, predict
from tracekit.comm.cluster import MeasuredCollective
from tracekit.comm.collective_calls import compute_bus_factor

LONG_BYTES = 2**25
MIN_SWEEP_ROWS = 3
CALL = ("collective", "bytes", "ranks", "nodes", "dtype")
GIVEN_HEADINGS = ("given", "others", "without, median", "P90", "with them, median", "P90", "in interval")


def predict_published() -> pl.DataFrame:
    """Return all results with `measured_us`, predicted times, and `error`, the logarithm of predicted over measured."""
    rows = read_published("collectives").with_columns(dtype=pl.lit("float"))
    parts = []
    for part in rows.partition_by("cluster", "algorithm", "collective", maintain_order=True):
        found = predict(part.select(CALL), load_cluster(part["cluster"][0]), algorithm=part["algorithm"][0])
        moved = part["bytes"] * compute_bus_factor(part["collective"][0], part["ranks"].to_numpy().astype(float))
        measured = part.rename({"algorithm": "forced"}).with_columns(measured_us=moved / part["busbw_gbps"] / 1e3)
        times = found.select("time_us", "low_us", "high_us", "algorithm", predicted_gbps="busbw_gbps")
        parts.append(measured.hstack(times))
    return pl.concat(parts).with_columns(
        error=(pl.col("time_us") / pl.col("measured_us")).log(),
        inside=pl.col("measured_us").is_between("low_us", "high_us"),
    )


def list_sweeps() -> Iterator[pl.DataFrame]:
    """Yield sound results of one source on one cluster of several nodes, shortest message first."""
    rows = predict_published().filter(pl.col("sound") & (pl.col("nodes") > 1) & pl.col("forced").is_null())
    parts = rows.sort("bytes").partition_by("cluster", "source", "collective", maintain_order=True)
    yield from (part for part in parts if part.height >= MIN_SWEEP_ROWS)


def predict_from_measured(part: pl.DataFrame, given: Sequence[int]) -> pl.DataFrame:
    """Predict the other rows of a cluster with some given; `before` is the error without them, `error` with them.

    Args:
        part: Rows with `cluster`, `CALL`, `measured_us` and `error`.
        given: Positions of the given rows.
    """
    known = part[list(given)].select("collective", "bytes", "ranks", "measured_us", "nodes", "dtype")
    cluster = replace(
        load_cluster(part["cluster"][0]), measured=tuple(MeasuredCollective(*row) for row in known.iter_rows())
    )
    rest = part.with_row_index().filter(~pl.col("index").is_in([at % part.height for at in given]))
    found = predict(rest.select(CALL), cluster)
    return rest.select(
        "cluster",
        "bytes",
        before="error",
        error=(found["time_us"] / rest["measured_us"]).log(),
        inside=rest["measured_us"].is_between(found["low_us"], found["high_us"]),
    )


def summarize_given(title: str, rows: pl.DataFrame) -> tuple[str, ...]:
    """Return the cells of `GIVEN_HEADINGS`."""
    errors = (np.expm1(np.quantile(rows[key].abs(), level)) for key in ("before", "error") for level in (0.5, 0.9))
    return title, str(rows.height), *(f"{error:.0%}" for error in errors), str(rows["inside"].sum())
