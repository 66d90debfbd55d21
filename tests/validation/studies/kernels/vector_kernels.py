"""Vector kernels and copies by their shapes against published times, to which nothing was fitted.

PyTorch's own kernels, one op at a time, and the best rates of copies of 4 to 380 MB; rates above the printed one of the
memory are left out.
"""

from collections.abc import Iterator
from statistics import median

import polars as pl

from predictors import load_gpu, predict
from predictors.kernels import DTYPE_BYTES
from predictors.training.published import FLOPS_PER_ELEMENT
from tests.validation.study import format_errors, format_table, format_yes, list_sources, read_published

INPUTS = ()
COPIED_BYTES = 1 << 28
OP_KERNELS: dict[str, tuple[tuple[str, str, float, str | None], ...]] = {
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
"""Op -> its kernels: family, direction, how many tensors of the op's size each reads and writes, and its part."""


def run() -> str:
    """Return the errors by op, of all, and of copies."""
    times = read_published("vector_kernels")
    rows = pl.concat(add_predictions(part) for _, part in times.group_by("gpu", maintain_order=True))
    rows = rows.with_columns(error_pct=100 * (pl.col("predicted_us") / pl.col("us") - 1))
    absolute = rows["error_pct"].abs()
    total = (str(absolute.len()), f"{median(absolute):.0f} %", f"{absolute.quantile(0.9):.0f} %")
    copies = read_published("copy_rates").select("gpu", "gbps")
    errors = {gpu: compute_copy_gbps(gpu) / gbps - 1 for gpu, gbps in copies.iter_rows()}
    return "\n".join(
        (
            "# Vector kernels and copies against published times\n",
            format_table(("op", "GPU", "type", "rows", "error, median", "worst"), summarize_ops(rows)),
            format_table(("rows", "absolute error, median", "90th percentile"), [total]),
            "## Copies on one GPU\n",
            format_table(
                ("GPU", "ECC", "datasheet, GB/s", "published copies", "of the datasheet", "predicted", "error"),
                list_copies(dict(copies.iter_rows()), errors),
            ),
            format_table(
                ("error, median", "absolute, median", "worst"), [format_errors([100 * one for one in errors.values()])]
            ),
            list_sources("vector_kernels", "copy_rates"),
        )
    )


def add_predictions(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `predicted_us`, the sum over an op's kernels, to the rows of one GPU."""
    kernels = rows.with_row_index().join(tabulate_op_kernels(), on="op")
    kernels = kernels.with_columns(elements=pl.col("rows") * pl.col("cols"))
    item_bytes = pl.col("dtype").replace_strict(DTYPE_BYTES, return_dtype=pl.Float64)
    flops = pl.col("family").replace_strict(FLOPS_PER_ELEMENT | {"memset": 0}, return_dtype=pl.Int64)
    table = kernels.select(
        *("family", "direction", "dtype", "rows", "cols", "part"),
        bytes=pl.col("tensors") * pl.col("elements") * item_bytes,
        flops=flops * pl.col("elements"),
    )
    times = kernels.select("index").with_columns(predict(table, rows["gpu"][0])["time_us"])
    total = times.group_by("index", maintain_order=True).agg(predicted_us=pl.col("time_us").sum())
    return rows.with_columns(total.sort("index")["predicted_us"])


def tabulate_op_kernels() -> pl.DataFrame:
    """Return a row for each kernel of each op."""
    listed = [(op, *kernel) for op, kernels in OP_KERNELS.items() for kernel in kernels]
    schema = {"op": pl.String, "family": pl.String, "direction": pl.String, "tensors": pl.Float64, "part": pl.String}
    return pl.DataFrame(listed, schema=schema, orient="row")


def summarize_ops(rows: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each op, GPU and type."""
    error = pl.col("error_pct")
    ops = rows.group_by("op", "gpu", "dtype", maintain_order=True).agg(
        pl.len(), median=error.median(), worst=error.get(error.abs().arg_max())
    )
    for op, gpu, dtype, count, middle, worst in ops.sort("op", "gpu").iter_rows():
        yield op, gpu, dtype, str(count), f"{middle:+.0f} %", f"{worst:+.0f} %"


def compute_copy_gbps(gpu: str) -> float:
    """Return the predicted rate of a large copy, bytes read and written."""
    copy = pl.DataFrame({"family": ["memcpy"], "bytes": [COPIED_BYTES], "copy_kind": ["DtoD"]})
    return 2 * COPIED_BYTES / float(predict(copy, gpu)["time_us"].item()) / 1e3


def list_copies(published_gbps: dict[str, float], errors: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each GPU."""
    for name, error in errors.items():
        gpu, gbps = load_gpu(name), published_gbps[name]
        printed = (f"{gpu.bandwidth_gbps:.0f}", str(gbps), f"{gbps / gpu.bandwidth_gbps:.2f}")
        yield name, format_yes(gpu.inline_ecc), *printed, f"{gbps * (1 + error):.0f}", f"{error:+.0%}"
