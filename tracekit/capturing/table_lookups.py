"""Look up rows of embedding tables that the backward pass updates, so that a capture sees what CUDA runs.

A sparse gradient has no storage, so PyTorch's can't be captured: the functions here run its ops one by one. Of FBGEMM's
they run stand-ins.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from tracekit.capturing.fbgemm_ops import BACKWARD, BOUNDS_CHECK, FBGEMM_CAPTURED, FORWARD

LEARNING_RATE = 0.1
WARNING = 1
"""FBGEMM's usual way to check indices, ``BoundsCheckMode.WARNING``."""


class SparseBagLookup(Function):
    """Sum rows of one table, to which SGD adds a sparse gradient, as PyTorch does.

    The gradient of each sum is copied to each of its rows, and added to the table.
    """

    @staticmethod
    def forward(ctx: Any, needs_gradient: Tensor, table: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
        """Look up.

        Args:
            ctx: What the backward pass gets.
            needs_gradient: A parameter, so that there is a backward pass: of the table there is no dense gradient.
            table: The table.
            indices: Rows.
            offsets: Where the rows of each sum begin.
        """
        del needs_gradient
        ctx.save_for_backward(table, indices)
        sums: Tensor = torch.ops.aten._embedding_bag(table, indices, offsets, False, 0, True)[0]
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        """Update the table."""
        table, indices = ctx.saved_tensors
        rows = torch.ops.aten.index_select(gradients[0], 0, indices)
        torch.ops.aten.index_add_(table, 0, indices, rows, alpha=-LEARNING_RATE)
        return (None,) * 4


@dataclass(frozen=True)
class BatchedTables:
    """Sizes of tables that are looked up together.

    Attributes:
        rows: Of each table.
        widths: Likewise.
        indices: Rows looked up in each.
        optimizer: What updates them.
    """

    rows: list[int]
    widths: list[int]
    indices: list[int]
    optimizer: str

    @property
    def sizes(self) -> tuple[list[int], list[int], list[int]]:
        """Rows, widths and indices of each table."""
        return self.rows, self.widths, self.indices


class BatchedLookup(Function):
    """Sum rows of several tables in one kernel, and update them, as FBGEMM does."""

    @staticmethod
    def forward(
        ctx: Any, needs_gradient: Tensor, tables: BatchedTables, weights: Tensor, indices: Tensor, offsets: Tensor
    ) -> Tensor:
        """Look up.

        Args:
            ctx: What the backward pass gets.
            needs_gradient: As for :class:`SparseBagLookup`.
            tables: Their sizes.
            weights: Their elements.
            indices: Rows of all tables.
            offsets: Where the rows of each sum begin, and where the last ones end.
        """
        del needs_gradient
        ctx.save_for_backward(weights, indices, offsets)
        ctx.tables = tables
        none, each = indices.new_empty(0), indices.new_empty(len(tables.rows))
        widths = sum(tables.widths), max(tables.widths)
        _get_op(BOUNDS_CHECK)(each, indices, offsets, WARNING, indices.new_empty(1))
        look_up = _get_op(FORWARD)
        sums: Tensor = look_up(weights, none, none, each, each, each, *widths, indices, offsets, *tables.sizes)
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        """Update the tables."""
        weights, indices, offsets = ctx.saved_tensors
        tables: BatchedTables = ctx.tables
        none, each = indices.new_empty(0), indices.new_empty(len(tables.rows))
        update, bits = _get_op(BACKWARD.format(optimizer=tables.optimizer)), sum(tables.rows).bit_length()
        stored = weights, none, none, each, each, each
        update(gradients[0], *stored, max(tables.widths), each, bits, indices, offsets, *tables.sizes)
        return (None,) * 5


def _get_op(name: str) -> Any:
    return getattr(getattr(torch.ops, FBGEMM_CAPTURED), name)
