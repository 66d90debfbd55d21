"""Holds times of vector kernels against published ones to which nothing was fitted.

python -m tests.validation.studies.vectors [--rows]

PyTorch's own kernels, one op at a time; ``--rows`` prints each. Sources: liger, linkedin/Liger-Kernel at ead96b61,
benchmark/data/all_benchmark_data.csv, _cutile.csv and _cutedsl.csv; flydsl, ROCm/FlyDSL pull requests 855 and 1019 (the
GPU by a comment in the kernel); hipkittens, HazyResearch/HipKittens pull request 53; softmaxkernel,
Prathmesh234/SoftmaxKernel; ottoky, OttoKy/triton-kernels; fusion, resume-site-4js.pages.dev/experiments; oink,
meta-pytorch/KernelAgent at a3001c7, oink/benchmarks; casts, transpose, pytorch/pytorch pull requests 137053 (times
after) and 194310; flaggems, flagos-ai/FlagGems issue 4558 (the GPU by its rate); cudnn, NVIDIA/cudnn-frontend at
3929da2, benchmark/norms/results, what PyTorch took, of 20 µs and more.
"""

import sys
from pathlib import Path

import polars as pl

from predictors import predict
from predictors.kernels import DTYPE_BYTES
from predictors.training.published import FLOPS_PER_ELEMENT
from tests.validation.tables import print_table

TABLE = Path(__file__).parents[1] / "published" / "vector_kernels.csv"
KERNELS: dict[str, tuple[tuple[str, str, float, str | None], ...]] = {
    "add": (("elementwise", "forward", 3, None),),
    "cast": (("elementwise", "forward", 1.5, None),),
    "copy": (("elementwise", "forward", 2, None),),
    "softmax": (("softmax", "forward", 2, None),),
    "softmax_backward": (("elementwise", "forward", 3, None), ("softmax", "backward", 3, None)),
    "cross_entropy": (("softmax", "forward", 2, None),),
    "cross_entropy_backward": (("memset", "forward", 1, None), ("softmax", "backward", 3, None)),
    "layer_norm": (("norm", "forward", 2, "rows"),),
    "rms_norm": (("norm", "forward", 2, "squares"),),
    "layer_norm_backward": (("norm", "backward", 3, "rows"), ("norm", "backward", 2, None)),
    "rms_norm_backward": (("norm", "backward", 3, "squares"), ("norm", "backward", 2, None)),
}
"""The kernels of each op: family, direction, how many tensors of the op's size each reads and writes, and its part."""


def main() -> None:
    """Prints the tables."""
    rows = pl.concat(predicted(part) for _, part in pl.read_csv(TABLE).group_by("gpu", maintain_order=True))
    rows = rows.with_columns(error=100 * (pl.col("predicted") / pl.col("us") - 1))
    if "--rows" in sys.argv:
        print_table("| GPU | op | shape | published, µs | predicted | error |", map(line, rows.iter_rows(named=True)))
    ops = rows.group_by("op", "gpu", "dtype", maintain_order=True).agg(
        pl.len().alias("rows"),
        bias=pl.col("error").median(),
        worst=pl.col("error").get(pl.col("error").abs().arg_max()),
    )
    print_table(
        "| op | GPU | | rows | error, median | worst |",
        (
            f"| {op} | {gpu} | {dtype} | {count} | {bias:+.0f} % | {worst:+.0f} % |"
            for op, gpu, dtype, count, bias, worst in ops.sort("op", "gpu").iter_rows()
        ),
    )
    off = rows["error"].abs()
    print_table(
        "| all | absolute, median | 90th percentile |",
        [f"| {off.len()} | {off.median():.0f} % | {off.quantile(0.9):.0f} % |"],
    )


def predicted(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of one GPU with what their kernels are predicted to take in all."""
    kernels = rows.with_row_index().join(_kernels(), on="op").with_columns(elements=pl.col("rows") * pl.col("cols"))
    size = pl.col("dtype").replace_strict(DTYPE_BYTES, return_dtype=pl.Float64)
    flops = pl.col("family").replace_strict(FLOPS_PER_ELEMENT | {"memset": 0}, return_dtype=pl.Int64)
    table = kernels.select(
        *("family", "direction", "dtype", "rows", "cols", "part"),
        bytes=pl.col("tensors") * pl.col("elements") * size,
        flops=flops * pl.col("elements"),
    )
    times = kernels.select("index").with_columns(predict(table, rows["gpu"][0])["time_us"])
    total = times.group_by("index", maintain_order=True).agg(predicted=pl.col("time_us").sum())
    return rows.with_columns(total.sort("index")["predicted"])


def line(row: dict[str, object]) -> str:
    """A row of the whole table."""
    shape = f"{row['rows']} × {row['cols']} {row['dtype']}"
    return (
        f"| {row['gpu']} | {row['op']} | {shape} | {row['us']:.0f} | {row['predicted']:.0f} | {row['error']:+.0f} % |"
    )


def _kernels() -> pl.DataFrame:
    listed = [(op, *kernel) for op, kernels in KERNELS.items() for kernel in kernels]
    schema = {"op": pl.String, "family": pl.String, "direction": pl.String, "tensors": pl.Float64, "part": pl.String}
    return pl.DataFrame(listed, schema=schema, orient="row")


if __name__ == "__main__":
    main()
