"""Tabulate measured kernels of traces, from which the predictors learn short and vector kernels.

python -m tests.validation.tabulate_traces TRACE[=GPU]... -o predictors/training/traces.parquet

Each distinct kernel of a trace once, with its usual time; the GPU is named where the trace doesn't say. Other traces'
kernels stay in the table. Left out is
what says little or is measured elsewhere: bracketed work, irregular ops, convolutions in fp32, what a compiler
generated, kernels beside which another ran, and times under the bound.
"""

import argparse
from pathlib import Path

import polars as pl

import tracekit as tk
from predictors import columns
from predictors.hardware import Hardware, derive_hardware
from predictors.kernels import ROW_FAMILIES
from predictors.model import split_by_law
from predictors.training.traces import TRACE_COLUMNS, TRACE_FAMILIES, WORK_COLUMNS
from predictors.work import compute_bound_us
from tracekit.run import prepare_run
from tracekit.workload.op_work import FUSED_PART

IRREGULAR = r"adaptive|fbgemm|index|sort|scatter|unique|nonzero|miopen"
"""Ops whose time follows from where their indices point, or from how small their windows are."""
WHOLE_ONLY = ("conv", "embedding", *ROW_FAMILIES)
"""Families of which a kernel that does a part of its op's work says little."""
WHOLE = 0.98
"""Share of its op's work from which a kernel does all but what sets it up."""
ALONE = 0.1
"""Share of a kernel's time for which another may run beside it."""


def tabulate_trace(path: Path, gpu: str | None) -> pl.DataFrame:
    """Return the distinct kernels of one trace.

    Args:
        path: The trace.
        gpu: The GPU that it was recorded on, where the trace doesn't say.
    """
    run = prepare_run(tk.load(path), source_gpu=gpu)
    assert run.gpu is not None, f"{path} doesn't say which GPU it was recorded on: name it"
    alone = run.kernels.sort("ts_ns").with_columns(beside=overlaps_another())
    # The positions of maxima, which max pooling writes down, scatter nothing.
    name = pl.concat_str("op", "name", ignore_nulls=True).str.replace("with_indices", "")
    work = [column if column in alone.columns else pl.lit(None, pl.Int64).alias(column) for column in WORK_COLUMNS]
    usable = alone.filter(
        pl.col("family").is_in(TRACE_FAMILIES),
        pl.col("work_low").is_null(),
        pl.col("dur_ns") > 0,
        ~pl.col("beside"),
        (pl.col("family") == "embedding") | ~name.str.contains(IRREGULAR),
        (pl.col("family") != "conv") | (pl.col("dtype") != "fp32"),
        ~pl.col("family").is_in(WHOLE_ONLY) | (pl.col("share") > WHOLE),
        pl.col("part").ne_missing(FUSED_PART),
    ).select(*work, measured_us=pl.col("dur_ns") / 1e3)
    kernels = usable.group_by(WORK_COLUMNS, maintain_order=True).agg(
        summarize_times(), pl.len().cast(pl.Int32).alias("count")
    )
    kept = kernels.filter(compute_bounds_us(kernels, derive_hardware(run.gpu)) <= pl.col("measured_us"))
    trace = path.name.removesuffix(".gz").removesuffix(".json")
    return kept.with_columns(gpu=pl.lit(run.gpu.slug), trace=pl.lit(trace)).select(TRACE_COLUMNS)


def compute_bounds_us(kernels: pl.DataFrame, gpu: Hardware) -> pl.Series:
    """Return the bound of each kernel; null where its work isn't known."""
    bound: list[float | None] = [None] * kernels.height
    for part in split_by_law(columns.prepare_kernels(kernels, gpu)).chunks:
        for row, us in zip(part.rows, compute_bound_us(part.law, part.inputs.to_columns(gpu), gpu), strict=True):
            bound[row] = us
    return pl.Series(bound, dtype=pl.Float64)


def overlaps_another() -> pl.Expr:
    """Return whether another kernel ran for more than `ALONE` of a kernel's time."""
    start, end, own = pl.col("ts_ns"), pl.col("ts_ns") + pl.col("dur_ns"), pl.col("dur_ns") * ALONE
    before = end.cum_max().shift(1).fill_null(0)
    after = start.shift(-1).fill_null(end.max())
    return (before - start > own) | (end - after > own)


def summarize_times() -> pl.Expr:
    """Return the median time; of whole microseconds the mean, in which the rounding cancels."""
    whole = (pl.col("measured_us") == pl.col("measured_us").round()).all()
    time = pl.when(whole).then(pl.col("measured_us").mean()).otherwise(pl.col("measured_us").median())
    return time.round_sig_figs(4).cast(pl.Float32).alias("measured_us")


def main() -> None:
    """Write the table of the traces named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", metavar="TRACE[=GPU]")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    named = [text.partition("=") for text in args.traces]
    frames = [tabulate_trace(Path(path), gpu or None) for path, _, gpu in named]
    new = pl.concat(frames)
    kept = (
        pl.read_parquet(args.output).filter(~pl.col("trace").is_in(new["trace"].unique().implode()))
        if args.output.exists()
        else None
    )
    table = (new if kept is None else pl.concat([kept, new])).sort(
        "gpu", "trace", "family", *WORK_COLUMNS[1:], maintain_order=True
    )
    table.write_parquet(args.output, compression="zstd", compression_level=19)
    print(table.group_by("gpu", "family").len().sort("gpu", "family"))


if __name__ == "__main__":
    main()
