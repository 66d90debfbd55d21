"""Derive a rank's kernels for another number of tensor-parallel ranks.

Split are the GEMM dimensions that ``transformer_blocks`` infers, attention heads, and the tensors of either.
"""

import json
import math
from dataclasses import dataclass

import polars as pl

from tracekit.parallelism.layout import LayoutError, check_work_known
from tracekit.parallelism.transformer_blocks import (
    EXPERTS,
    GEMM_SIDES,
    Activations,
    compute_activation_bytes,
    compute_weight_bytes,
    infer_activations_from_collectives,
    infer_activations_from_gemms,
    infer_split_sides,
)
from tracekit.workload.phases import FORWARD


def split_layers(kernels: pl.DataFrame, calls: pl.DataFrame, before: int, after: int) -> pl.DataFrame:
    """Return the kernel table of each of ``after`` ranks, where ``before`` ranks split the layers.

    Example for a first MLP GEMM with ``before`` 1 and ``after`` 4: m x n x k of 4096 x 4096 x 1024 becomes
    4096 x 1024 x 1024.

    Args:
        kernels: The kernel table.
        calls: The collectives of tensor-parallel groups, as ``list_collectives`` returns them.
        before: Tensor-parallel ranks in the trace.
        after: Requested ranks.

    Returns:
        The table with other dimensions where they change, and ``changed``, whether they did.

    Raises:
        LayoutError: The split dimensions are unknown, or can't be divided by the number of ranks.
    """
    check_layers_known(kernels)
    activations = (
        infer_activations_from_gemms(kernels) if before == 1 else infer_activations_from_collectives(kernels, calls)
    )
    gemms = infer_split_sides(kernels, activations)
    table = kernels.with_columns(gemms["side"])
    changes = _find_changes(table, SplitTensors.from_kernels(table, gemms["size"], activations))
    _check_divisible(table, before, after)
    factor = before / after
    edited = {name: pl.when(mine).then(_scale_column(name, factor)).otherwise(name) for name, mine in changes.items()}
    sided = pl.col("side").is_in(["n", "k"]).fill_null(value=False)
    edited["bytes"] = pl.when(sided).then(_scale_gemm_bytes(factor)).otherwise(edited["bytes"])
    anything = pl.any_horizontal(*changes.values()).fill_null(False)
    return table.with_columns(**edited, kv_heads=_scale_column("kv_heads", factor), changed=anything).drop("side")


def check_layers_known(kernels: pl.DataFrame) -> None:
    """Refuse jobs whose layers have too much unknown work to be split; attention can always be split by heads.

    Args:
        kernels: The kernel table.

    Raises:
        LayoutError: Too much of their work is unknown.
    """
    kept = ["collective", "memcpy", "memset", "attention"]
    check_work_known(kernels.filter(~pl.col("family").is_in(kept)), "tensor parallelism")


@dataclass(frozen=True)
class SplitTensors:
    """Evidence that a tensor is split.

    Attributes:
        sizes: Split sizes of the last dimension.
        heads: Numbers of attention heads, one of the inner dimensions.
        matrix_counts: Numbers of matrices in batched GEMMs: the product of all dimensions but the last two.
        hidden: Number of columns of weights whose rows are in ``sizes``.
    """

    sizes: frozenset[int]
    heads: frozenset[int]
    matrix_counts: frozenset[int]
    hidden: int

    @classmethod
    def from_kernels(cls, table: pl.DataFrame, sizes: pl.Series, activations: Activations) -> "SplitTensors":
        """Collect the evidence from a kernel table and the split ``sizes`` of its GEMMs."""
        return cls(
            sizes=frozenset(sizes.drop_nulls()) - {activations.hidden},
            heads=frozenset(table["heads"].drop_nulls()),
            matrix_counts=frozenset(table.filter(side="batch")["batch"]),
            hidden=activations.hidden,
        )

    def use_split_tensor(self, dims: str) -> bool:
        """Return whether an op with such inputs works on a split tensor."""
        shapes = [
            shape for shape in json.loads(dims) if isinstance(shape, list) and shape and isinstance(shape[0], int)
        ]
        return any(self._contain_shape(shape) for shape in shapes)

    def _contain_shape(self, shape: list[int]) -> bool:
        weight = len(shape) == 2 and shape[0] in self.sizes and shape[1] == self.hidden
        of_heads = self.heads.intersection(shape[1:-1]) or math.prod(shape[:-2]) in self.matrix_counts
        return shape[-1] in self.sizes or weight or bool(of_heads)


def _find_changes(table: pl.DataFrame, split_tensors: SplitTensors) -> dict[str, pl.Expr]:
    """Find the rows that change, by column: GEMM dimensions, heads, and kernels on split tensors."""
    touched = {dims: split_tensors.use_split_tensor(dims) for dims in table["input_dims"].drop_nulls().unique()}
    works = pl.col("input_dims").replace_strict(touched, default=None, return_dtype=pl.Boolean)
    memory_bound = pl.col("rows").is_not_null() & works.fill_null(False) | (pl.col("family") == "optimizer")
    by_column = (pl.col("cols").is_in(list(split_tensors.sizes)) | (pl.col("rows") == 1)).fill_null(False)
    return {
        **{name: pl.col("side") == name for name in GEMM_SIDES},
        "batch": pl.col("side").is_in(["batch", EXPERTS]),
        "heads": pl.col("heads").is_not_null(),
        "rows": memory_bound & ~by_column,
        "blocks": memory_bound & ~by_column,
        "cols": memory_bound & by_column,
        "flops": memory_bound,
        "bytes": memory_bound | pl.col("side").is_in(["batch", EXPERTS]).fill_null(value=False),
    }


def _check_divisible(table: pl.DataFrame, before: int, after: int) -> None:
    """Refuse heads, or inputs of a block's second GEMM, that can't be divided; a vocabulary can be padded."""
    inner = (pl.col("side") == "k") & (pl.col("phase") == FORWARD)
    uneven = table.filter(inner & ((pl.col("k") * before) % after != 0) | ((pl.col("heads") * before) % after != 0))
    if uneven.height:
        row = uneven.row(0, named=True)
        count, what = (row["heads"], "heads") if row["heads"] else (row["k"], "columns between a block's GEMMs")
        op = row["op"] or "a kernel without an op"
        raise LayoutError(f"{op}: {before * count} {what} can't be split over {after} ranks.")


def _scale_gemm_bytes(factor: float) -> pl.Expr:
    """Scale ``bytes`` of GEMMs that have their own: weights, and the split side of the activations."""
    n, k = (pl.col(name) * pl.when(pl.col("side") == name).then(factor).otherwise(1.0) for name in ("n", "k"))
    return (compute_weight_bytes() * factor + compute_activation_bytes(n, k)).ceil().cast(pl.Int64)


def _scale_column(name: str, factor: float) -> pl.Expr:
    return (pl.col(name) * factor).round().cast(pl.Int64).clip(1)
