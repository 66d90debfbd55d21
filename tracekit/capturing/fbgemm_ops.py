"""Stand-ins for FBGEMM's look-ups in several tables at once, which tell their results' shapes and their kernels.

FBGEMM needn't be installed. Its arguments are those of ``split_embedding_codegen_forward_unweighted_cuda`` and
``split_embedding_backward_codegen_*_unweighted_exact_cuda``, up to the last one that tells a size. Behind them are the
sizes of each table, which no recording has.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
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
    """Name the kernels of a stand-in.

    Args:
        op: Its name.
        given: Its arguments.
    """
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
