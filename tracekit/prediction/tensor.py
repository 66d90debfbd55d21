"""Tensor parallelism over other numbers of ranks: the kernels of a rank that has another part of each layer.

What ``blocks`` tells of GEMMs is shared out; so are attention heads, and what works on either.
"""

import json
import math
from dataclasses import dataclass

import polars as pl

from tracekit.prediction.blocks import (
    EXPERTS,
    SIDES,
    Activations,
    activation_bytes,
    of_layers,
    of_messages,
    shared_out,
    stored_bytes,
)
from tracekit.prediction.layout import LayoutError, check_known
from tracekit.workload.phases import FORWARD


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
    check_layers(kernels)
    activations = of_layers(kernels) if before == 1 else of_messages(kernels, calls)
    gemms = shared_out(kernels, activations)
    table = kernels.with_columns(gemms["side"])
    changes = _changes(table, Shared.of(table, gemms["size"], activations))
    _divisible(table, before, after)
    factor = before / after
    edited = {name: pl.when(mine).then(_scaled(name, factor)).otherwise(name) for name, mine in changes.items()}
    sided = pl.col("side").is_in(["n", "k"]).fill_null(value=False)
    edited["bytes"] = pl.when(sided).then(_gemm_bytes(factor)).otherwise(edited["bytes"])
    anything = pl.any_horizontal(*changes.values()).fill_null(False)
    return table.with_columns(**edited, kv_heads=_scaled("kv_heads", factor), changed=anything).drop("side")


def check_layers(kernels: pl.DataFrame) -> None:
    """Refuses jobs whose layers can't be shared out otherwise. Of attention its heads can, whatever it works on.

    Args:
        kernels: The kernel table.

    Raises:
        LayoutError: Too much of their work isn't known.
    """
    kept = ["collective", "memcpy", "memset", "attention"]
    check_known(kernels.filter(~pl.col("family").is_in(kept)), "tensor parallelism")


@dataclass(frozen=True)
class Shared:
    """What tells that a tensor is shared out.

    Attributes:
        sizes: Of its last axis.
        heads: Attention heads, one of its inner axes.
        matrices: Numbers of matrices in batched GEMMs, all axes but its last two.
        hidden: The width of weights whose rows are ``sizes``.
    """

    sizes: frozenset[int]
    heads: frozenset[int]
    matrices: frozenset[int]
    hidden: int

    @classmethod
    def of(cls, table: pl.DataFrame, sizes: pl.Series, activations: Activations) -> "Shared":
        """Of a kernel table, the ``sizes`` of whose GEMMs' sides are shared out."""
        return cls(
            sizes=frozenset(sizes.drop_nulls()) - {activations.hidden},
            heads=frozenset(table["heads"].drop_nulls()),
            matrices=frozenset(table.filter(side="batch")["batch"]),
            hidden=activations.hidden,
        )

    def touches(self, dims: str) -> bool:
        """Whether an op on such inputs works on something that is shared out."""
        shapes = [
            shape for shape in json.loads(dims) if isinstance(shape, list) and shape and isinstance(shape[0], int)
        ]
        return any(self._has(shape) for shape in shapes)

    def _has(self, shape: list[int]) -> bool:
        weight = len(shape) == 2 and shape[0] in self.sizes and shape[1] == self.hidden
        of_heads = self.heads.intersection(shape[1:-1]) or math.prod(shape[:-2]) in self.matrices
        return shape[-1] in self.sizes or weight or bool(of_heads)


def _changes(table: pl.DataFrame, shared: Shared) -> dict[str, pl.Expr]:
    """Which rows change in which column: sides of GEMMs, heads, and what works on something that is shared out."""
    touched = {dims: shared.touches(dims) for dims in table["input_dims"].drop_nulls().unique()}
    works = pl.col("input_dims").replace_strict(touched, default=None, return_dtype=pl.Boolean)
    memory_bound = pl.col("rows").is_not_null() & works.fill_null(False) | (pl.col("family") == "optimizer")
    by_column = (pl.col("cols").is_in(list(shared.sizes)) | (pl.col("rows") == 1)).fill_null(False)
    return {
        **{name: pl.col("side") == name for name in SIDES},
        "batch": pl.col("side").is_in(["batch", EXPERTS]),
        "heads": pl.col("heads").is_not_null(),
        "rows": memory_bound & ~by_column,
        "blocks": memory_bound & ~by_column,
        "cols": memory_bound & by_column,
        "flops": memory_bound,
        "bytes": memory_bound | pl.col("side").is_in(["batch", EXPERTS]).fill_null(value=False),
    }


def _divisible(table: pl.DataFrame, before: int, after: int) -> None:
    """Heads and what a block's second GEMM reads can't be padded; a vocabulary can."""
    inner = (pl.col("side") == "k") & (pl.col("phase") == FORWARD)
    uneven = table.filter(inner & ((pl.col("k") * before) % after != 0) | ((pl.col("heads") * before) % after != 0))
    if uneven.height:
        row = uneven.row(0, named=True)
        count, what = (row["heads"], "heads") if row["heads"] else (row["k"], "columns between a block's GEMMs")
        op = row["op"] or "a kernel without an op"
        raise LayoutError(f"{op}: {before * count} {what} can't be split over {after} ranks.")


def _gemm_bytes(factor: float) -> pl.Expr:
    """Of GEMMs that say themselves what they move: their weights and one side of the activations in parts."""
    n, k = (pl.col(name) * pl.when(pl.col("side") == name).then(factor).otherwise(1.0) for name in ("n", "k"))
    return (stored_bytes() * factor + activation_bytes(n, k)).ceil().cast(pl.Int64)


def _scaled(name: str, factor: float) -> pl.Expr:
    return (pl.col(name) * factor).round().cast(pl.Int64).clip(1)
