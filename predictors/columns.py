"""Kernel table -> the flat arrays that laws and features are computed on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from predictors.kernels import complete, with_law
from predictors.machine import Machine
from predictors.precision import runs_as
from predictors.stacks import key_reads, stack_on
from predictors.terms import Array, Columns
from predictors.work import attended, attended_keys, element_bytes, with_work

SERVING_FRAMEWORKS = ("sglang", "trtllm", "vllm")
"""Frameworks whose fp8 products were measured together with the quantisation of their input."""

ROW_FAMILIES = ("softmax", "norm")
"""Those that work on whole rows: of the others' rows a block takes many, or a part."""
VECTOR_BYTES = 16
"""What one thread loads at once where the addresses allow it."""
MANY = 1e9

Coded = tuple[list[str | None], npt.NDArray[np.int64]]

_NUMBERS = (
    "batch", "m", "n", "k", "rows", "cols", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "window",
    "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "work_flops", "work_bytes",
)  # fmt: skip


def prepare(kernels: pl.DataFrame, gpu: Machine | None = None) -> pl.DataFrame:
    """The checked kernel table as it runs on a GPU: `dtype` and `framework` as they are there, `law` and work added.

    Args:
        kernels: the caller's table.
        gpu: where it runs; decides the dtype and the attention kernels really used. None: those of the row.
    """
    return as_run(complete(kernels), gpu)


def as_run(table: pl.DataFrame, gpu: Machine | None) -> pl.DataFrame:
    """The same of a table from `kernels.complete`."""
    framework = pl.col("framework") if gpu is None else stack_on(gpu)
    runs = table["dtype"] if gpu is None else runs_as(table, gpu.gpu)
    table = with_law(table.with_columns(dtype=runs, asked=table["dtype"], framework=framework))
    kv_dtype = pl.when(element_bytes("kv_dtype") < element_bytes("dtype")).then("kv_dtype").otherwise("dtype")
    return with_work(table.with_columns(kv_dtype=kv_dtype))


@dataclass(frozen=True)
class Sizes:
    """Kernels that share a law as flat arrays, the same on every GPU that runs them in the same formats.

    Attributes:
        numbers: float64 arrays, one element a row; missing numbers are 1.
        frameworks: object array, None where a row names no framework; None where no row does.
        share: of its op's work that each kernel does.
        dtypes: the formats, and which of them each row runs in.
        copies: the kinds of copy, and which of them each row is.
    """

    numbers: Columns
    frameworks: npt.NDArray[np.object_] | None
    share: Array
    dtypes: Coded
    copies: Coded

    def on(self, gpu: Machine) -> Columns:
        """The numeric columns of a law, with the GPU's rates as `tflops` and `copy_gbps`."""
        (dtypes, dtype), (kinds, kind) = self.dtypes, self.copies
        tflops, copy_gbps = [gpu.tflops(d) for d in dtypes], [gpu.copy_gbps(k) for k in kinds]
        return {**self.numbers, "tflops": np.array(tflops)[dtype], "copy_gbps": np.array(copy_gbps)[kind]}


def sizes(table: pl.DataFrame) -> Sizes:
    """What the law is computed on, of rows from `prepare` that share a law."""
    frame = table.select(
        *(pl.col(name).fill_null(1.0) for name in _NUMBERS),
        size=element_bytes("dtype"),
        kv_size=element_bytes("kv_dtype"),
        attended=attended().fill_null(1.0),
        reach=attended_keys().fill_null(1.0),
        causal=pl.col("causal").cast(pl.Float64),
        key_reads=key_reads(on_mma=False),
        key_reads_on_mma=key_reads(on_mma=True),
        blocks=pl.col("blocks").fill_null(pl.when(pl.col("family").is_in(ROW_FAMILIES)).then("rows")).fill_null(MANY),
        elements=pl.coalesce(
            pl.col("rows") * pl.col("cols") * pl.col("share"), pl.col("work_bytes") / (2 * element_bytes("dtype"))
        ).fill_null(0.0),
        unaligned_loads=_unaligned("k"),
        unaligned_stores=_unaligned("n"),
        cold=_cold().cast(pl.Float64),
        uneven=(pl.col("cols") * element_bytes("dtype") % VECTOR_BYTES > 0).fill_null(False).cast(pl.Float64),
        passes=pl.when(pl.col("direction") == "backward").then(3.2).otherwise(1.0),
        skewed=pl.when(pl.col("routing").str.starts_with("power"))
        .then(pl.col("routing").str.extract(r"(\d+\.?\d*)$").cast(pl.Float64).fill_null(1.0))
        .otherwise(0.0),
        quantised_input=(
            pl.col("framework").is_in(SERVING_FRAMEWORKS) & pl.col("dtype").is_in(["fp8", "fp8_block", "nvfp4"])
        ).fill_null(False).cast(pl.Float64),
    )  # fmt: skip
    numbers = {name: np.ascontiguousarray(frame[name].to_numpy()) for name in frame.columns}
    named = table["framework"].null_count() < table.height
    frameworks = table["framework"].to_numpy().astype(object) if named else None
    return Sizes(numbers, frameworks, table["share"].to_numpy(), _coded(table["dtype"]), _coded(table["copy_kind"]))


def _unaligned(size: str) -> pl.Expr:
    """Accesses per element of a product's rows of some length, where they don't start at multiples of 16 bytes; else 0.

    Four bytes at once is what is left then, two of an odd number of 16-bit elements (cuBLAS's align2, align1 kernels).
    """
    element = element_bytes("dtype")
    row = pl.col(size) * element
    accesses = pl.when(row % VECTOR_BYTES == 0).then(0.0).when(row % 4 == 0).then(element / 4).otherwise(1.0)
    return pl.when(pl.col("family") == "gemm").then(accesses).otherwise(0.0).fill_null(0.0)


def _cold() -> pl.Expr:
    """Whether a product's weights come from memory, as in a job; a benchmark's loop finds them in the cache.

    Products in a batch are of two activations, which were just computed and are in the cache.
    """
    one_by_many = (pl.col("batch") == 1) & (pl.col("m") > 1) & (pl.col("n") > 1)
    return (one_by_many & pl.col("framework").is_null()).fill_null(False)


def law_columns(table: pl.DataFrame, gpu: Machine) -> Columns:
    """The numeric columns of rows that share a law, on a GPU.

    Args:
        table: from `prepare`.
        gpu: whose rates go into `tflops` and `copy_gbps`.
    """
    return sizes(table).on(gpu)


def _coded(names: pl.Series) -> Coded:
    known = names.unique().to_list()
    codes = names.replace_strict(known, list(range(len(known))), return_dtype=pl.Int64)
    return known, codes.to_numpy().astype(np.int64)
