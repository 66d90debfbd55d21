"""Convert a kernel table to the flat arrays that laws and features are computed from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import polars as pl

from predictors.arrays import Bools, CategoricalColumn, Columns, Floats, Frameworks, Ints, encode_names
from predictors.hardware import Hardware, resolve_dtype
from predictors.kernel_identity import (
    SERVING_FRAMEWORKS,
    count_key_reads,
    get_block_queries,
    is_made_for_mma,
    is_unsplit,
    restrict_framework_to_law,
    select_stack,
)
from predictors.kernels import (
    DTYPE_BYTES,
    HYPER_PARTS,
    INDEXER_LAW,
    LIBRARY_PART,
    ROW_FAMILIES,
    add_law,
    complete_columns,
    name_miopen_laws,
)
from predictors.laws.terms import UNKNOWN_BLOCK_COUNT
from predictors.quantising import (
    PER_TENSOR,
    PER_TENSOR_DTYPE,
    PER_TENSOR_ENGINE,
    QUANTISED_DTYPES,
    count_quantised_bytes,
)
from predictors.work import (
    DEFAULT_ELEMENT_BYTES,
    add_work,
    count_attended_keys,
    count_attended_pairs,
    count_mask_bytes,
    get_element_bytes,
)

VECTOR_LOAD_BYTES = 16
"""What one thread loads at once where the addresses allow it."""
DEFAULT_BLOCK_THREADS = 128
"""Threads of a block whose size nobody knows, as those of PyTorch's layer norm."""

_NUMERIC_COLUMNS = (
    "batch", "m", "n", "k", "rows", "cols", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "window",
    "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "work_flops", "work_bytes", "share", "causal",
)  # fmt: skip
_ARRAY_COLUMNS = (
    *_NUMERIC_COLUMNS,
    "blocks",
    "threads_per_block",
    "channels",
    "channels_first",
    "height",
    "width",
    "indexed",
    "across",
    "serial_clocks",
    "warp_clocks",
    "accessed_bytes",
    "reuse_bytes",
    "distinct_bytes",
    "streamed_bytes",
    "host_bytes",
    "mask_batch",
    "mask_heads",
    "mask_bytes",
    "paged",
    "in_job",
    "release",
)
_PLAIN_COLUMNS = ("indexed", "across", "paged", "serial_clocks", "reuse_bytes", "distinct_bytes")
_SHARED_COLUMNS = ("warp_clocks", "accessed_bytes", "streamed_bytes", "host_bytes")
"""Of the whole op: a kernel has its share."""
_LAW_NAMES = ("family", "framework", "engine", "dtype", "kv_dtype", "copy_kind", "routing", "direction", "part")
_NAME_COLUMNS = [*_LAW_NAMES, "law"]
UNKNOWN_RELEASE = -1.0
_ENGINE_COLUMNS = tuple(f"of_{name}" for name in SERVING_FRAMEWORKS)


def prepare_kernels(kernels: pl.DataFrame, gpu: Hardware | None = None) -> pl.DataFrame:
    """The checked kernel table as it runs on a GPU: `dtype` and `framework` as they are there, `law` and work added.

    Args:
        kernels: Kernel table of the caller.
        gpu: GPU that the kernels run on. It decides which dtype and which attention kernels are really used. None keeps
            those of the row.
    """
    return adapt_to_gpu(complete_columns(kernels), gpu)


def adapt_to_gpu(table: pl.DataFrame, gpu: Hardware | None) -> pl.DataFrame:
    """The same of a table from `complete_columns`."""
    framework = pl.col("framework") if gpu is None else select_stack(gpu)
    runs = pl.col("dtype") if gpu is None else resolve_dtype(gpu.gpu)
    table = add_law(table.with_columns(dtype=runs, asked=pl.col("dtype"), framework=framework))
    if gpu is not None:
        table = table.with_columns(name_miopen_laws(pl.lit(gpu.gpu.vendor == "amd")))
    table = table.with_columns(framework=restrict_framework_to_law(), kv_dtype=_build_narrower_dtype())
    return add_work(table.with_columns(on_mma=is_made_for_mma(gpu)))


@cache  # it takes longer to build than to evaluate
def _build_narrower_dtype() -> pl.Expr:
    """Return the format of keys and values, which isn't wider than that of the arithmetic."""
    size, kv_size = (
        pl.col(name).replace_strict(DTYPE_BYTES, default=DEFAULT_ELEMENT_BYTES) for name in ("dtype", "kv_dtype")
    )
    return pl.when(kv_size < size).then("kv_dtype").otherwise("dtype")


@dataclass(frozen=True)
class LawInputs:
    """Kernels that share a law as flat arrays, the same on every GPU that runs them in the same formats.

    Attributes:
        numbers: float64 arrays with one element per row. Missing numbers are 1.
        frameworks: Object array, None where a row names no framework. None if no row names one.
        share: Fraction of its op's work that each kernel does.
        dtypes: Dtype that each row runs in.
        copy_kinds: Direction of the copy of each row ('HtoD', 'DtoH', ...).
    """

    numbers: Columns
    frameworks: Frameworks
    share: Floats
    dtypes: CategoricalColumn
    copy_kinds: CategoricalColumn

    def take(self, rows: Ints) -> LawInputs:
        """Some rows."""
        return LawInputs(
            {name: column[rows] for name, column in self.numbers.items()},
            None if self.frameworks is None else self.frameworks[rows],
            self.share[rows],
            self.dtypes.take(rows),
            self.copy_kinds.take(rows),
        )

    def without_masks(self) -> LawInputs:
        """The same rows without the bias or mask of attention."""
        masks = self.numbers["masks"]
        if not masks.any():
            return self
        moved = self.numbers["work_bytes"] - masks * self.share
        return replace(self, numbers={**self.numbers, "work_bytes": moved, "masks": np.zeros_like(masks)})

    def get_quantising(self) -> LawInputs:
        """The quantising of the inputs of products, as kernels of their own of which no engine is told."""
        x, one = self.numbers, np.ones_like(self.share)
        values = x["m"] * x["k"]
        alone = dict.fromkeys(("m", "n", "k", "batch"), one) | dict.fromkeys(_ENGINE_COLUMNS, np.zeros_like(one))
        alone |= {"rows": x["m"], "cols": x["k"], "size": one, "elements": values, "work_flops": 0 * one}
        alone |= {"release": np.full_like(one, UNKNOWN_RELEASE), "share": one}
        alone |= {"work_bytes": count_quantised_bytes(values, x["size"], x["scaled_input"])}
        return replace(self, numbers={**x, **alone}, frameworks=None, share=one)

    def to_columns(self, gpu: Hardware) -> Columns:
        """The numeric columns of a law, with the GPU's rates as `tflops` and `copy_gbps`."""
        return {
            **self.numbers,
            "tflops": self.dtypes.map(gpu.get_tflops),
            "copy_gbps": self.copy_kinds.map(gpu.get_copy_gbps),
        }


@dataclass(frozen=True)
class KernelArrays:
    """The columns of a kernel table that laws are computed from, as flat arrays.

    Attributes:
        numbers: Numeric columns; NaN where the number is missing.
        names: Columns of names.
    """

    numbers: Columns
    names: dict[str, CategoricalColumn]

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> KernelArrays:
        """The arrays of a table from `prepare_kernels`."""
        numbers = {name: table[name].cast(pl.Float64).to_numpy() for name in _ARRAY_COLUMNS}
        return cls(numbers, encode_names(table[_NAME_COLUMNS]))

    def take(self, rows: Ints) -> KernelArrays:
        """Some rows."""
        numbers = {name: column[rows] for name, column in self.numbers.items()}
        return KernelArrays(numbers, {name: column.take(rows) for name, column in self.names.items()})


def build_law_inputs(table: pl.DataFrame) -> LawInputs:
    """What the law is computed on, of rows from `prepare` that share a law."""
    return compute_law_inputs(KernelArrays.from_table(table))


def compute_law_inputs(kernels: KernelArrays) -> LawInputs:
    """The same from arrays."""
    numbers, names = kernels.numbers, kernels.names
    family, framework, engine, dtype, kv_dtype, copies, routing, direction, part = (names[name] for name in _LAW_NAMES)
    rows, cols, blocks, threads = (numbers[name] for name in ("rows", "cols", "blocks", "threads_per_block"))
    x = {name: _fill_missing(numbers[name], 1.0) for name in _NUMERIC_COLUMNS}
    x |= {"size": dtype.map(get_element_bytes), "kv_size": kv_dtype.map(get_element_bytes)}
    gemm, served = family.is_in("gemm"), engine.is_in(*SERVING_FRAMEWORKS)
    per_tensor = engine.is_in(PER_TENSOR_ENGINE) & dtype.is_in(PER_TENSOR_DTYPE)
    # Narrower formats run on rows of whole 16 bytes only (cuBLASLt), so libraries pad them.
    wide = x["size"] >= 2
    # In a job, weights come from memory; in a benchmark loop they are in the cache. So are the operands of a batched
    # GEMM: two activations that were just computed. Engines' products were measured over more weights than the cache
    # holds (aiconfigurator's collectors), which is as in a job.
    one_by_many = (x["batch"] == 1) & (x["m"] > 1) & (x["n"] > 1) & ~(gemm & served)
    weighted = one_by_many | family.is_in("moe")
    # 0 also where nobody knows.
    x |= {name: np.nan_to_num(numbers[name]) for name in _PLAIN_COLUMNS}
    x |= {name: np.nan_to_num(numbers[name] * x["share"]) for name in _SHARED_COLUMNS}
    x |= {
        "attended": count_attended_pairs(x),
        "masks": count_mask_bytes(x | {name: numbers[name] for name in ("mask_batch", "mask_heads", "mask_bytes")}),
        "reach": count_attended_keys(x),
        "key_reads": count_key_reads(x, framework, on_mma=False),
        "key_reads_on_mma": count_key_reads(x, framework, on_mma=True),
        "unsplit": is_unsplit(x, framework, on_mma=False).astype(np.float64),
        "unsplit_on_mma": is_unsplit(x, framework, on_mma=True).astype(np.float64),
        "blocks": _fill_missing(
            _fill_missing(blocks, np.where(family.is_in(*ROW_FAMILIES), rows, UNKNOWN_BLOCK_COUNT)), UNKNOWN_BLOCK_COUNT
        ),
        "threads": _fill_missing(threads, DEFAULT_BLOCK_THREADS),
        "elements": _fill_missing(rows * cols * x["share"], x["work_bytes"] / (2 * x["size"])),
        "sums": part.is_in("sums").astype(np.float64),
        "column_sums": part.is_in("column sums").astype(np.float64),
        "waits": part.is_in("rows", "squares").astype(np.float64),
        "meets": part.is_in("rows", "squares", "tree").astype(np.float64),
        "generated": part.is_in("fused").astype(np.float64),
        "of_rows": family.is_in(*ROW_FAMILIES).astype(np.float64),
        "squares": part.is_in("squares").astype(np.float64),
        "mixes_out": part.is_in(HYPER_PARTS[1]).astype(np.float64),
        "unaligned_loads": wide
        * _count_unaligned_accesses(
            _count_contiguous_elements(numbers["channels"], x, family, direction) * x["size"], x["size"]
        ),
        "unaligned_stores": wide * gemm * _count_unaligned_accesses(x["n"] * x["size"], x["size"]),
        "cold": weighted * numbers["in_job"],
        "block_scaled": dtype.is_in("fp8_block").astype(np.float64),
        "uneven": _is_no_multiple(cols * x["size"], VECTOR_LOAD_BYTES).astype(np.float64),
        "block_queries": get_block_queries(framework),
        "library_gradient": (part.is_in(LIBRARY_PART) & direction.is_in("backward")).astype(np.float64),
        "backward": direction.is_in("backward").astype(np.float64),
        "skewed": routing.map(_parse_routing_skew),
        **{f"of_{name}": engine.is_in(name).astype(np.float64) for name in SERVING_FRAMEWORKS},
        "release": _fill_missing(numbers["release"], UNKNOWN_RELEASE),
        **_build_winograd_columns(numbers, x, family, direction),
        "quantised_input": (
            gemm & served & dtype.is_in(*QUANTISED_DTYPES) & (x["batch"] == 1) & ~part.is_in(INDEXER_LAW)
        )
        * (1.0 - numbers["in_job"]),
        "scaled_input": (part.is_in(PER_TENSOR) | per_tensor).astype(np.float64),
    }
    frameworks = None if framework.categories == (None,) else framework.map(lambda name: name)
    return LawInputs(x, frameworks, x["share"], dtype, copies)


def _fill_missing(column: Floats, other: Floats | float) -> Floats:
    missing = np.isnan(column)
    return np.asarray(np.where(missing, other, column)) if missing.any() else column


def _count_contiguous_elements(
    given: Floats, x: Columns, family: CategoricalColumn, direction: CategoricalColumn
) -> Floats:
    """Elements side by side in operands: a convolution's channels, the depth of a product where nothing is given."""
    channels = np.where(direction.is_in("dgrad"), x["k"], np.nan_to_num(given))
    return np.where(family.is_in("gemm"), _fill_missing(given, x["k"]), np.where(family.is_in("conv"), channels, 0.0))


def _build_winograd_columns(
    numbers: Columns, x: Columns, family: CategoricalColumn, direction: CategoricalColumn
) -> Columns:
    """What Winograd's algorithms see of convolutions; nothing of other families.

    Images of unknown size are assumed to consist of whole tiles, windows of unknown size to be 3x3.
    """
    if not family.is_in("conv").any():
        return {}
    of_data, of_weights = direction.is_in("dgrad"), direction.is_in("wgrad")
    pixels, window = np.where(of_weights, x["k"], x["m"]), np.where(of_data | of_weights, x["n"], x["k"])
    channels = _fill_missing(np.maximum(numbers["channels"], 1.0), window / 9)
    height, width = (_fill_missing(np.maximum(numbers[name], 1.0), 4.0) for name in ("height", "width"))
    return {
        "images": pixels / (height * width),
        "height": height,
        "width": width,
        "window_size": window / channels,
        "inputs": np.where(of_data, x["k"], channels),
        "filters": np.where(of_data, channels, np.where(of_weights, x["m"], x["n"])),
        "of_weights": of_weights.astype(np.float64),
        "of_data": of_data.astype(np.float64),
        "by_pixel": (numbers["channels_first"] == 0).astype(np.float64),
    }


def _count_unaligned_accesses(row_bytes: Floats, element_bytes: Floats) -> Floats:
    """Accesses per element of a product's rows where they don't start at multiples of 16 bytes; else 0.

    Unaligned kernels access four bytes at once, or two if the number of 16-bit elements is odd (cuBLAS's align2 and
    align1 kernels).
    """
    return np.asarray(
        _is_no_multiple(row_bytes, VECTOR_LOAD_BYTES) * np.maximum(_is_no_multiple(row_bytes, 4), element_bytes / 4)
    )


def _is_no_multiple(size: Floats, of: int) -> Bools:
    """Whether a size isn't a multiple of a power of two, in a tenth of a remainder's time."""
    return np.asarray(np.floor(size / of) < size / of)


def _parse_routing_skew(routing: str | None) -> float:
    """Exponent of the power law by which tokens choose experts; 0 where they choose evenly."""
    if routing is None or not routing.startswith("power"):
        return 0.0
    found = re.search(r"\d+\.?\d*$", routing)
    return float(found[0]) if found else 1.0
