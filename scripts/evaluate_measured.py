"""Machines of which one or two collectives are given: how far off the others are then.

python scripts/evaluate_measured.py [AICONFIGURATOR]

Published sweeps over several nodes; and with a checkout of github.com/ai-dynamo/aiconfigurator its RTX PRO 6000.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from evaluate_collectives import load_checkout

from tracekit.comm import load_cluster, predict
from tracekit.comm.calls import bus_factor
from tracekit.comm.measured import Measured

PUBLISHED = Path(__file__).parent.parent / "tests" / "comm" / "published.csv"
LEAST_ROWS = 3
BOARD, BOARDS = "rtx_pro_6000_server", "8xrtx-pro-6000-server"
HEADING = (
    "| given | others | as modelled, median | P90 | given, median | P90 | in interval |\n|---|---|---|---|---|---|---|"
)


def sweeps() -> Iterator[pl.DataFrame]:
    """Sound results on one cluster over several nodes, shortest message first, with ``measured_us``."""
    rows = pl.read_csv(PUBLISHED).filter(pl.col("sound") & (pl.col("nodes") > 1) & pl.col("algorithm").is_null())
    for part in rows.sort("bytes").partition_by("cluster", "source", maintain_order=True):
        if part.height >= LEAST_ROWS:
            moved = part["bytes"] * bus_factor(part["collective"][0], part["ranks"].to_numpy().astype(float))
            yield part.with_columns(dtype=pl.lit("float"), measured_us=moved / part["busbw_gbps"] / 1e3)


def outcomes(part: pl.DataFrame, given: list[int]) -> pl.DataFrame:
    """The other rows of a sweep with ``before`` and ``error``, the logarithms of predicted over measured time.

    Args:
        part: From ``sweeps``.
        given: Rows that are told to the model.
    """
    told = part[given].select("collective", "bytes", "ranks", "measured_us", "nodes")
    cluster = load_cluster(part["cluster"][0])
    known = replace(cluster, measured=tuple(Measured(*row) for row in told.iter_rows()))
    rest = part.with_row_index().filter(~pl.col("index").is_in([at % part.height for at in given]))
    calls = rest.select("collective", "bytes", "ranks", "nodes", "dtype")
    before, after = predict(calls, cluster)["time_us"], predict(calls, known)
    measured_us = rest["measured_us"]
    return rest.select("cluster", "collective", "bytes", "measured_us").with_columns(
        before=(before / measured_us).log(),
        error=(after["time_us"] / measured_us).log(),
        inside=measured_us.is_between(after["low_us"], after["high_us"]),
    )


def boards(checkout: Path) -> tuple[pl.DataFrame, list[int]]:
    """All collectives measured on up to eight boards, and which two of them are given."""
    rows = (
        load_checkout(checkout, {BOARD: BOARD}).with_columns(cluster=pl.lit(BOARDS), nodes=pl.lit(1)).with_row_index()
    )
    reduces = rows.filter(collective="all_reduce", dtype="half")
    ends = pl.concat([reduces.filter(bytes=2**10, ranks=2), reduces.filter(bytes=2**29, ranks=8)])
    return rows.drop("index"), ends["index"].to_list()


def line(name: str, rows: pl.DataFrame) -> str:
    """A row of the table."""
    off = [np.expm1(np.quantile(rows[key].abs(), level)) for key in ("before", "error") for level in (0.5, 0.9)]
    cells = " | ".join(f"{100 * value:.0f} %" for value in off)
    return f"| {name} | {rows.height} | {cells} | {rows['inside'].sum()} |"


def main() -> None:
    """Prints what is left after the longest message was given, and after the shortest too."""
    print(HEADING)
    for name, given in (("the longest", [-1]), ("the shortest and the longest", [0, -1])):
        print(line(name, pl.concat([outcomes(part, given) for part in sweeps()])))
    if sys.argv[1:]:
        print(line("RTX PRO 6000: two all-reduces", outcomes(*boards(Path(sys.argv[1])))))


if __name__ == "__main__":
    main()
