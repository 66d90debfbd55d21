"""Holds kernels carried from one trace against the kernels of equal ops in a trace of another GPU.

python -m tests.validation.studies.like TRACE OTHER_TRACE

Where two traces show the same PyTorch ops on equal shapes, each trace's are predicted for the other's GPU and compared
with what they took there, though the jobs may differ. Ops of which a trace tells no sizes (`cat`) are left out.
"""

from collections.abc import Iterator

import polars as pl

import tracekit as tk
from tests.validation.tables import print_table, scored
from tests.validation.words import given
from tracekit.prediction import predict
from tracekit.run import MeasuredRun, prepare_run

LONG_US = 20.0
OP = ["op", "input_dims", "input_types", "family", "turn"]
"""What tells calls apart: `turn` counts the kernels of one family in a call."""
TOLD = pl.col("op").str.starts_with("aten::") & pl.col("input_dims").str.contains(r"\d")
HEADING = "| from → to | family | ops | measured there | predicted | error | ops from 20 µs on | median | in interval |"


def main() -> None:
    """Prints the table."""
    runs = [prepare_run(tk.load(path)) for path in given(__doc__, 2, 2)]
    print_table(HEADING, (row for source, there in (runs, runs[::-1]) for row in lines(source, there)))


def lines(source: MeasuredRun, there: MeasuredRun) -> Iterator[str]:
    """A row for each family, the longest first, and one for all."""
    if source.gpu is None or there.gpu is None:
        raise SystemExit("evaluate_like: a trace doesn't tell its GPU")
    (prediction,) = predict(source, [there.gpu.slug]).values()
    carried = calls(
        pl.concat([source.kernels, prediction.kernels.select("time_us", "low_us", "high_us")], how="horizontal")
    )
    predicted = carried.group_by(OP).agg(pl.col("time_us", "low_us", "high_us").median())
    measured = calls(there.kernels).group_by(OP).agg(pl.col("us").median(), count=pl.len())
    like = predicted.join(measured, on=OP)
    way = f"{source.gpu.slug} → {there.gpu.slug}"
    families = sorted(like.partition_by("family"), key=lambda rows: -(rows["us"] * rows["count"]).sum())
    yield from (line(way, rows["family"][0], rows) for rows in families)
    if families:
        yield line(way, "all", like)


def calls(kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels of PyTorch's ops, as `us` what each took."""
    told = kernels.filter(TOLD, pl.col("kind") == "kernel")
    return told.with_columns(us=pl.col("dur_ns") / 1e3, turn=pl.int_range(pl.len()).over("op_row", "family"))


def line(way: str, family: str, like: pl.DataFrame) -> str:
    """A row of the table; sums are over all calls there."""
    there_us, predicted_us = ((like[column] * like["count"]).sum() for column in ("us", "time_us"))
    long = like.filter(pl.col("us") >= LONG_US)
    return (
        f"| {way} | {family} | {like.height} | {there_us / 1e3:.3g} ms | {predicted_us / 1e3:.3g} ms "
        f"| {100 * (predicted_us / there_us - 1):+.0f} % | {scored(long, 'us')} |"
    )


if __name__ == "__main__":
    main()
