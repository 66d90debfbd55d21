"""Kernels predicted from their shapes against the times that traces measured on the same GPU.

A kernel that was quicker than its bound allows doesn't do the work that its op's tensors imply (it gathers from a
table, say), and counts as unknown. A prediction of a trace is nearer than this: it scales the measured times.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import polars as pl

import tracekit as tk
from predictors import Batch
from tests.validation.study import REAL_TRACES, find_input, format_kernel_errors, format_table
from tracekit.errors import TracekitError
from tracekit.parallelism.relayout import add_measured_times
from tracekit.run import prepare_run

INPUTS = (REAL_TRACES,)
MIN_US = 20.0
MIN_ATTENTION_US = 15.0
MIN_QUERIES_PER_KEY = 1 / 32
"""Attention with fewer queries is decoding, not a whole sequence."""
MIN_TIME_OVER_BOUND = 0.9
"""Of a measured time: caches hold a part, clocks go above the printed one."""
MIN_FAMILY_PCT = 1
MOVING_FAMILIES = ("collective", "memcpy")
"""Families that no shape on one GPU predicts."""
SHAPE = (
    "name", "m", "n", "k", "batch", "channels", "heads", "head_dim", "q_len", "kv_len", "rows", "cols", "bytes",
    "blocks",
)  # fmt: skip
ATTENTION_SHAPE = (
    "gpu", "framework", "direction", "dtype", "batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim",
    "causal", "window",
)  # fmt: skip


def run() -> str:
    """Return a table by trace and family, and one of attention over whole sequences."""
    traces = dict(predict_traces(find_input(REAL_TRACES)))
    headings = (
        "trace", "kernels", "GPU time", "known", "predicted", "kernels from 20 µs on", "error, median", "in interval",
    )  # fmt: skip
    return "\n".join(
        (
            "# Kernels of traces, from shapes alone\n",
            f"On the trace's own GPU; *predicted*: the sum over the measured one. Families from {MIN_FAMILY_PCT} % of "
            "the GPU time on.\n",
            format_table(headings, (row for name, kernels in traces.items() for row in summarize_trace(name, kernels))),
            f"## Attention over whole sequences\n\nFrom {MIN_ATTENTION_US:g} µs on; equal shapes count once.\n",
            format_table(
                ("GPU", "kernels", "direction", "error, median", "worst", "shapes", "absolute, median", "in interval"),
                summarize_attention(pl.concat(traces.values(), how="diagonal_relaxed")),
            ),
        )
    )


def predict_traces(folder: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the name and kernels of each trace that names its GPU and has kernels of known work."""
    for path in sorted(folder.glob("*.json.gz")):
        if ".et." not in path.name:
            try:
                kernels = predict_from_shapes(path)
            except TracekitError:
                continue
            if kernels is not None and kernels.height:
                yield path.name.removesuffix(".json.gz"), kernels


def predict_from_shapes(path: Path) -> pl.DataFrame | None:
    """Return the kernels of a trace's measured steps with their prediction; None if it doesn't name its GPU."""
    run = prepare_run(tk.load(path))
    if run.gpu is None:
        return None
    table = add_measured_times(run.program)
    times = Batch(table.drop("measured_us")).on(run.gpu).select("time_us", "low_us", "high_us", "bound_us")
    predicted = pl.concat([table, times], how="horizontal").with_columns(gpu=pl.lit(run.gpu.slug))
    return predicted.filter(~pl.col("family").is_in(MOVING_FAMILIES), pl.col("measured_us") > 0)


def summarize_trace(name: str, kernels: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row of all kernels, and one of each family, the longest first."""
    total_us = float(kernels["measured_us"].sum())
    yield name, "all", *summarize_kernels(kernels, total_us)
    families = sorted(kernels.partition_by("family"), key=lambda rows: -float(rows["measured_us"].sum()))
    for rows in families:
        if 100 * float(rows["measured_us"].sum()) >= MIN_FAMILY_PCT * total_us:
            yield "", rows["family"][0], *summarize_kernels(rows, total_us)


def summarize_kernels(kernels: pl.DataFrame, total_us: float) -> tuple[str, ...]:
    """Return the cells of some kernels of a trace."""
    known = kernels.filter(
        pl.col("time_us").is_not_null(), pl.col("measured_us") >= MIN_TIME_OVER_BOUND * pl.col("bound_us")
    )
    measured_us, known_us = (float(rows["measured_us"].sum()) for rows in (kernels, known))
    shapes = known.group_by(SHAPE).agg(pl.col("measured_us", "time_us", "low_us", "high_us").median())
    return (
        f"{100 * measured_us / total_us:.0f} %",
        f"{100 * known_us / measured_us:.0f} %",
        f"{100 * (float(known['time_us'].sum()) / known_us - 1):+.0f} %" if known.height else "–",
        *format_kernel_errors(shapes.filter(pl.col("measured_us") >= MIN_US), "measured_us"),
    )


def summarize_attention(kernels: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each GPU, framework and direction, and one of all."""
    whole = kernels.filter(
        pl.col("family") == "attention",
        pl.col("paged").eq_missing(False),
        pl.col("q_len") >= MIN_QUERIES_PER_KEY * pl.col("kv_len"),
        pl.col("framework").is_not_null(),
        pl.col("time_us").is_not_null(),
    )
    times = pl.col("measured_us", "time_us", "low_us", "high_us").median()
    shapes = whole.group_by(ATTENTION_SHAPE, maintain_order=True).agg(times)
    shapes = shapes.filter(pl.col("measured_us") >= MIN_ATTENTION_US).sort("gpu", "framework", "direction")
    groups = [(tuple(map(str, key)), rows) for key, rows in shapes.group_by(ATTENTION_SHAPE[:3], maintain_order=True)]
    for key, rows in (*groups, (("all", "", ""), shapes)):
        error_pct = 100 * (rows["time_us"] / rows["measured_us"] - 1)
        worst = error_pct[error_pct.abs().arg_max() or 0]
        yield *key, f"{median(error_pct):+.0f} %", f"{worst:+.0f} %", *format_kernel_errors(rows, "measured_us")
