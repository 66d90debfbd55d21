"""Kernel table -> the flat arrays that laws and features are computed on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats, Frameworks
from predictors.coded import Coded
from predictors.kernels import DTYPE_BYTES, ROW_FAMILIES, complete, with_law
from predictors.machine import Machine
from predictors.precision import runs_as
from predictors.stacks import SERVING_FRAMEWORKS, block_queries, key_reads, made_for_mma, of_the_law, stack_on
from predictors.terms import MANY, Columns
from predictors.work import BYTES, attended, attended_keys, element_bytes, with_work

VECTOR_BYTES = 16
"""What one thread loads at once where the addresses allow it."""
SMALL_BLOCK = 128
"""Threads of a block whose size nobody knows, as those of PyTorch's layer norm."""

_NUMBERS = (
    "batch", "m", "n", "k", "rows", "cols", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "window",
    "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "work_flops", "work_bytes", "share", "causal",
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
    table = table.with_columns(framework=of_the_law())
    size, kv_size = (pl.col(name).replace_strict(DTYPE_BYTES, default=BYTES) for name in ("dtype", "kv_dtype"))
    return with_work(
        table.with_columns(
            kv_dtype=pl.when(kv_size < size).then("kv_dtype").otherwise("dtype"), on_mma=made_for_mma(gpu)
        )
    )


@dataclass(frozen=True)
class Sizes:
    """Kernels that share a law as flat arrays, the same on every GPU that runs them in the same formats.

    Attributes:
        numbers: float64 arrays, one element a row; missing numbers are 1.
        frameworks: object array, None where a row names no framework; None where no row does.
        share: of its op's work that each kernel does.
        dtypes: the format that each row runs in.
        copies: the kind of copy that each row is.
    """

    numbers: Columns
    frameworks: Frameworks
    share: Floats
    dtypes: Coded
    copies: Coded

    def on(self, gpu: Machine) -> Columns:
        """The numeric columns of a law, with the GPU's rates as `tflops` and `copy_gbps`."""
        return {**self.numbers, "tflops": self.dtypes.map(gpu.tflops), "copy_gbps": self.copies.map(gpu.copy_gbps)}


def sizes(table: pl.DataFrame) -> Sizes:
    """What the law is computed on, of rows from `prepare` that share a law."""
    names = ("family", "framework", "dtype", "kv_dtype", "copy_kind", "routing", "direction", "part")
    family, framework, dtype, kv_dtype, copies, routing, direction, part = (Coded.of(table[name]) for name in names)
    rows, cols, blocks, threads = (table[name].to_numpy() for name in ("rows", "cols", "blocks", "threads_per_block"))
    x = {name: _known(table[name]) for name in _NUMBERS}
    x |= {"size": dtype.map(element_bytes), "kv_size": kv_dtype.map(element_bytes)}
    gemm, served = family.among("gemm"), framework.among(*SERVING_FRAMEWORKS)
    # Narrower formats run on rows of whole 16 bytes only (cuBLASLt), so libraries pad them.
    wide = x["size"] >= 2
    # A job's weights come from memory; a benchmark's loop finds them in the cache, as does a product in a batch its
    # operands: two activations, which were just computed.
    one_by_many = (x["batch"] == 1) & (x["m"] > 1) & (x["n"] > 1)
    weighted = one_by_many | family.among("moe")
    x |= {name: _holds(table[name]) for name in ("indexed", "across")}
    x |= {
        "attended": attended(x),
        "reach": attended_keys(x),
        "key_reads": key_reads(x, framework, on_mma=False),
        "key_reads_on_mma": key_reads(x, framework, on_mma=True),
        "blocks": _else(_else(blocks, np.where(family.among(*ROW_FAMILIES), rows, MANY)), MANY),
        "threads": _else(threads, SMALL_BLOCK),
        "elements": _else(rows * cols * x["share"], x["work_bytes"] / (2 * x["size"])),
        "sums": part.among("sums").astype(np.float64),
        "waits": part.among("rows", "squares").astype(np.float64),
        "meets": part.among("rows", "squares", "tree").astype(np.float64),
        "generated": part.among("fused").astype(np.float64),
        "of_rows": family.among(*ROW_FAMILIES).astype(np.float64),
        "squares": part.among("squares").astype(np.float64),
        "unaligned_loads": wide * _accesses(_side_by_side(table, x, family, direction) * x["size"], x["size"]),
        "unaligned_stores": wide * gemm * _accesses(x["n"] * x["size"], x["size"]),
        "cold": (weighted & framework.among(None)).astype(np.float64),
        "uneven": _uneven(cols * x["size"], VECTOR_BYTES).astype(np.float64),
        "block_queries": block_queries(framework),
        "backward": direction.among("backward").astype(np.float64),
        "skewed": routing.map(_skew),
        **_of_convolution(table, x, family, direction),
        "quantised_input": (served & dtype.among("fp8", "fp8_block", "nvfp4")).astype(np.float64),
    }
    frameworks = None if framework.names == (None,) else framework.map(lambda name: name)
    return Sizes(x, frameworks, x["share"], dtype, copies)


def law_columns(table: pl.DataFrame, gpu: Machine) -> Columns:
    """The numeric columns of rows that share a law, on a GPU.

    Args:
        table: from `prepare`.
        gpu: whose rates go into `tflops` and `copy_gbps`.
    """
    return sizes(table).on(gpu)


def _known(column: pl.Series) -> Floats:
    """Numbers, 1 where there is none."""
    return np.ones(column.len()) if column.null_count() == column.len() else _else(column.to_numpy(), 1.0)


def _holds(column: pl.Series) -> Floats:
    """1 where it does, 0 where it doesn't or nobody knows."""
    return column.fill_null(value=False).cast(pl.Float64).to_numpy()


def _else(column: Floats, other: Floats | float) -> Floats:
    missing = np.isnan(column)
    return np.asarray(np.where(missing, other, column)) if missing.any() else column


def _side_by_side(table: pl.DataFrame, x: Columns, family: Coded, direction: Coded) -> Floats:
    """Elements side by side in operands: the depth of a product, a convolution's channels; 0 where nobody knows."""
    channels = np.where(direction.among("dgrad"), x["k"], table["channels"].fill_null(0.0).to_numpy())
    return np.where(family.among("gemm"), x["k"], np.where(family.among("conv"), channels, 0.0))


def _of_convolution(table: pl.DataFrame, x: Columns, family: Coded, direction: Coded) -> Columns:
    """What Winograd's algorithms see of convolutions; nothing of other families.

    Images of unknown size count as made of whole tiles, windows of unknown size as 3x3.
    """
    if not family.among("conv").any():
        return {}
    of_data, of_weights = direction.among("dgrad"), direction.among("wgrad")
    pixels, window = np.where(of_weights, x["k"], x["m"]), np.where(of_data | of_weights, x["n"], x["k"])
    channels = _else(np.maximum(table["channels"].to_numpy(), 1.0), window / 9)
    height, width = (_else(np.maximum(table[name].to_numpy(), 1.0), 4.0) for name in ("height", "width"))
    return {
        "images": pixels / (height * width),
        "height": height,
        "width": width,
        "window_size": window / channels,
        "inputs": np.where(of_data, x["k"], channels),
        "filters": np.where(of_data, channels, np.where(of_weights, x["m"], x["n"])),
        "of_weights": of_weights.astype(np.float64),
    }


def _accesses(row_bytes: Floats, element_bytes: Floats) -> Floats:
    """Accesses per element of a product's rows where they don't start at multiples of 16 bytes; else 0.

    Four bytes at once is what is left then, two of an odd number of 16-bit elements (cuBLAS's align2, align1 kernels).
    """
    return np.asarray(_uneven(row_bytes, VECTOR_BYTES) * np.maximum(_uneven(row_bytes, 4), element_bytes / 4))


def _uneven(size: Floats, of: int) -> Bools:
    """Whether a size isn't a multiple of a power of two, in a tenth of a remainder's time."""
    return np.asarray(np.floor(size / of) < size / of)


def _skew(routing: str | None) -> float:
    """Exponent of the power law by which tokens choose experts; 0 where they choose evenly."""
    if routing is None or not routing.startswith("power"):
        return 0.0
    found = re.search(r"\d+\.?\d*$", routing)
    return float(found[0]) if found else 1.0
