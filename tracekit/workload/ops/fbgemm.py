"""Compute the work of FBGEMM's ops: look-ups, backward passes, and kernels that move and pack inputs and results.

A backward op only has the gradient; the matching look-up has the number of indices. Each index reads one row of the
gradient. Each different row of a table is changed once. The number of different rows isn't recorded: it is expected of
the distribution of the indices (``models.lookups``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.models.lookups import IndexPattern
from tracekit.workload.ops.fbgemm_calls import LOOKUP_OP, LookedUp, LookupCall, parse_backward, parse_lookup
from tracekit.workload.ops.fbgemm_tables import list_tables
from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, build_traffic_columns, sum_bytes
from tracekit.workload.ops.sparse_features import build_counters
from tracekit.workload.ops.table_lookups import (
    FP32_BYTES,
    LOADING_CLOCKS,
    POSITION_BYTES,
    UPDATING_CLOCKS,
    TableLookup,
    compute_fbgemm_lookup,
    compute_update_columns,
    count_block_clocks,
)
from tracekit.workload.signature import Signature

BACKWARD_FUNCTION = re.compile(r"Split(?:NoBag)?(?:VBE)?LookupFunction_(\w+?)_Op")
EXACT_BACKWARD_OP = re.compile(
    r"^fbgemm::(?:split|dense)_embedding(?:_nobag)?_backward_codegen_(\w+?)_(?:un)?weighted(?:_vbe)?_exact_cuda$"
)
"""The backward pass as an op of its own, which has tables and indices."""
NOBAG = re.compile(r"_nobag_|NoBag")
FBGEMM_OPS = re.compile(r"^fbgemm::(?!f8f8bf16|int_nbit)|PermutePooledEmbsFunction|" + BACKWARD_FUNCTION.pattern)

UPDATE_KERNEL = re.compile(r"_kernel_(?:cta|warp)_per_row")
SHARING_KERNEL = re.compile(UPDATE_KERNEL.pattern + "|embedding(?:_nobag)?_codegen_forward")
"""Kernels that do a part of their op's work."""
WEIGHTS_GRADIENT_KERNEL = re.compile(r"grad_indice_weights_kernel")
SORTING_BYTES_PER_INDEX = (
    (re.compile(r"linearize_index"), 2 * INDEX_BYTES + POSITION_BYTES),
    (re.compile(r"RadixSort(?:Onesweep|SingleTile)"), 2 * (INDEX_BYTES + POSITION_BYTES)),
    (re.compile(r"RadixSortHistogram|ReduceByKeyKernel"), INDEX_BYTES),
    (re.compile(r"ScanKernel"), 2 * POSITION_BYTES),
    (re.compile(r"find_long_segments"), POSITION_BYTES),
)
"""Bytes per index of the kernels that sort them."""
COUNTER_KERNEL = re.compile(r"(?:Scan|Compact)InitKernel|RadixSortExclusiveSum")
"""Kernels that set the counters from which others go on."""
LINEARIZING_KERNEL = re.compile(r"linearize_index")
LINEARIZED_LISTS = 32
"""Lists of indices that a thread goes through."""
LONG_SEGMENT_KERNEL = re.compile(r"_cta_per_row")
"""Kernels that have next to nothing to do unless a row is drawn more often than a warp takes."""


@dataclass(frozen=True, slots=True)
class _KernelTraffic:
    """Traffic of the kernels of one name: inputs read, inputs written again elsewhere, bytes written per element."""

    kernel: re.Pattern[str]
    reads: tuple[int, ...]
    writes: tuple[int, ...] = ()
    cast_bytes: int = 0


KERNEL_TRAFFIC = (
    _KernelTraffic(re.compile(r"permute_pooled_embs_kernel"), (0,), (0,)),
    _KernelTraffic(re.compile(r"_get_FP8_qparam_cuda_kernel"), (0,)),
    _KernelTraffic(re.compile(r"_compute_FP8_quantize_cuda_kernel"), (0,), cast_bytes=1),
    _KernelTraffic(re.compile(r"_FP8rowwise_to_float_cuda_kernel"), (0,), cast_bytes=4),
)


def compute_fbgemm_work(
    signature: Signature, kernel: str, item_bytes: int, pattern: IndexPattern | None = None
) -> Columns | None:
    """Compute the work of one kernel of an FBGEMM op; ``None`` if it isn't known.

    Args:
        signature: The op; a backward pass has what its look-up tells as its ``output``.
        kernel: The kernel's name.
        item_bytes: Bytes per element where the signature has no type.
        pattern: How indices are distributed; ``None`` if nobody knows.
    """
    if BACKWARD_FUNCTION.search(signature.op) or EXACT_BACKWARD_OP.search(signature.op):
        return _compute_backward(signature, kernel, pattern)
    lookup = parse_lookup(signature)
    if lookup is not None:
        if not lookup.width:
            return None
        return compute_fbgemm_lookup(list_tables(signature, lookup.looked_up, lookup.width, lookup.bags, pattern))
    move = next((move for move in KERNEL_TRAFFIC if move.kernel.search(kernel)), None)
    if move is None or not signature.get_tensors(0):
        return None
    read, again = (
        [tensor for i in inputs for tensor in signature.get_tensors(i)] for inputs in (move.reads, move.writes)
    )
    numel = sum(tensor.numel for tensor in read)
    bytes_ = sum_bytes([*read, *again], item_bytes) + move.cast_bytes * signature.get_tensors(0)[0].numel
    return build_traffic_columns((numel,), flops=numel if move.cast_bytes else 0, bytes_=bytes_)


def _compute_backward(signature: Signature, kernel: str, pattern: IndexPattern | None) -> Columns | None:
    exact = EXACT_BACKWARD_OP.search(signature.op)
    gradient, kind = signature.get_shape(0), exact or BACKWARD_FUNCTION.search(signature.op)
    looked_up = parse_backward(signature) if exact else LookedUp(*(signature.output or (0, 0, 0, 0)))
    if (
        gradient is None
        or kind is None
        or looked_up is None
        or len(gradient) != 2
        or 0 in (looked_up.tables, looked_up.indices)
    ):
        return None
    if COUNTER_KERNEL.search(kernel):
        return build_counters(signature, FP32_BYTES)
    in_bags = NOBAG.search(signature.op) is None
    indices, width = looked_up.indices, gradient[1] // looked_up.tables if in_bags else gradient[1]
    per_index = next((bytes_ for sorting, bytes_ in SORTING_BYTES_PER_INDEX if sorting.search(kernel)), None)
    if per_index is not None:
        columns = build_traffic_columns((indices,), flops=0, bytes_=per_index * indices)
        clocks = LINEARIZED_LISTS * LOADING_CLOCKS if LINEARIZING_KERNEL.search(kernel) else None
        return columns | {"serial_clocks": clocks}
    listed = INDEX_BYTES + POSITION_BYTES
    if WEIGHTS_GRADIENT_KERNEL.search(kernel):
        bytes_ = indices * (width * looked_up.weight_bytes + listed) + gradient[0] * gradient[1] * FP32_BYTES
        return build_traffic_columns((indices, width), flops=2 * indices * width, bytes_=bytes_)
    bags = gradient[0] * (looked_up.tables if in_bags else 1)
    return _compute_update(list_tables(signature, looked_up, width, bags, pattern), kind.group(1).lower(), kernel)


def _compute_update(tables: Sequence[TableLookup], optimizer: str, kernel: str) -> Columns | None:
    """Compute a kernel that sums the gradients of each different row and changes it."""
    columns = compute_update_columns(tables, optimizer) if UPDATE_KERNEL.search(kernel) else None
    if columns is None:
        return None
    if not LONG_SEGMENT_KERNEL.search(kernel):
        return columns | {"serial_clocks": UPDATING_CLOCKS}
    return columns | {"serial_clocks": count_block_clocks(tables) or None}


def match_lookups(ops: pl.DataFrame) -> dict[int, list[int]]:
    """Match each backward op to its look-up; return the backward op's row to the values of ``LookedUp``.

    The look-up is the latest one that fits and has no backward op yet, as a backward pass reverses the forward order.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    rows = ops.with_row_index("row").filter(pl.col("input_dims").is_not_null())
    found: dict[int, list[int]] = {}
    known: list[LookupCall] = []
    chosen = rows.filter(pl.col("name").str.contains(f"{LOOKUP_OP}|{BACKWARD_FUNCTION.pattern}")).sort("ts_ns")
    inputs = ("name", "input_dims", "input_types", "concrete_inputs")
    for row, *call in chosen.select("row", *inputs).iter_rows():
        signature, backward = Signature.parse(*call), BACKWARD_FUNCTION.search(call[0])
        lookup, gradient = parse_lookup(signature), signature.get_shape(0)
        if lookup is not None:
            known.append(lookup)
        elif backward is not None and gradient is not None and len(gradient) == 2:
            kind = backward.group(1).lower()
            fits = [i for i, one in enumerate(known) if one.kind == kind and one.bags == _count_bags(one, gradient)]
            if fits:
                found[row] = known.pop(fits[-1]).to_numbers()
    return found


def _count_bags(lookup: LookupCall, gradient: tuple[int, ...]) -> int:
    """Count the sums that a gradient of so many samples is of; without sums, it has a row for each index."""
    without_sums = lookup.bags == lookup.looked_up.indices == gradient[0]
    return gradient[0] * (1 if without_sums else lookup.looked_up.tables)
