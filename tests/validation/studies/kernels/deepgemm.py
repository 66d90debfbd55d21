"""DeepGEMM's published rates on an H800: products in fp8 with scales of blocks, and grouped ones of experts.

Nothing was fitted to them, nor to an H800. As in a job, another kernel has quantised the input.
"""

from collections.abc import Iterator

import polars as pl

from predictors import predict
from tests.validation.study import format_table, list_sources, read_published

INPUTS = ()
GPU = "h800-sxm"
TOLD: dict[str, dict[str, object]] = {"nothing": {}, "the library": {"framework": "deepgemm"}}


def run() -> str:
    """Return a table by what is told, and one of each product."""
    rows = read_published("deepgemm").with_columns(
        us=2 * pl.col("groups") * pl.col("m") * pl.col("n") * pl.col("k") / pl.col("tflops") / 1e6
    )
    predicted = {told: add_predictions(rows, columns) for told, columns in TOLD.items()}
    kinds = ("dense", "contiguous", "masked")
    lines = (line for told, table in predicted.items() for line in summarize(told, table, kinds))
    return "\n".join(
        (
            "# DeepGEMM's published products\n",
            format_table(("told", "products", "number", "error, median", "90th percentile", "in interval"), lines),
            format_table(("layout", "groups", "m", "n", "k", "us", "predicted", "error"), list_products(predicted)),
            list_sources("deepgemm"),
        )
    )


def add_predictions(rows: pl.DataFrame, told: dict[str, object]) -> pl.DataFrame:
    """Add the prediction of each product and its error in percent."""
    kernels = rows.select(
        *("m", "n", "k"), batch="groups", family=pl.lit("gemm"), dtype=pl.lit("fp8_block"),
        **{name: pl.lit(value) for name, value in told.items()},
    )  # fmt: skip
    times = predict(kernels, GPU).select("time_us", "low_us", "high_us")
    return rows.hstack(times).with_columns(
        error=100 * (pl.col("time_us") / pl.col("us") - 1), inside=pl.col("us").is_between("low_us", "high_us")
    )


def summarize(told: str, table: pl.DataFrame, kinds: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each layout."""
    error = pl.col("error").abs()
    stats = (error.median().alias("median"), error.quantile(0.9).alias("p90"), pl.col("inside").sum(), pl.len())
    for kind in kinds:
        median, p90, inside, count = table.filter(layout=kind).select(stats).row(0)
        yield told, kind, str(count), f"{median:.0f} %", f"{p90:.0f} %", f"{inside} of {count}"


def list_products(predicted: dict[str, pl.DataFrame]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each product, with the library told."""
    columns = ("layout", "groups", "m", "n", "k", "us", "time_us", "error")
    for *named, us, time_us, error in [*predicted.values()][-1].select(columns).iter_rows():
        yield *map(str, named), f"{us:.1f}", f"{time_us:.1f}", f"{error:+.0f} %"
