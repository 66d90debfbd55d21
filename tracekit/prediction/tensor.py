"""Tensor parallelism over other numbers of ranks: which side of each kernel is shared out, told from its shapes.

As Megatron-LM does it (Shoeybi et al., 2019): of the two products of a block the first gives each rank columns, the
second takes rows, and an all-reduce adds up what comes out, tokens x hidden. So a product's side that is neither tokens
nor hidden is the one that is shared out; so are attention heads, and what works on either.
"""

import json

import polars as pl

from tracekit.prediction.layout import OVERLOOKED, LayoutError, check_known
from tracekit.workload.shares import share

SIDES = ("m", "n", "k")
ITEM = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}


def reshard(kernels: pl.DataFrame, calls: pl.DataFrame, before: int, after: int) -> pl.DataFrame:
    """The kernel table as each of ``after`` ranks would have it, where ``before`` shared the layers.

    Args:
        kernels: The kernel table.
        calls: The collectives of tensor-parallel groups, as ``messages`` gives them.
        before: Ranks of each layer in the trace.
        after: Ranks asked for.

    Returns:
        The table with other dimensions where they change, and whether they did, ``changed``.

    Raises:
        LayoutError: What is shared out can't be told, or can't be shared out over so many.
    """
    _check(kernels, before)
    tokens, hidden = _activations(kernels, calls)
    products = _products(kernels, tokens, hidden)
    table = kernels.with_columns(products["side"])
    changes = _changes(table, set(products["size"].drop_nulls().to_list()) - {hidden})
    _divisible(table, changes, before, after)
    factor = before / after
    edited = {name: pl.when(mine).then(_scaled(name, factor)).otherwise(name) for name, mine in changes.items()}
    anything = pl.any_horizontal(*changes.values()).fill_null(False)
    return table.with_columns(**edited, kv_heads=_scaled("kv_heads", factor), changed=anything).drop("side")


def _changes(table: pl.DataFrame, shared: set[int]) -> dict[str, pl.Expr]:
    """Which rows change in which column: sides of products, heads, and what works on sizes that are ``shared`` out."""
    heads = set(table["heads"].drop_nulls().to_list())
    touched = {dims: _touches(dims, shared, heads) for dims in table["input_dims"].drop_nulls().unique()}
    works = pl.col("input_dims").replace_strict(touched, default=None, return_dtype=pl.Boolean)
    memory_bound = pl.col("rows").is_not_null() & works.fill_null(False) | (pl.col("family") == "optimizer")
    by_column = pl.col("cols").is_in(list(shared)).fill_null(False)
    return {
        **{name: pl.col("side") == name for name in (*SIDES, "batch")},
        "heads": pl.col("heads").is_not_null(),
        "rows": memory_bound & ~by_column,
        "cols": memory_bound & by_column,
        "flops": memory_bound,
        "bytes": memory_bound,
    }


def _divisible(table: pl.DataFrame, changes: dict[str, pl.Expr], before: int, after: int) -> None:
    exact = [changes[name] & ((pl.col(name) * before) % after != 0) for name in (*SIDES, "heads")]
    uneven = table.filter(pl.any_horizontal(*exact))
    if uneven.height:
        row = uneven.row(0, named=True)
        raise LayoutError(f"{row['op']} on {row['input_dims']} can't be shared out over {after} ranks.")


def _scaled(name: str, factor: float) -> pl.Expr:
    return (pl.col(name) * factor).round().cast(pl.Int64).clip(1)


def _check(kernels: pl.DataFrame, before: int) -> None:
    if before == 1:
        raise LayoutError("the trace's job isn't tensor parallel: it lacks the all-reduces that would be carried over.")
    computed = kernels.filter(~pl.col("family").is_in(["collective", "memcpy", "memset"]))
    if part := share(computed, "dur_ns", pl.col("family") == "moe"):
        raise LayoutError(f"tensor parallelism can't be changed: {part:.0f} % of GPU time is of MoE layers.")
    check_known(computed, "tensor parallelism")


def _activations(kernels: pl.DataFrame, calls: pl.DataFrame) -> tuple[set[int], int]:
    """Numbers of tokens, and the hidden size: of the products whose output the groups add up."""
    item = pl.col("dtype").replace_strict(ITEM, default=None, return_dtype=pl.Float64)
    sizes = calls.select(elements=(pl.col("bytes") / item).round().cast(pl.Int64))["elements"].drop_nulls().unique()
    outputs = kernels.filter((pl.col("family") == "gemm") & ((pl.col("m") * pl.col("n")).is_in(sizes.implode())))
    if outputs.is_empty():
        raise LayoutError("tensor parallelism can't be changed: no product's output has the size of a group's message.")
    by_time = outputs.group_by("n").agg(pl.col("dur_ns").sum()).sort("dur_ns", "n", descending=True)
    hidden = int(by_time["n"][0])
    return set(outputs.filter(n=hidden)["m"].to_list()), hidden


def _products(kernels: pl.DataFrame, tokens: set[int], hidden: int) -> pl.DataFrame:
    """Which ``side`` of each product is shared out, and its ``size``; null where none is."""
    m, n, k = (pl.col(name) for name in SIDES)
    of_tokens = [*tokens]
    weight = k.is_in(of_tokens) & ~m.is_in(of_tokens)
    activation = ~k.is_in(of_tokens)
    side = (
        pl.when(pl.col("family") != "gemm")
        .then(None)
        .when(pl.col("batch") > 1)
        .then(pl.lit("batch"))
        .when(weight & (n == hidden) & (m != hidden))
        .then(pl.lit("m"))
        .when(weight & (m == hidden) & (n != hidden))
        .then(pl.lit("n"))
        .when(activation & (k == hidden) & (n != hidden))
        .then(pl.lit("n"))
        .when(activation & (n == hidden) & (k != hidden))
        .then(pl.lit("k"))
    )
    sized = kernels.with_columns(side=side)
    doubtful = sized.filter((pl.col("family") == "gemm") & pl.col("side").is_null())
    if share(sized, "dur_ns", (pl.col("family") == "gemm") & pl.col("side").is_null()) > OVERLOOKED:
        row = doubtful.sort("dur_ns").row(-1, named=True)
        raise LayoutError(f"what is shared out of {row['op']} on {row['input_dims']} can't be told.")
    size = pl.coalesce(*(pl.when(pl.col("side") == name).then(name) for name in SIDES))
    return sized.select("side", size=size)


def _touches(dims: str, shared: set[int], heads: set[int]) -> bool:
    """Whether an op works on something that is shared out: its last axis, or one of heads."""
    shapes = [shape for shape in json.loads(dims) if isinstance(shape, list) and shape and isinstance(shape[0], int)]
    return any(shape[-1] in shared or heads.intersection(shape[1:-1]) for shape in shapes)
