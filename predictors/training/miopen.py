"""Read the find databases that MIOpen ships: the times of its solvers of each convolution on AMD GPUs.

A line is ``KEY=SOLVER:MILLISECONDS,WORKSPACE,ALGORITHM;...``. The key is channels, height and width of the input,
window, channels, height and width of the output, images, padding, stride, dilation, bias, layout, type, direction and
groups, for example of a gradient of the input

    192-9-9-3x3-320-17-17-64-1x1-2x2-1x1-0-NCHW-FP32-B_g2

Input and output are those of the pass, not of the forward pass (``ProblemDescription::Serialize``): the input of both
gradients is the gradient of what the forward pass put out.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from predictors.kernels import DTYPE_BYTES

DATABASES = {
    "gfx90878.HIP.fdb.txt.bz2": "mi100",
    "gfx90a68.HIP.fdb.txt.bz2": "mi210",
    "gfx90a6e.HIP.fdb.txt.bz2": "mi250x",
    "gfx942130.HIP.fdb.txt.bz2": "mi300x",
}
"""Files under src/kernels of a checkout, by architecture and compute units in hexadecimal, and the GPU of each."""
TABLE = "conv.parquet"
"""A table of the fastest solvers, whose columns hold what a key does in the same sense."""
DTYPES = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16"}
DIRECTIONS = {"F": "forward", "B": "dgrad", "W": "wgrad", "forward": "forward", "backward_data": "dgrad",
              "backward_weight": "wgrad"}  # fmt: skip
LAYOUT = "NCHW"
"""What nearly all lines are of."""
_KEY = (
    r"^(?P<channels>\d+)-(?P<height>\d+)-(?P<width>\d+)-(?P<kernel_h>\d+)x(?P<kernel_w>\d+)-(?P<filters>\d+)-\d+-\d+-"
    r"(?P<batch>\d+)-(?P<pad_h>\d+)x(?P<pad_w>\d+)-(?P<stride_h>\d+)x(?P<stride_w>\d+)-"
    r"(?P<dilation_h>\d+)x(?P<dilation_w>\d+)-\d+-(?P<layout>[A-Z]+)-(?P<dtype>[A-Z0-9]+)-(?P<direction>[FBW])"
    r"(?:_g(?P<groups>\d+))?=(?P<solvers>.*)$"
)
_NUMBERS = ("batch", "channels", "height", "width", "filters", "kernel_h", "kernel_w", "pad_h", "pad_w", "stride_h",
            "stride_w", "dilation_h", "dilation_w", "groups")  # fmt: skip


def load(folder: Path) -> Iterator[pl.DataFrame]:
    """Read the measurements in the columns of ``predictors.kernels``, one frame for each GPU.

    Args:
        folder: Checkout of MIOpen, or a folder with our table of its databases. Of both, the checkout is read.
    """
    kernels = folder / "src" / "kernels"
    databases = {path: gpu for name, gpu in DATABASES.items() if (path := kernels / name).exists()}
    for path, gpu in databases.items():
        yield _describe_convolutions(_read_database(path).with_columns(gpu=pl.lit(gpu)))
    if not databases and (folder / TABLE).exists():
        names = pl.col("gpu", "direction", "dtype", "layout").cast(pl.String)
        for one in pl.read_parquet(folder / TABLE).with_columns(names).partition_by("gpu", maintain_order=True):
            yield _describe_convolutions(one)


def _read_database(path: Path) -> pl.DataFrame:
    """Read the keys of a database and the time of each one's fastest solver; those without a time are left out."""
    lines = pl.Series("line", bz2.decompress(path.read_bytes()).decode().splitlines(), dtype=pl.String)
    keys = lines.str.extract_groups(_KEY).struct.unnest().drop_nulls("channels")
    times = (
        pl.col("solvers")
        .str.extract_all(r":[0-9.e+-]+,")
        .list.eval(pl.element().str.strip_chars(":,").cast(pl.Float64, strict=False))
    )
    fastest_ms = times.list.eval(pl.element().filter(pl.element() > 0)).list.min()
    numbers = pl.col(_NUMBERS).cast(pl.Int64)
    return keys.with_columns(numbers, us=fastest_ms * 1e3).with_columns(pl.col("groups").fill_null(1)).drop_nulls("us")


def _describe_convolutions(keys: pl.DataFrame) -> pl.DataFrame:
    """Return the convolutions as kernels."""
    known = keys.with_columns(
        dtype=pl.col("dtype").replace_strict(DTYPES, default=None, return_dtype=pl.String),
        direction=pl.col("direction").replace_strict(DIRECTIONS),
    ).filter(pl.col("layout") == LAYOUT, pl.col("dtype").is_not_null())
    shaped = known.with_columns(**_build_image_columns()).filter(pl.col("out_h") > 0, pl.col("out_w") > 0)
    return shaped.select("gpu", "dtype", "direction", **_build_work_columns())


def _build_image_columns() -> dict[str, pl.Expr]:
    """Return channels and sizes of the forward pass's input and output images.

    Of a gradient the key has the smaller images. The larger ones are taken as large as they may be, as those of
    networks are: 224 for 112 with a window of 7, a stride of 2 and a padding of 3.
    """
    is_gradient = pl.col("direction") != "forward"
    columns = {
        "inputs": pl.when(is_gradient).then("filters").otherwise("channels"),
        "outputs": pl.when(is_gradient).then("channels").otherwise("filters"),
    }
    for axis, size in (("h", "height"), ("w", "width")):
        window, pad, stride, dilation = (pl.col(f"{name}_{axis}") for name in ("kernel", "pad", "stride", "dilation"))
        reach = dilation * (window - 1) + 1
        shrunk = (pl.col(size) + 2 * pad - reach) // stride + 1
        grown = pl.col(size) * stride - 2 * pad + reach - 1
        columns[f"in_{axis}"] = pl.when(is_gradient).then(grown).otherwise(size).clip(1)
        columns[f"out_{axis}"] = pl.when(is_gradient).then(size).otherwise(shrunk)
    return columns


def _build_work_columns() -> dict[str, pl.Expr]:
    """Return the implicit product of each pass, its images and bytes, and its time."""
    groups, direction = pl.col("groups"), pl.col("direction")
    pixels = pl.col("batch") * pl.col("out_h") * pl.col("out_w")
    filters, channels = pl.col("outputs") // groups, pl.col("inputs") // groups
    depth = channels * pl.col("kernel_h") * pl.col("kernel_w")
    read = pl.col("batch") * pl.col("inputs") * pl.col("in_h") * pl.col("in_w")
    moved = read + pixels * pl.col("outputs") + pl.col("outputs") * depth
    return {
        "family": pl.lit("conv"),
        "source": pl.lit("graph"),
        "batch": groups,
        "m": pl.when(direction == "wgrad").then(filters).otherwise(pixels),
        "n": pl.when(direction == "forward").then(filters).otherwise(depth),
        "k": pl.when(direction == "forward").then(depth).when(direction == "dgrad").then(filters).otherwise(pixels),
        "channels": channels,
        "height": pl.col("out_h"),
        "width": pl.col("out_w"),
        "bytes": moved * pl.col("dtype").replace_strict(DTYPE_BYTES, return_dtype=pl.Float64),
        "latency_us": pl.col("us"),
    }
