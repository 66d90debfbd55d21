"""Define the kernel table: its families, its columns and the law of each row."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl

from predictors.errors import KernelTableError
from predictors.kernel_identity import BENCHMARK_LOOP, FRAMEWORKS, SERVING_FRAMEWORKS, identify_library, parse_releases
from predictors.linear_attention import CHUNKS, LINEAR_PARTS, STEP

INTEGER_COLUMNS = (
    "batch", "m", "n", "k", "rows", "cols", "heads", "kv_heads", "q_len", "kv_len", "head_dim",
    "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "ranks", "blocks", "threads_per_block",
    "registers_per_thread", "shared_memory_bytes", "tile_m", "tile_n", "covered_m", "covered_n", "window", "channels",
    "height", "width", "cache_width", "mask_batch", "mask_heads",
)  # fmt: skip
COUNT_COLUMNS = INTEGER_COLUMNS[: INTEGER_COLUMNS.index("ranks") + 1]
"""Integers that count something; an empty tensor's zero counts as one. (`window` 0 means none.)"""
FLOAT_COLUMNS = (
    "flops", "bytes", "measured_us", "share", "release", "serial_clocks", "warp_clocks", "accessed_bytes",
    "reuse_bytes", "distinct_bytes", "streamed_bytes", "host_bytes", "mask_bytes",
)  # fmt: skip
STRING_COLUMNS = (
    "family", "dtype", "kv_dtype", "routing", "collective", "framework", "engine", "direction", "copy_kind", "part",
)  # fmt: skip
BOOLEAN_COLUMNS = (
    "causal",
    "split_k",
    "indexed",
    "across",
    "tensor_core",
    "winograd",
    "channels_first",
    "paged",
    "in_job",
)

KERNEL_COLUMNS: dict[str, pl.DataType] = (
    dict.fromkeys(INTEGER_COLUMNS, pl.Float64())
    | dict.fromkeys(FLOAT_COLUMNS, pl.Float64())
    | dict.fromkeys(BOOLEAN_COLUMNS, pl.Boolean())
) | dict.fromkeys(STRING_COLUMNS, pl.String())
"""Every input column and the type it is computed in; integers are carried as floats so that nothing overflows."""
_UNKNOWN_KERNEL = pl.DataFrame({name: [None] for name in KERNEL_COLUMNS}, schema=KERNEL_COLUMNS)

REQUIRED_COLUMNS: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "conv": ("m", "n", "k"),
    "attention": ("heads", "q_len", "kv_len", "head_dim"),
    "moe": ("tokens", "hidden", "inter", "topk", "experts"),
    "elementwise": ("bytes",),
    "softmax": ("bytes",),
    "norm": ("bytes",),
    "copy": ("bytes",),
    "reduction": ("bytes",),
    "embedding": ("bytes",),
    "optimizer": ("bytes",),
    "memset": ("bytes",),
    "quantise": ("bytes",),
    "memcpy": ("bytes",),
    "linear_attention": ("q_len", "bytes"),
    "collective": (),
    "other": (),
}
"""Columns that a row of each family needs to be modelled from its shape. Of linear attention (delta rules, Mamba) each
kernel is a GEMM or a pass over memory: a row whose work alone is known counts as one of those."""

TENSOR_FAMILIES = ("gemm", "conv", "attention", "moe")
MEMORY_FAMILIES = (
    "elementwise", "softmax", "norm", "copy", "reduction", "embedding", "optimizer", "memset", "quantise",
)  # fmt: skip
ROW_FAMILIES = ("softmax", "norm")
"""Families that work on whole rows. In the other memory families a block takes many rows, or a part of one."""
DTYPE_BYTES: dict[str, float] = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625,
    "mxfp4": 0.53125, "mxfp8": 1.03125, "int8": 1.0, "3xtf32": 4.0,
    "int4_wo": 0.5625, "w4a16_mxfp4": 0.53125, "w4afp8": 0.515625, "w4a8_mxfp4_mxfp8": 0.53125,
}  # fmt: skip
"""Bytes per element, scales included: nvfp4 has one byte of scale per 16 elements, mxfp4 and mxfp8 one per 32 (OCP
Microscaling Formats 1.0, table 1). Of formats of weights alone, whose products are computed in a wider one
(``hardware.ARITHMETIC_DTYPES``), bytes of a weight: int4_wo has two per 32 (Kimi K2), w4afp8 two per 128."""

_FAMILIES, _DTYPES = pl.Enum(list(REQUIRED_COLUMNS)), pl.Enum(list(DTYPE_BYTES))
_DTYPE_CLASS = {
    "fp64": "fp32", "fp32": "fp32", "tf32": "half", "fp16": "half", "bf16": "half", "int8": "half",
    "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "mxfp4": "nvfp4", "mxfp8": "fp8",
    "3xtf32": "half", "int4_wo": "w4a16", "w4a16_mxfp4": "w4a16", "w4afp8": "w4a8", "w4a8_mxfp4_mxfp8": "w4a8",
}  # fmt: skip
LIBRARY_PART = "library"
"""``part`` of a norm whose rows a library's kernel holds in registers: cuDNN's, TransformerEngine's, Apex'."""
_LAW_OF_PART = {
    "sums": "reduction", "column sums": "reduction", "fused": "reduction", "scaling": "elementwise",
    LIBRARY_PART: "elementwise",
}  # fmt: skip
UNMEASURED_LAWS = GROUPED_LAW, DEPTHWISE_LAW = "grouped", "depthwise"
"""Laws of cuDNN's convolutions of groups, and of gradients of depthwise ones, that only whole jobs were measured of."""
LINEAR_LAWS = CHUNKS_LAW, STEP_LAW, CONVOLUTION_LAW = tuple(f"linear {part}" for part in LINEAR_PARTS)
"""Laws of linear attention whose sizes are known."""
SPARSE_LAW, INDEXER_LAW, HYPER_LAW = "sparse", "indexer", "hyper"
HYPER_PARTS = "hyper in", "hyper out"
"""``part`` of a norm that mixes a token's streams into a layer's input, or its output back into them (mHC)."""
MIOPEN_LAWS = MIOPEN_HALF_LAW, MIOPEN_FP32_LAW, MIOPEN_GROUPED_LAW = "miopen half", "miopen fp32", "miopen grouped"
"""Laws of convolutions on AMD GPUs, the last of grouped and depthwise ones in any format."""
_MAX_DECODE_QUERIES = 8  # new tokens up to which the kernel streams the KV cache instead of tiling the queries
_TILED_ONLY_DTYPE = "3xtf32"
"""The format of PyTorch's memory-efficient attention in fp32, which tiles the queries however few they are."""


def complete_columns(kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernel table with every column of `COLUMNS`, cast, defaults filled in.

    Args:
        kernels: One kernel per row; ``family`` is required, other columns are optional.

    Returns:
        Columns of ``KERNEL_COLUMNS`` in that order. Defaults: ``batch``, ``share``, ``tp`` and ``ep`` 1, ``window`` 0,
        ``kv_heads`` that of ``heads``, ``kv_dtype`` that of ``dtype``, ``direction`` 'forward', ``causal`` false,
        ``split_k`` (the keys of attention are split over blocks) false. Null if unknown: ``indexed`` (the kernel goes
        element by element, because tensors are broadcast, strided or cast), ``across`` (some of those tensors are
        contiguous along another axis than others, as in a transposition), ``tensor_core`` (the kernel runs on matrix
        units), ``winograd`` (the convolution has a Winograd algorithm), ``channels_first`` (its images
        lie channel after channel), ``paged`` (the keys of attention are in the
        pages of a serving engine's cache). ``channels`` are those of one group of a convolution; ``height`` and
        ``width`` are those of its output images. ``cache_width`` are elements that a cache holds per
        key and key head where values are part of the keys; null: keys and values apart. ``mask_bytes`` are those of
        attention's bias or mask per pair of a query and a key, stored for ``mask_batch`` sequences and ``mask_heads``
        heads of each; null: there is none.
        ``serial_clocks`` are those of the thread with most to do one after the other, where others have much less,
        ``warp_clocks`` those of all warps together where each waits for its loads. ``accessed_bytes`` are loads and
        stores with those of rows loaded again, half of which hit a cache of ``reuse_bytes``, all of them one of
        ``distinct_bytes`` (null: of all different rows); ``streamed_bytes`` are those side by side in the memory.
        ``host_bytes`` go over the link to the host's memory and aren't in ``bytes``.
        ``part`` is the role of a norm's kernel: 'sums', 'column sums' or
        'scaling' where several kernels make up the norm, 'rows' or 'squares' for PyTorch's own layer or RMS norm,
        'library' for the kernel over rows of cuDNN's, TransformerEngine's or Apex'. It is 'fused' for a norm, softmax
        or reduction that a compiler generated, 'tree' for PyTorch's own reduction, else null. ``covered_m`` and
        ``covered_n`` of a GEMM without a shape are the sides of an output that its blocks cover
        with their tiles, which is about as large as its own. ``tokens`` of a GEMM or MoE kernel without a shape are
        those of the batch that it ran for. Of linear attention ``part`` is one of ``linear_attention.LINEAR_PARTS``,
        ``heads`` and ``head_dim`` are those of values, ``kv_heads`` those of keys, ``cols`` keys' width or a
        convolution's channels. Attention of ``part`` 'sparse' attends to ``window`` keys that an 'indexer', a GEMM of
        all heads' queries with all keys, has selected. A non-finite number and a negative time become null.

        Whose the kernel is: ``framework`` is its library, or where nobody knows that the serving engine that ran it
        (``kernel_identity.FRAMEWORKS``; else null). ``engine`` is the engine alone, ``release`` its version as a
        number. ``in_job`` is whether the kernel ran in a job: its weights come from memory, and another kernel has
        quantised its input. Kernels that name an engine are its benchmarks unless that is said. The columns
        ``framework``, ``kernel_source`` (aiconfigurator's name of a kernel) and ``version`` of the caller tell this.

    Raises:
        KernelTableError: There is no ``family`` column, a family or a dtype is unknown, or a column has a wrong type.
    """
    if "family" not in kernels.columns:
        raise KernelTableError("the kernel table has no column 'family'")
    unknown = _UNKNOWN_KERNEL[np.zeros(kernels.height, dtype=np.intp)]
    given = {*kernels.columns}
    try:
        table = pl.DataFrame(
            [kernels[name].cast(dtype) if name in given else unknown[name] for name, dtype in KERNEL_COLUMNS.items()]
        )
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise KernelTableError(f"a column of the kernel table has a wrong type: {reason}") from error
    _reject_unknown(table)
    return _identify_kernels(table, kernels).with_columns(**_build_cleaned_columns())


def _identify_kernels(table: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Fill in ``framework`` and ``engine`` from what the caller's table tells, and ``release`` from its ``version``."""
    framework, engine = _build_told_names()
    release = parse_releases(kernels["version"]) if "version" in kernels.columns else table["release"]
    if "kernel_source" in kernels.columns:
        framework = pl.coalesce(identify_library(pl.lit(kernels["kernel_source"].cast(pl.String))), framework)
    return table.with_columns(framework=framework, engine=engine, release=pl.coalesce("release", release))


@cache  # as all expressions here: they take longer to build than to evaluate
def _build_told_names() -> tuple[pl.Expr, pl.Expr]:
    """Return the ``framework`` that a row's own column names, and the ``engine``."""
    known = {name: name for name in FRAMEWORKS}
    named = pl.col("framework").str.to_lowercase().replace_strict(known, default=None, return_dtype=pl.String)
    return named, pl.coalesce("engine", pl.when(named.is_in(SERVING_FRAMEWORKS)).then(named))


@cache
def _build_cleaned_columns() -> dict[str, pl.Expr]:
    """Return the columns with their defaults, and without numbers that aren't finite or below what there can be."""
    short = {"fwd": "forward", "bwd": "backward"}
    least = dict.fromkeys((*COUNT_COLUMNS, "bytes"), 1.0) | {"share": 1e-6}
    numbers: dict[str, pl.Expr] = {
        name: pl.when(pl.col(name).is_finite()).then(name) for name in INTEGER_COLUMNS + FLOAT_COLUMNS
    }
    numbers |= {name: numbers[name].clip(floor) for name, floor in least.items()}
    numbers |= {name: numbers[name].fill_null(1.0) for name in ("batch", "share", "tp", "ep")}
    alone = pl.col("engine").is_not_null() | (pl.col("framework") == BENCHMARK_LOOP)
    return numbers | {
        "measured_us": pl.when(numbers["measured_us"] >= 0).then(numbers["measured_us"]),
        "window": numbers["window"].fill_null(0.0),
        "kv_heads": numbers["kv_heads"].fill_null(numbers["heads"]),
        "kv_dtype": pl.col("kv_dtype").fill_null(pl.col("dtype")),
        "direction": pl.col("direction").replace(short).fill_null("forward"),
        "causal": pl.col("causal").fill_null(False),
        "split_k": pl.when(pl.col("family") == "attention").then(pl.col("split_k").fill_null(False)),
        "framework": pl.coalesce("framework", "engine"),
        "in_job": pl.coalesce("in_job", ~alone.fill_null(value=False)),
        "family": _resolve_linear_attention(),
    }


def _resolve_linear_attention() -> pl.Expr:
    """The family that models a row: of linear attention without sizes that of a GEMM or of a pass over memory."""
    product = pl.all_horizontal(pl.col("m", "n", "k", "dtype").is_not_null())
    modelled = pl.when(product).then(pl.lit("gemm")).when(pl.col("bytes").is_not_null()).then(pl.lit("elementwise"))
    unsized = (pl.col("family") == "linear_attention") & pl.any_horizontal(pl.col("q_len", "bytes").is_null())
    return pl.when(unsized).then(modelled.otherwise("family")).otherwise("family")


def add_law(table: pl.DataFrame) -> pl.DataFrame:
    """Adds `law`, the name of the set of constants that models a row, null where its shape is not known.

    Rows whose law does not follow from the family alone:

    - A depthwise convolution has no GEMM for matrix units. It reads its input once, as elementwise kernels do; its
      gradients take several times as long.
    - A convolution of groups has cuDNN's kernels for those, or runs as a product for each group.
    - An fp32 convolution without a Winograd algorithm is a GEMM on vector units. All measured ones have such an
      algorithm.
    - A kernel that does one part of a norm is a reduction or an elementwise kernel. A generated norm is a reduction.
    - A copy that moves several elements at once is an elementwise kernel.
    - Linear attention has laws of its parts; sparse attention, its indexer and mHC's mixing have laws of their own.
    - Look-ups in embedding tables, whose warps wait for one row after the other, and updates of their rows have a law
      of their own: rows lie anywhere in the memory.

    Args:
        table: From ``complete_columns``. ``dtype`` is what the kernel really runs in, ``asked``, if there, what it was
            called with.
    """
    return table.with_columns(law=_build_law_expression("asked" if "asked" in table.columns else "dtype"))


def name_miopen_laws(is_amd: pl.Expr) -> pl.Expr:
    """Return `law` of rows that have it, with the convolutions of AMD GPUs in laws of MIOpen's own.

    MIOpen chooses among implicit GEMMs, Winograd's algorithms and direct ones that share nothing with cuDNN's.

    Args:
        is_amd: Whether a row runs on an AMD GPU.
    """
    mine = (pl.col("family") == "conv") & pl.col("law").is_not_null() & is_amd
    grouped = pl.when(pl.col("batch") > 1).then(pl.lit(MIOPEN_GROUPED_LAW))
    wide = pl.when(pl.col("dtype").is_in(["fp32", "fp64"])).then(pl.lit(MIOPEN_FP32_LAW))
    return pl.when(mine).then(grouped.otherwise(wide.otherwise(pl.lit(MIOPEN_HALF_LAW)))).otherwise("law").alias("law")


@cache
def _build_law_expression(asked_column: str) -> pl.Expr:
    tensor = pl.col("family").is_in(TENSOR_FAMILIES)
    known = pl.any_horizontal(
        (pl.col("family") == family) & pl.all_horizontal(pl.col(c).is_not_null() for c in columns)
        for family, columns in REQUIRED_COLUMNS.items()
        if columns
    ) & (~tensor | pl.col("dtype").is_not_null())
    dtype = pl.col("dtype").replace_strict(_DTYPE_CLASS, default=None, return_dtype=pl.String)
    few = (pl.col("q_len") <= _MAX_DECODE_QUERIES) & (pl.col(asked_column) != _TILED_ONLY_DTYPE)
    linear = pl.coalesce("part", pl.when(pl.col("q_len") > 1).then(pl.lit(CHUNKS)).otherwise(pl.lit(STEP)))
    attention = (
        pl.when(pl.col("part").eq_missing(SPARSE_LAW))
        .then(pl.lit(SPARSE_LAW))
        .when(pl.col("cache_width").is_not_null(), few)
        .then(pl.lit("latent"))
        .when(pl.col("q_len") < pl.col("kv_len"), few, pl.col("direction") == "forward")
        .then(pl.lit("decode"))
        .when((pl.col("direction") == "backward") | pl.col("paged").eq_missing(False))
        .then(pl.lit("sequence"))
        .when("causal")
        .then(pl.lit("prefill"))
        .otherwise(pl.lit("encoder"))
    )
    part = pl.col("part").replace_strict(_LAW_OF_PART, default=None, return_dtype=pl.String)
    depthwise = pl.all_horizontal(
        pl.col("family") == "conv", pl.col("batch") > 1, pl.min_horizontal("m", "n", "k") == 1
    )
    gradient = pl.col("direction").is_in(["dgrad", "wgrad"])
    grouped = (pl.col("family") == "conv") & (pl.col("batch") > 1)
    plain = (pl.col("family") == "conv") & (pl.col("dtype") == "fp32") & ~pl.col("winograd")
    law = (
        pl.when(depthwise & gradient)
        .then(pl.lit(DEPTHWISE_LAW))
        .when(depthwise)
        .then(pl.lit("elementwise"))
        .when(grouped)
        .then(pl.lit(GROUPED_LAW))
        .when((pl.col("family") == "copy") & ~pl.col("indexed"))
        .then(pl.lit("elementwise"))
        .when(pl.col("family").is_in(["embedding", "optimizer"]) & pl.col("warp_clocks").is_not_null())
        .then(pl.lit("lookup"))
        .when(pl.col("family") == "linear_attention")
        .then(pl.concat_str([pl.lit("linear "), linear]))
        .when((pl.col("family") == "gemm") & pl.col("part").eq_missing(INDEXER_LAW))
        .then(pl.lit(INDEXER_LAW))
        .when((pl.col("family") == "norm") & pl.col("part").is_in(HYPER_PARTS))
        .then(pl.lit(HYPER_LAW))
        .when((pl.col("family") == "norm") & part.is_not_null())
        .then(part)
        .when(plain)
        .then(pl.lit("gemm fp32"))
        .when(pl.col("family").is_in(["gemm", "conv", "moe"]))
        .then(pl.concat_str([pl.col("family"), dtype], separator=" "))
        .when(pl.col("family") == "attention")
        .then(attention)
        .otherwise("family")
    )
    return pl.when(known).then(law)


def _reject_unknown(table: pl.DataFrame) -> None:
    """Raise an error if a family or a dtype is unknown."""
    family, dtype = table["family"], table["dtype"]
    known_dtypes = dtype.cast(_DTYPES, strict=False).null_count() == dtype.null_count()
    if known_dtypes and not family.cast(_FAMILIES, strict=False).null_count():
        return
    tensor = pl.col("family").is_in(TENSOR_FAMILIES)
    unknown = {
        "family": ~pl.col("family").is_in(list(REQUIRED_COLUMNS)),
        "dtype": tensor & ~pl.col("dtype").is_in(list(DTYPE_BYTES)),
    }
    wrong = table.select(
        *(pl.col(column).filter(rows).unique().drop_nulls().sort().implode() for column, rows in unknown.items()),
        missing=pl.col("family").is_null().any(),
    ).row(0, named=True)
    for column, known in (("family", REQUIRED_COLUMNS), ("dtype", DTYPE_BYTES)):
        if wrong[column] or (column == "family" and wrong["missing"]):
            named = ", ".join(wrong[column]) or "null"
            raise KernelTableError(f"unknown {column}: {named}; known: {', '.join(known)}")
