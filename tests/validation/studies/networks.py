"""Published nccl-tests and rccl-tests results against the model, and with one or two of each sweep given.

python -m tests.validation.studies.networks [AICONFIGURATOR]

With a checkout of github.com/ai-dynamo/aiconfigurator its RTX PRO 6000 too, given two all-reduces.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from tests.validation.studies.collectives import load_checkout
from tracekit.comm import load_cluster, predict
from tracekit.comm.collective_calls import compute_bus_factor
from tracekit.comm.measured_collectives import MeasuredCollective
from tracekit.format import format_bytes, format_duration

PUBLISHED = Path(__file__).parents[1] / "published" / "collectives.csv"
LONG_BYTES = 2**25
SHORT_BYTES = 2**16
"""A shorter message's bus bandwidth says nothing; its time does."""
LEAST_ROWS = 3
BOARD, BOARDS = "rtx_pro_6000_server", "8xrtx-pro-6000-server"
CALL = ("collective", "bytes", "ranks", "nodes", "dtype")
PREDICTED = ("time_us", "low_us", "high_us")


def published() -> pl.DataFrame:
    """All results with ``measured_us``, what is predicted, and ``error``, the logarithm of predicted over measured."""
    rows = pl.read_csv(PUBLISHED).with_columns(dtype=pl.lit("float"))
    parts = []
    for part in rows.partition_by("cluster", "algorithm", "collective", maintain_order=True):
        found = predict(part.select(CALL), load_cluster(part["cluster"][0]), algorithm=part["algorithm"][0])
        moved = part["bytes"] * compute_bus_factor(part["collective"][0], part["ranks"].to_numpy().astype(float))
        told = part.rename({"algorithm": "forced"}).with_columns(measured_us=moved / part["busbw_gbps"] / 1e3)
        parts.append(told.hstack(found.select(*PREDICTED, "algorithm", predicted_gbps="busbw_gbps")))
    return pl.concat(parts).with_columns(
        error=(pl.col("time_us") / pl.col("measured_us")).log(),
        inside=pl.col("measured_us").is_between("low_us", "high_us"),
    )


def sweeps() -> Iterator[pl.DataFrame]:
    """Sound results on one cluster over several nodes, shortest message first."""
    rows = published().filter(pl.col("sound") & (pl.col("nodes") > 1) & pl.col("forced").is_null())
    parts = rows.sort("bytes").partition_by("cluster", "source", "collective", maintain_order=True)
    yield from (part for part in parts if part.height >= LEAST_ROWS)


def boards(checkout: Path) -> tuple[pl.DataFrame, list[int]]:
    """All collectives measured on up to eight boards, and which two of them are given."""
    rows = load_checkout(checkout, {BOARD: BOARD}).with_columns(cluster=pl.lit(BOARDS), nodes=pl.lit(1))
    time_us = predict(rows.select(CALL), BOARDS)["time_us"]
    rows = rows.with_columns(error=(time_us / rows["measured_us"]).log()).with_row_index()
    reduces = rows.filter(collective="all_reduce", dtype="half")
    ends = pl.concat([reduces.filter(bytes=2**10, ranks=2), reduces.filter(bytes=2**29, ranks=8)])
    return rows.drop("index"), ends["index"].to_list()


def given(part: pl.DataFrame, told: list[int]) -> pl.DataFrame:
    """The other rows of a cluster with ``before``, the error without those that are told to the model, and ``error``.

    Args:
        part: From ``sweeps`` or ``boards``.
        told: Positions of rows.
    """
    known = part[told].select("collective", "bytes", "ranks", "measured_us", "nodes", "dtype")
    cluster = replace(
        load_cluster(part["cluster"][0]), measured=tuple(MeasuredCollective(*row) for row in known.iter_rows())
    )
    rest = part.with_row_index().filter(~pl.col("index").is_in([at % part.height for at in told]))
    found = predict(rest.select(CALL), cluster)
    return rest.select(
        "cluster",
        "bytes",
        before="error",
        error=(found["time_us"] / rest["measured_us"]).log(),
        inside=rest["measured_us"].is_between(found["low_us"], found["high_us"]),
    )


def main() -> None:
    """Prints the tables of tests/validation/notes/collectives.md."""
    rows = published()
    print_groups(rows)
    print_rows(rows)
    print_given(sys.argv[1:])


def print_groups(rows: pl.DataFrame) -> None:
    """Sound results by where they are from."""
    print("| sound results | number | median error | worst | in interval |", "|---|---|---|---|---|", sep="\n")
    several, long = pl.col("nodes") > 1, pl.col("bytes") >= LONG_BYTES
    staged = pl.col("note").str.contains("no peer access").fill_null(False)
    groups = {
        "several nodes, 32 MiB and more": several & long,
        "several nodes, less": several & ~long,
        "one node with peer access": ~several & ~staged,
        "one node without it": ~several & staged,
    }
    for name, group in groups.items():
        part = rows.filter(pl.col("sound") & group)
        off = part["error"].abs().exp() - 1
        print(f"| {name} | {part.height} | {off.median():.0%} | {off.max() + 1:.2f} | {part['inside'].sum()} |")


def print_rows(rows: pl.DataFrame) -> None:
    """Every result."""
    print("\n| sound | cluster | collective | size | ranks | measured | predicted | error | in interval | algorithm |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for one in rows.iter_rows(named=True):
        names = ("measured_us", "time_us") if one["bytes"] < SHORT_BYTES else ("busbw_gbps", "predicted_gbps")
        shown = [format_duration(one[name]) if name.endswith("us") else f"{one[name]:.3g} GB/s" for name in names]
        cells = [
            "" if one["sound"] else "no",
            one["cluster"],
            one["collective"],
            format_bytes(one["bytes"]),
            one["ranks"],
            *shown,
            f"{np.expm1(one['error']):+.0%}",
            "yes" if one["inside"] else "no",
            one["algorithm"],
        ]
        print("|", " | ".join(map(str, cells)), "|")


def print_given(checkout: list[str]) -> None:
    """What is left after the longest message of each sweep was given, and after the shortest too."""
    print("\n| given | others | as modelled, median | P90 | then, median | P90 | in interval |")
    print("|---|---|---|---|---|---|---|")
    tables = {
        "the longest": pl.concat([given(part, [-1]) for part in sweeps()]),
        "the shortest and the longest": pl.concat([given(part, [0, -1]) for part in sweeps()]),
    }
    if checkout:
        tables["RTX PRO 6000: two all-reduces"] = given(*boards(Path(checkout[0])))
    for name, rows in tables.items():
        off = [np.expm1(np.quantile(rows[key].abs(), level)) for key in ("before", "error") for level in (0.5, 0.9)]
        cells = [name, rows.height, *(f"{value:.0%}" for value in off), rows["inside"].sum()]
        print("|", " | ".join(map(str, cells)), "|")


if __name__ == "__main__":
    main()
