"""Compute the work of FBGEMM's ops beside look-ups: backward passes, and kernels that move and pack inputs and results.

A backward op only has the gradient; the matching look-up has the number of indices. Each index reads one row of the
gradient. Each different row of a table is changed once. The number of different rows isn't recorded: it is expected of
indices by Zipf's law (``index_distribution``), between none and as many as there are indices.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracekit.workload.ops.index_distribution import USUAL_ALPHA, get_distribution
from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, build_traffic_columns, sum_bytes
from tracekit.workload.signature import ITEM_BYTES, Signature, parse_cpp_dtype

BACKWARD_FUNCTION = re.compile(r"SplitLookupFunction_(\w+)_Op")
EXACT_BACKWARD_OP = re.compile(
    r"^fbgemm::(?:split|dense)_embedding_backward_codegen_(\w+?)_(?:un)?weighted_exact_cuda$"
)
"""The backward pass as an op of its own, which has tables and indices."""
FBGEMM_OPS = re.compile(
    r"^fbgemm::(?!\w*embedding_codegen_(?:lookup|forward)|f8f8bf16)|PermutePooledEmbsFunction|SplitLookupFunction_\w+_Op"
)
LOOKUP_OP = r"^fbgemm::\w*embedding_codegen_lookup"
# Name of a look-up, with its kind, and the positions of weights, tables (one entry each), indices and offsets.
SPLIT_LOOKUP = re.compile(r"^fbgemm::split_embedding_codegen_lookup_(\w+)_function"), (1, 5, 11, 12)
DENSE_LOOKUP = re.compile(r"^fbgemm::(dense)_embedding_codegen_lookup_function"), (0, 1, 7, 8)

UPDATE_KERNEL = re.compile(r"_kernel_(?:cta|warp)_per_row")
WEIGHTS_GRADIENT_KERNEL = re.compile(r"grad_indice_weights_kernel")
POSITION_BYTES = 4
"""Bytes of an index's original position; indices are sorted with it, to go over each row once."""
SORTING_BYTES_PER_INDEX = (
    (re.compile(r"linearize_index"), 2 * INDEX_BYTES + POSITION_BYTES),
    (re.compile(r"RadixSort(?:Onesweep|SingleTile)"), 2 * (INDEX_BYTES + POSITION_BYTES)),
    (re.compile(r"RadixSortHistogram|ReduceByKeyKernel"), INDEX_BYTES),
)
"""Bytes per index of the kernels that sort them."""
LINEARIZING_KERNEL = re.compile(r"linearize_index")
LONG_SEGMENT_KERNEL = re.compile(r"_cta_per_row")
"""Kernels that have next to nothing to do unless a row is drawn more often than a warp takes."""
MAX_WARP_SEGMENT, BLOCK_WARPS = 32, 32
LOADING_CLOCKS, UPDATING_CLOCKS = 400, 17_000
"""Clocks of a thread for each load that the next one waits for, and for a row that a warp updates; a block that does so
sums up twice. In eight V100 ranks of a DLRM with at most 2,000 indices (v100_dlrm_train) a warp's kernel takes 9 to 22
us, a block's 15 to 37; a warp's takes 12 on an A100 with 57,000 (a100_dlrm_control)."""
LINEARIZED_LISTS = 32
"""Lists of indices that a thread goes through."""
GRADIENT_BYTES = 4
OPTIMIZER_STATE_BYTES = 8
"""Bytes of an optimizer's fp32 state, read and written: per element, or per row."""


@dataclass(frozen=True, slots=True)
class _KernelTraffic:
    """Traffic of the kernels of one name: inputs read, inputs written again elsewhere, bytes written per element."""

    kernel: re.Pattern[str]
    reads: tuple[int, ...]
    writes: tuple[int, ...] = ()
    cast_bytes: int = 0


KERNEL_TRAFFIC = (
    _KernelTraffic(re.compile(r"permute_2D_data_kernel|permute_indices_weights_kernel"), (2, 3), (2, 3)),
    _KernelTraffic(re.compile(r"permute_2D_lengths_kernel"), (1,), (1,)),
    _KernelTraffic(re.compile(r"permute_pooled_embs_kernel"), (0,), (0,)),
    _KernelTraffic(re.compile(r"bounds_check_indices_kernel"), (1, 2)),
    _KernelTraffic(re.compile(r"_get_FP8_qparam_cuda_kernel"), (0,)),
    _KernelTraffic(re.compile(r"_compute_FP8_quantize_cuda_kernel"), (0,), cast_bytes=1),
    _KernelTraffic(re.compile(r"_FP8rowwise_to_float_cuda_kernel"), (0,), cast_bytes=4),
)


def compute_fbgemm_work(
    signature: Signature, kernel: str, item_bytes: int, zipf: float | None = None
) -> Columns | None:
    """Compute the work of one kernel of an FBGEMM op; ``None`` if it isn't known.

    Args:
        signature: The op; a backward pass has what its look-up tells as its ``output``.
        kernel: The kernel's name.
        item_bytes: Bytes per element where the signature has no type.
        zipf: Exponent of the indices' distribution; ``None`` if nobody tells.
    """
    if BACKWARD_FUNCTION.search(signature.op) or EXACT_BACKWARD_OP.search(signature.op):
        return _compute_backward(signature, kernel, zipf)
    move = next((move for move in KERNEL_TRAFFIC if move.kernel.search(kernel)), None)
    if move is None or not signature.get_tensors(0):
        return None
    read, again = (
        [tensor for i in inputs for tensor in signature.get_tensors(i)] for inputs in (move.reads, move.writes)
    )
    numel = sum(tensor.numel for tensor in read)
    bytes_ = sum_bytes([*read, *again], item_bytes) + move.cast_bytes * signature.get_tensors(0)[0].numel
    return build_traffic_columns((numel,), flops=numel if move.cast_bytes else 0, bytes_=bytes_)


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """What a backward pass needs of its look-up.

    Attributes:
        indices: Indices into all tables.
        tables: Tables.
        weight_bytes: Bytes of a weight.
        weights: Weights of all tables in the GPU's memory; 0 where they lie elsewhere.
    """

    indices: int
    tables: int
    weight_bytes: int
    weights: int

    def expect_draws(self, width: int, alpha: float) -> tuple[float, float]:
        """Expect the number of different rows of all tables, and how often the most frequent one is drawn.

        Tables count as equal. Those of unknown size have as many rows as they have indices.
        """
        each = max(self.indices // self.tables, 1)
        drawn = get_distribution(self.weights // (max(width, 1) * self.tables) or each, alpha)
        return min(self.tables * drawn.expect_unique(each), self.indices), drawn.expect_most_frequent(each)


def _compute_backward(signature: Signature, kernel: str, zipf: float | None) -> Columns | None:
    exact = EXACT_BACKWARD_OP.search(signature.op)
    gradient, kind = signature.get_shape(0), exact or BACKWARD_FUNCTION.search(signature.op)
    looked_up = _parse_exact_backward(signature) if exact else _LookedUp(*(signature.output or (0, 0, 0, 0)))
    if (
        gradient is None
        or kind is None
        or looked_up is None
        or len(gradient) != 2
        or 0 in (looked_up.tables, looked_up.indices)
    ):
        return None
    indices, width = looked_up.indices, gradient[1] // looked_up.tables
    per_index = next((bytes_ for pattern, bytes_ in SORTING_BYTES_PER_INDEX if pattern.search(kernel)), None)
    if per_index is not None:
        columns = build_traffic_columns((indices,), flops=0, bytes_=per_index * indices)
        clocks = LINEARIZED_LISTS * LOADING_CLOCKS if LINEARIZING_KERNEL.search(kernel) else None
        return columns | {"serial_clocks": clocks}
    listed = INDEX_BYTES + POSITION_BYTES
    if WEIGHTS_GRADIENT_KERNEL.search(kernel):
        bytes_ = indices * (width * looked_up.weight_bytes + listed) + gradient[0] * gradient[1] * GRADIENT_BYTES
        return build_traffic_columns((indices, width), flops=2 * indices * width, bytes_=bytes_)
    return _compute_update(looked_up, width, kind.group(1), kernel, zipf)


def _compute_update(
    looked_up: _LookedUp, width: int, optimizer: str, kernel: str, zipf: float | None
) -> Columns | None:
    """Compute a kernel that sums the gradients of each different row and changes it."""
    state = _compute_state_bytes(optimizer, width)
    if state is None or not UPDATE_KERNEL.search(kernel):
        return None
    indices, (unique, most) = looked_up.indices, looked_up.expect_draws(width, USUAL_ALPHA if zipf is None else zipf)
    read = width * GRADIENT_BYTES + INDEX_BYTES + POSITION_BYTES
    changed = width * looked_up.weight_bytes * (1 if optimizer == "Dense" else 2) + state
    moved = indices * read + unique * changed
    columns = build_traffic_columns((indices, width), flops=4 * indices * width, bytes_=round(moved))
    if zipf is None or not looked_up.weights:
        columns |= {"work_low": indices * read / moved, "work_high": indices * (read + changed) / moved}
    # It looks up where each element lies.
    columns |= {"indexed": True, "across": True}
    if not LONG_SEGMENT_KERNEL.search(kernel):
        return columns | {"serial_clocks": UPDATING_CLOCKS}
    if most <= MAX_WARP_SEGMENT:
        return columns
    return columns | {"serial_clocks": 2 * UPDATING_CLOCKS + round(most / BLOCK_WARPS) * LOADING_CLOCKS}


def _parse_exact_backward(signature: Signature) -> _LookedUp | None:
    """Parse the indices, tables and weights from the inputs.

    Inputs: gradient, weights (in three places), placements, offsets, ...
    """
    weights, tables = signature.get_tensors(1), signature.get_tensors(5)
    # Newer versions have one more flag before the indices.
    indices = next(
        (index for index in (10, 11) if signature.get_tensors(index) and signature.get_tensors(index + 1)), None
    )
    if not weights or not tables or indices is None:
        return None
    weight_bytes = int(weights[0].get_item_bytes(GRADIENT_BYTES))
    return _LookedUp(signature.get_tensors(indices)[0].numel, tables[0].numel, weight_bytes, weights[0].numel)


def _compute_state_bytes(optimizer: str, width: int) -> int | None:
    """Return the bytes that an optimizer reads and writes for a row."""
    known = {"Dense": 0, "sgd": 0, "rowwise_adagrad": OPTIMIZER_STATE_BYTES, "adagrad": OPTIMIZER_STATE_BYTES * width}
    return known.get(optimizer)


def match_lookups(ops: pl.DataFrame) -> dict[int, list[int]]:
    """Match each backward op to its look-up; return the backward op's row to the values of ``_LookedUp``.

    The look-up is the latest one that fits and has no backward op yet, as a backward pass reverses the forward order.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    rows = ops.with_row_index("row").filter(pl.col("input_dims").is_not_null())
    found: dict[int, list[int]] = {}
    known: list[tuple[str, int, list[int]]] = []
    told = rows.filter(pl.col("name").str.contains(f"{LOOKUP_OP}|{BACKWARD_FUNCTION.pattern}")).sort("ts_ns")
    for row, name, dims, types in told.select("row", "name", "input_dims", "input_types").iter_rows():
        backward = BACKWARD_FUNCTION.search(name)
        shapes = json.loads(dims)
        if backward is None:
            known += parse_lookup(name, shapes, json.loads(types or "[]"))
        elif shapes and len(shapes[0]) == 2:
            kind = backward.group(1).lower()
            fits = [i for i, (k, sums, one) in enumerate(known) if k == kind and sums == shapes[0][0] * one[1]]
            if fits:
                found[row] = known.pop(fits[-1])[2]
    return found


def parse_lookup(name: str, shapes: list[Any], types: list[str]) -> Iterator[tuple[str, int, list[int]]]:
    """Parse a look-up, if it is one: its kind, the number of its sums, and the values of ``_LookedUp``."""
    for pattern, (weights, tables, indices, offsets) in (SPLIT_LOOKUP, DENSE_LOOKUP):
        kind = pattern.search(name)
        if kind and len(shapes) > offsets and all(_is_tensor(shapes[i]) for i in (tables, indices, offsets)):
            weight_bytes = ITEM_BYTES.get(
                parse_cpp_dtype(types[weights] if len(types) > weights else "") or "", GRADIENT_BYTES
            )
            held = math.prod(shapes[weights]) if _is_tensor(shapes[weights]) else 0
            yield kind.group(1), shapes[offsets][0] - 1, [shapes[indices][0], shapes[tables][0], weight_bytes, held]


def _is_tensor(shape: list[Any]) -> bool:
    return bool(shape) and isinstance(shape[0], int)
