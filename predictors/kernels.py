"""The kernel table: its families, its columns and which law models each row."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from predictors.errors import KernelTableError
from predictors.stacks import FRAMEWORKS

INTEGERS = (
    "batch", "m", "n", "k", "rows", "cols", "heads", "kv_heads", "q_len", "kv_len", "head_dim",
    "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "ranks", "blocks", "threads_per_block",
    "registers_per_thread", "shared_memory_bytes", "tile_m", "tile_n", "window", "channels",
    "height", "width",
)  # fmt: skip
SIZES = INTEGERS[: INTEGERS.index("ranks") + 1]
"""Integers that count something; an empty tensor's zero counts as one. (`window` 0 means none.)"""
FLOATS = ("flops", "bytes", "measured_us", "share")
STRINGS = ("family", "dtype", "kv_dtype", "routing", "collective", "framework", "direction", "copy_kind", "part")

COLUMNS: dict[str, pl.DataType] = (
    dict.fromkeys(INTEGERS, pl.Float64())
    | dict.fromkeys(FLOATS, pl.Float64())
    | dict.fromkeys(("causal", "split_k", "indexed", "across", "tensor_core", "winograd", "paged"), pl.Boolean())
) | dict.fromkeys(STRINGS, pl.String())
"""Every input column and the type it is computed in; integers are carried as floats so that nothing overflows."""

REQUIRED: dict[str, tuple[str, ...]] = {
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
    "memcpy": ("bytes",),
    "collective": (),
    "other": (),
}
"""What a row of each family must have to be modelled from its shape."""

TENSOR_FAMILIES = ("gemm", "conv", "attention", "moe")
MEMORY_FAMILIES = ("elementwise", "softmax", "norm", "copy", "reduction", "embedding", "optimizer", "memset")
ROW_FAMILIES = ("softmax", "norm")
"""Those that work on whole rows: of the others' rows a block takes many, or a part."""
DTYPE_BYTES: dict[str, float] = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625,
    "int8": 1.0, "3xtf32": 4.0,
}  # fmt: skip
"""Bytes per element, scales included (nvfp4 has one fp8 scale per 16 elements)."""

_DTYPE_CLASS = {
    "fp64": "fp32", "fp32": "fp32", "tf32": "half", "fp16": "half", "bf16": "half", "int8": "half",
    "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "3xtf32": "half",
}  # fmt: skip
_LAW_OF_PART = {"sums": "reduction", "fused": "reduction", "scaling": "elementwise"}
_DECODE_ROWS = 8  # new tokens up to which the kernel streams the KV cache instead of tiling the queries
_TILED_ONLY = "3xtf32"
"""The format of PyTorch's memory-efficient attention in fp32, which tiles the queries however few they are."""


def complete(kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernel table with every column of `COLUMNS`, cast, defaults filled in.

    Args:
        kernels: one kernel a row; `family` is required, other columns are optional.

    Returns:
        The columns of `COLUMNS` in that order. `batch`, `share`, `tp`, `ep` default to 1, `window` to 0, `kv_heads` to
        `heads`, `kv_dtype` to `dtype`, `direction` to 'forward', `causal` to false, and so does `split_k`, whether the
        keys of attention are split over blocks. Null where nobody knows stay `indexed`, whether a kernel goes element
        by element (of tensors that are broadcast, strided or cast), `across`, whether of those some lie along another
        axis than others (a transposition), `tensor_core`, whether a kernel runs on matrix units, `winograd`, whether a
        convolution has Winograd's algorithm, and `paged`, whether attention's keys lie in the pages of a serving
        engine's cache. `channels` are a convolution's of one group, `height` and `width` those of its output images.
        `part` says what a norm's kernel does: 'sums' or 'scaling' where several make one, 'rows' or 'squares' where it
        is PyTorch's own layer or RMS norm; of a norm, softmax or reduction 'fused' where a compiler generated it; of a
        reduction 'tree' where it is PyTorch's own; or null. `tokens` of a product or of experts without a shape are
        those of the batch that they ran for. Null are also a `framework` that isn't one of `stacks.FRAMEWORKS`, a
        number that isn't finite, and a time below 0.

    Raises:
        KernelTableError: no `family` column, a family or a dtype nobody knows, or a column of a wrong type.
    """
    if "family" not in kernels.columns:
        raise KernelTableError("the kernel table has no column 'family'")
    try:
        table = kernels.select(
            (pl.col(name) if name in kernels.columns else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in COLUMNS.items()
        )
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise KernelTableError(f"a column of the kernel table has a wrong type: {reason}") from error
    _reject_unknown(table, "family", REQUIRED)
    _reject_unknown(table.filter(pl.col("family").is_in(TENSOR_FAMILIES)), "dtype", DTYPE_BYTES)
    short = {"fwd": "forward", "bwd": "backward"}
    known = {name: name for name in FRAMEWORKS}
    number = pl.col(pl.Float64)
    table = table.with_columns(pl.when(number.is_finite()).then(number))
    table = table.with_columns(pl.col(SIZES).clip(1.0), pl.col("bytes").clip(1.0), pl.col("share").clip(1e-6))
    table = table.with_columns(measured_us=pl.when(pl.col("measured_us") >= 0).then("measured_us"))
    return table.with_columns(
        pl.col("batch", "share", "tp", "ep").fill_null(1.0),
        pl.col("window").fill_null(0.0),
        pl.col("kv_heads").fill_null(pl.col("heads")),
        pl.col("kv_dtype").fill_null(pl.col("dtype")),
        pl.col("framework").str.to_lowercase().replace_strict(known, default=None, return_dtype=pl.String),
        pl.col("direction").replace(short).fill_null("forward"),
        pl.col("causal").fill_null(False),
        split_k=pl.when(pl.col("family") == "attention").then(pl.col("split_k").fill_null(False)),
    )


def with_law(table: pl.DataFrame) -> pl.DataFrame:
    """Adds `law`, the name of the set of constants that models a row, null where its shape is not known.

    A depthwise convolution has no product for matrix units: it goes over its input once, as elementwise kernels do. On
    vector units one without Winograd's algorithm is a product, no more; the measured ones all have it. A kernel that
    does a part of a norm sums up, or goes over the elements one by one. A generated norm goes through its rows as sums
    do. A copy that takes several elements at once is an elementwise kernel like any other.

    Args:
        table: from `complete`; `dtype` is what the kernel really runs in, `asked`, if there, what it is made for.
    """
    tensor = pl.col("family").is_in(TENSOR_FAMILIES)
    known = pl.any_horizontal(
        (pl.col("family") == family) & pl.all_horizontal(pl.col(c).is_not_null() for c in columns)
        for family, columns in REQUIRED.items()
        if columns
    ) & (~tensor | pl.col("dtype").is_not_null())
    dtype = pl.col("dtype").replace_strict(_DTYPE_CLASS, default=None, return_dtype=pl.String)
    asked = pl.col("asked" if "asked" in table.columns else "dtype")
    few = (pl.col("q_len") <= _DECODE_ROWS) & (asked != _TILED_ONLY)
    attention = (
        pl.when(pl.col("q_len") < pl.col("kv_len"), few, pl.col("direction") == "forward")
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
    plain = (pl.col("family") == "conv") & (pl.col("dtype") == "fp32") & ~pl.col("winograd")
    law = (
        pl.when(depthwise)
        .then(pl.lit("elementwise"))
        .when((pl.col("family") == "copy") & ~pl.col("indexed"))
        .then(pl.lit("elementwise"))
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
    return table.with_columns(law=pl.when(known).then(law))


def _reject_unknown(table: pl.DataFrame, column: str, known: Collection[str]) -> None:
    wrong = table.filter(~pl.col(column).is_in(list(known)))[column].unique().drop_nulls().sort().to_list()
    missing = column == "family" and table["family"].null_count() > 0
    if wrong or missing:
        named = ", ".join(wrong) or "null"
        raise KernelTableError(f"unknown {column}: {named}; known: {', '.join(known)}")
