"""Look-ups and their gradients by `EmbeddingBag`, captured without a GPU, against times by the distribution of indices.

The tables of `make on-gpu`. A captured program doesn't tell how its indices are distributed: one usual distribution is
assumed (Zipf's law, 1.05), even and very skewed indices are the bounds. The law of look-ups was fitted on the H200's,
and the clocks of a gradient's longest thread chosen there; the H100 is left out of every choice. Zeroing the table's
gradient isn't counted.
"""

from collections.abc import Iterator
from statistics import median

import polars as pl

import tracekit as tk
from predictors import load_gpu
from tests.validation.study import MEASURED, format_table
from tracekit.parallelism.relayout import add_measured_times
from tracekit.prediction.kernel_times import KernelTimePredictor
from tracekit.run import prepare_run

INPUTS = ()
CASE = ("rows", "width", "bags", "pooling")
OPS = {"look-up": "aten::_embedding_bag", "gradient": "aten::_embedding_bag_backward"}
MEASURED_KERNELS = {
    "look-up": (pl.col("phase") == "forward") & pl.col("kernel").str.contains("updateOutput"),
    "gradient": (pl.col("phase") == "train") & ~pl.col("kernel").str.contains("updateOutput|vectorized_elementwise"),
}
"""Rows of a measured table: a step's look-up is measured alone too, and its fill isn't counted."""
HEADINGS = ("GPU", "what", "indices", "cases", "error, median", "absolute, median", "lowest", "highest", "inside")


def run() -> str:
    """Return a row for each GPU, each kind of kernel and each distribution."""
    rows = (row for folder in sorted(MEASURED.iterdir()) for row in list_rows(folder.name))
    return "\n".join(("# Look-ups by the distribution of their indices\n", format_table(HEADINGS, rows)))


def list_rows(gpu: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a GPU."""
    measured = pl.read_csv(MEASURED / gpu / "lookups.csv")
    predicted = pl.DataFrame([predict_case(gpu, *case) for case in measured.select(CASE).unique().iter_rows()])
    for what, chosen in MEASURED_KERNELS.items():
        times = measured.filter(chosen).group_by(*CASE, "alpha").agg(pl.col("us").sum())
        joined = times.join(predicted, on=CASE).with_columns(
            error=100 * (pl.col(what) / pl.col("us") - 1),
            inside=pl.col("us").is_between(pl.col(f"{what} low"), pl.col(f"{what} high")),
        )
        for (alpha,), cases in joined.sort("alpha").group_by("alpha", maintain_order=True):
            errors = cases["error"].to_list()
            yield (
                *(gpu, what, f"Zipf {alpha:g}" if alpha else "even", str(cases.height)),
                *(f"{median(errors):+.0f} %", f"{median(map(abs, errors)):.0f} %"),
                *(f"{end:+.0f} %" for end in (min(errors), max(errors))),
                f"{int(cases['inside'].sum())} of {cases.height}",
            )


def predict_case(gpu: str, rows: int, width: int, bags: int, pooling: int) -> dict[str, float]:
    """Predict the look-up and the gradient of a table, with their intervals."""
    import torch
    from torch import nn

    with torch.device("meta"):
        table, indices = nn.EmbeddingBag(rows, width, mode="sum"), torch.empty(bags, pooling, dtype=torch.long)
    kernels = add_measured_times(prepare_run(tk.capture(table, indices, training=True)).program)
    times = kernels.select("op").hstack(KernelTimePredictor(kernels, None, by_shape=True).predict(load_gpu(gpu), {}))
    case: dict[str, float] = dict(zip(CASE, (rows, width, bags, pooling), strict=True))
    for what, op in OPS.items():
        sums = times.filter(pl.col("op") == op).select(pl.col("time_us", "low_us", "high_us").sum()).row(0)
        case |= dict(zip((what, f"{what} low", f"{what} high"), sums, strict=True))
    return case
