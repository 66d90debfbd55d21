"""Fit reference times of ops, and speeds of hosts, to traces: ``python -m tests.validation.fit_hosts FOLDER...``.

The logarithm of an op's self time is the op's plus the host's: a median polish (Tukey, 1977) over ops seen on several
hosts. FOLDERs hold the traces that published/host_traces.csv names; writes the tables in tracekit/hosts.
"""

import sys
from pathlib import Path

import numpy as np
import polars as pl

import tracekit as tk
from tests.validation.study import read_published
from tracekit.errors import TracekitError
from tracekit.hosts.fingerprint import MAX_SPREAD, MIN_OPS, OP_TIMES, list_op_times
from tracekit.hosts.usual import MACHINES

MIN_MACHINES = 3
"""On which an op was seen at least."""
ROUNDS = 50


def main() -> None:
    """Read the traces, fit and write the tables."""
    if len(sys.argv) < 2:
        sys.exit("fit_hosts: name the folders of traces")
    times = read_times([Path(name) for name in sys.argv[1:]])
    ops, hosts = polish(times)
    ops.sort("name").with_columns(pl.col("reference_ns").round_sig_figs(4)).write_csv(OP_TIMES)
    machines = summarize_machines(hosts)
    machines.write_csv(MACHINES)
    print(hosts.sort("speed"))
    print(machines)


def read_times(folders: list[Path]) -> pl.DataFrame:
    """Return ``trace``, ``name`` and ``self_ns`` of all traces that are listed, with their ``machine``."""
    frames = []
    for row in read_published("host_traces").iter_rows(named=True):
        for path in sorted(path for folder in folders for path in folder.glob(f"{row['trace']}.json.gz")):
            try:
                ranks = tk.load(path).ranks
            except TracekitError as error:
                print(f"{path.name}: {error}", file=sys.stderr)
                continue
            about = {name: pl.lit(row[name]) for name in ("machine", "gpu", "year", "source")}
            frames.append(list_op_times(ranks).with_columns(trace=pl.lit(path.name), **about))
    return pl.concat(frames)


def polish(times: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return ops with ``reference_ns``, and traces with the ``speed`` of their hosts and its ``spread``."""
    common = times.filter(pl.col("machine").n_unique().over("name") >= MIN_MACHINES)
    table = common.filter(pl.len().over("trace") >= MIN_OPS).with_columns(op=0.0, host=0.0, y=pl.col("self_ns").log())
    for _ in range(ROUNDS):
        table = table.with_columns(op=(pl.col("y") - pl.col("host")).median().over("name"))
        table = table.with_columns(host=(pl.col("y") - pl.col("op")).median().over("trace"))
        table = table.with_columns(host=pl.col("host") - pl.col("host").median())
    left = (pl.col("y") - pl.col("op") - pl.col("host")).abs().median()
    hosts = table.group_by("trace", "machine", "gpu", "year", "source").agg(
        speed=(-pl.col("host").first()).exp(), ops=pl.len(), spread=left
    )
    return table.group_by("name").agg(reference_ns=pl.col("op").first().exp()), hosts


def summarize_machines(hosts: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each machine, with the median speed of its traces; those that one factor describes."""
    described = hosts.filter(pl.col("spread") <= MAX_SPREAD)
    rows = described.group_by("gpu", "machine", "year", "source").agg(
        pl.col("speed").median().round_sig_figs(3),
        jobs=pl.len(),
        spread=pl.col("speed").log().std().fill_null(0).round(2),
    )
    return rows.select("gpu", "machine", "speed", "jobs", "spread", "year", "source").sort("gpu", "machine")


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
