"""Look up rows of embedding tables that the backward pass updates, so that a capture sees what CUDA runs.

A sparse gradient has no storage, so PyTorch's can't be captured: the functions here run its ops one by one. Of FBGEMM's
look-ups in several tables at once they run stand-ins, which tell the results' shapes and the kernels. FBGEMM needn't be
installed. The stand-ins' arguments are those of ``split_embedding_codegen_forward_unweighted_cuda`` and
``split_embedding_backward_codegen_*_unweighted_exact_cuda``, up to the last one that tells a size. Behind them are the
sizes of each table, which no recording has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import Library

FBGEMM = "fbgemm"
FBGEMM_CAPTURED = "tracekit_fbgemm"
"""Namespace of the stand-ins: FBGEMM itself may be there too."""
FORWARD = "split_embedding_codegen_forward_unweighted_cuda"
BACKWARD = "split_embedding_backward_codegen_{optimizer}_unweighted_exact_cuda"
BOUNDS_CHECK = "bounds_check_indices"
OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam", "partial_rowwise_adam")
WIDTH, OFFSETS, HASH_BITS = 6, 9, 9
"""Arguments: all tables' widths together, the starts of each sum's indices; bits of a row's number in the backward."""
BITS_PER_PASS = 8
"""Of a radix sort."""

_SIZES = "int[] table_rows, int[] table_widths, int[] table_indices"
_LIBRARY = Library(FBGEMM_CAPTURED, "DEF")
_LIBRARY.define(
    f"{FORWARD}(Tensor dev_weights, Tensor uvm_weights, Tensor lxu_cache_weights, Tensor weights_placements, "
    f"Tensor weights_offsets, Tensor D_offsets, int total_D, int max_D, Tensor indices, Tensor offsets, {_SIZES}) "
    "-> Tensor"
)
_LIBRARY.define(
    f"{BOUNDS_CHECK}(Tensor rows_per_table, Tensor indices, Tensor offsets, int bounds_check_mode, Tensor warning) "
    "-> ()"
)
for _optimizer in OPTIMIZERS:
    _LIBRARY.define(
        f"{BACKWARD.format(optimizer=_optimizer)}(Tensor grad_output, Tensor dev_weights, Tensor uvm_weights, "
        "Tensor lxu_cache_weights, Tensor weights_placements, Tensor weights_offsets, Tensor D_offsets, int max_D, "
        f"Tensor hash_size_cumsum, int total_hash_size_bits, Tensor indices, Tensor offsets, {_SIZES}) -> ()"
    )


def _make_sums(*given: Any) -> Tensor:
    weights, tables, offsets = given[0], given[4].numel(), given[OFFSETS]
    sums: Tensor = weights.new_empty((offsets.numel() - 1) // tables, given[WIDTH])
    return sums


def _make_nothing(*given: Any) -> None:
    del given


_LIBRARY.impl(FORWARD, _make_sums, "Meta")
_LIBRARY.impl(BOUNDS_CHECK, _make_nothing, "Meta")
for _optimizer in OPTIMIZERS:
    _LIBRARY.impl(BACKWARD.format(optimizer=_optimizer), _make_nothing, "Meta")


def name_fbgemm_kernels(op: str, given: Sequence[Any]) -> tuple[str, ...]:
    """Name the kernels of a stand-in."""
    if op.endswith(BOUNDS_CHECK):
        return ("bounds_check_indices_kernel",)
    if op.endswith(FORWARD):
        return ("split_embedding_codegen_forward_unweighted_kernel",)
    optimizer = next(one for one in OPTIMIZERS if op.endswith(BACKWARD.format(optimizer=one)))
    passes = -(-given[HASH_BITS] // BITS_PER_PASS)
    updating = f"split_embedding_backward_codegen_{optimizer}_unweighted"
    return (
        "linearize_index_kernel",
        *("DeviceRadixSortHistogramKernel", "DeviceRadixSortExclusiveSumKernel"),
        *("DeviceRadixSortOnesweepKernel",) * passes,
        *("DeviceCompactInitKernel", "DeviceReduceByKeyKernel", "DeviceScanInitKernel", "DeviceScanKernel"),
        f"{updating}_find_long_segments",
        *(f"{updating}_kernel_cta_per_row_1", f"{updating}_kernel_warp_per_row_1"),
    )


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

        ``needs_gradient`` is a parameter, so that there is a backward pass: of the table there is no dense gradient.
        ``offsets`` are where the rows of each sum begin.
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

        ``needs_gradient`` is as for :class:`SparseBagLookup`. ``indices`` are rows of all tables; ``offsets`` are where
        the rows of each sum begin, and where the last ones end.
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
