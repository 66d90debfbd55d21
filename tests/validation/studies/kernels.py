"""Holds kernels predicted from their shapes against the times that traces measured on the same GPU.

python -m tests.validation.studies.kernels TRACE[=GPU]...

A line for each family: how much of the measured GPU time has a known shape, what the known take in all, by the model
over as measured, and distinct kernels of 20 µs and more. A kernel that was quicker than its bound allows doesn't do the
work that its op's tensors tell (it gathers from a table, say), and counts as unknown. A prediction is nearer than all
that: it carries the measured times. tests/validation/notes/kernels.md names the public traces of its table.
"""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

import tracekit as tk
from predictors import Batch
from tests.validation.tables import print_table, scored
from tests.validation.words import given
from tracekit.parallelism.relayout import add_measured_times
from tracekit.run import prepare_run

LONG_US = 20.0
BOUND = 0.9
"""Of a bound that a measured time may lie under: caches hold a part, clocks go above the printed one."""
SHAPE = (
    "name", "m", "n", "k", "batch", "channels", "heads", "head_dim", "q_len", "kv_len", "rows", "cols", "bytes",
    "blocks",
)  # fmt: skip
"""What tells kernels apart."""
MOVED = ("collective", "memcpy")
"""Families that no shape on one GPU tells."""
HEADING = "| trace | kernels | GPU time | known | predicted | kernels from 20 µs on | error, median | in interval |"


def main() -> None:
    """Prints the table."""
    print_table(HEADING, (line for one in given(__doc__, 1) for line in lines(*one.partition("=")[::2])))


def lines(path: str, gpu: str) -> Iterator[str]:
    """A row for each family, the longest first, and one for all."""
    kernels = beside_prediction(path, gpu or None)
    total_us = kernels["measured_us"].sum()
    yield line(Path(path).name.split(".")[0], "all", kernels, 100.0)
    by_family = kernels.partition_by("family", as_dict=True)
    shares = {family: 100 * rows["measured_us"].sum() / total_us for (family,), rows in by_family.items()}
    for family in sorted(shares, key=lambda family: -shares[family]):
        if shares[family] >= 1:
            yield line("", family, by_family[family,], shares[family])


def beside_prediction(path: str, gpu: str | None) -> pl.DataFrame:
    """The kernels of a trace's measured steps, with what the model says of their shapes on their own GPU."""
    run = prepare_run(tk.load(path), source_gpu=gpu)
    if run.gpu is None:
        raise SystemExit(f"{path} doesn't tell its GPU: name it as {path}=GPU")
    table = add_measured_times(run)
    times = Batch(table.drop("measured_us")).on(run.gpu).select("time_us", "low_us", "high_us", "bound_us")
    told = pl.concat([table, times], how="horizontal").with_columns(gpu=pl.lit(run.gpu.slug))
    return told.filter(~pl.col("family").is_in(MOVED), pl.col("measured_us") > 0)


def line(trace: str, family: str, kernels: pl.DataFrame, share_pct: float) -> str:
    """A row of the table."""
    known = kernels.filter(pl.col("time_us").is_not_null(), pl.col("measured_us") >= BOUND * pl.col("bound_us"))
    known_pct = 100 * known["measured_us"].sum() / kernels["measured_us"].sum()
    each = known.group_by(SHAPE).agg(pl.col("measured_us", "time_us", "low_us", "high_us").median())
    long = each.filter(pl.col("measured_us") >= LONG_US)
    of_all = f"{100 * (known['time_us'].sum() / known['measured_us'].sum() - 1):+.0f} %" if known.height else "–"
    return f"| {trace} | {family} | {share_pct:.0f} % | {known_pct:.0f} % | {of_all} | {scored(long, 'measured_us')} |"


if __name__ == "__main__":
    main()
