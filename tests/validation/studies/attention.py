"""Holds attention over whole sequences, predicted from shapes, against the times that jobs' traces measured.

python -m tests.validation.studies.attention TRACE...

On the trace's own GPU, the kernel known by its name; equal shapes in several traces count once, by their median, from
15 µs on. Its law was fitted to published benchmarks, to none of these. tests/validation/notes/kernels.md names the
traces of its table.
"""

import polars as pl

from tests.validation.studies.kernels import beside_prediction
from tests.validation.tables import print_table, scored
from tests.validation.words import given

LEAST_US = 15.0
LEAST_QUERIES = 1 / 32
"""Of the keys: fewer queries are decoded."""
SHAPE = (
    "gpu", "framework", "direction", "dtype", "batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim",
    "causal", "window",
)  # fmt: skip
HEADING = "| GPU | kernels | | error, median | worst | shapes | absolute, median | in interval |"


def main() -> None:
    """Prints the table."""
    kernels = pl.concat([whole_sequences(path) for path in given(__doc__, 1)], how="diagonal_relaxed")
    times = pl.col("measured_us", "time_us", "low_us", "high_us").median()
    shapes = kernels.group_by(SHAPE, maintain_order=True).agg(times).filter(pl.col("measured_us") >= LEAST_US)
    groups = shapes.sort("gpu", "framework", "direction").group_by("gpu", "framework", "direction", maintain_order=True)
    print_table(HEADING, (*(line(" | ".join(map(str, who)), rows) for who, rows in groups), line("all |  | ", shapes)))


def whole_sequences(path: str) -> pl.DataFrame:
    """The attention kernels of a trace that work on tensors and are known by their names, with what is predicted."""
    kernels = beside_prediction(path, None)
    return kernels.filter(
        pl.col("family") == "attention",
        pl.col("paged").eq_missing(False),
        pl.col("q_len") >= LEAST_QUERIES * pl.col("kv_len"),
        pl.col("framework").is_not_null(),
        pl.col("time_us").is_not_null(),
    )


def line(who: str, shapes: pl.DataFrame) -> str:
    """A row of the table."""
    error_pct = 100 * (shapes["time_us"] / shapes["measured_us"] - 1)
    worst = error_pct[error_pct.abs().arg_max() or 0]
    return f"| {who} | {error_pct.median():+.0f} % | {worst:+.0f} % | {scored(shapes, 'measured_us')} |"


if __name__ == "__main__":
    main()
