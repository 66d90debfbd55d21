"""FBGEMM beside its look-ups: their backward pass, kernel by kernel, and what moves and packs their inputs and results.

A backward op names the gradient only. The look-up that it belongs to tells how many indices there are. For each of them
a row of the gradient is read; a row of a table is changed once, and how many differ isn't recorded: at most as many as
there are indices, which is the bracket.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracekit.workload.ops.vector import INDEX_BYTES, Columns, columns_of, size_of
from tracekit.workload.signature import ITEM_BYTES, Signature, dtype_of

BACKWARD = re.compile(r"SplitLookupFunction_(\w+)_Op")
EXACT = re.compile(r"^fbgemm::(?:split|dense)_embedding_backward_codegen_(\w+?)_(?:un)?weighted_exact_cuda$")
"""The backward pass as an op of its own, which names tables and indices."""
OPS = re.compile(
    r"^fbgemm::(?!\w*embedding_codegen_(?:lookup|forward)|f8f8bf16)|PermutePooledEmbsFunction|SplitLookupFunction_\w+_Op"
)
LOOKUP = r"^fbgemm::\w*embedding_codegen_lookup"
# Of a look-up: its kind in its name, and the places of weights, tables (one entry each), indices and offsets.
SPLIT = re.compile(r"^fbgemm::split_embedding_codegen_lookup_(\w+)_function"), (1, 5, 11, 12)
DENSE = re.compile(r"^fbgemm::(dense)_embedding_codegen_lookup_function"), (0, 1, 7, 8)

UPDATE = re.compile(r"_kernel_(?:cta|warp)_per_row")
WEIGHTS_GRADIENT = re.compile(r"grad_indice_weights_kernel")
PLACE_BYTES = 4
"""Where an index stood; indices are sorted with it, to go over each row once."""
SORTING = (
    (re.compile(r"linearize_index"), 2 * INDEX_BYTES + PLACE_BYTES),
    (re.compile(r"RadixSort(?:Onesweep|SingleTile)"), 2 * (INDEX_BYTES + PLACE_BYTES)),
    (re.compile(r"RadixSortHistogram|ReduceByKeyKernel"), INDEX_BYTES),
)
"""Bytes for each index of the kernels that bring them into order."""
GRADIENT_BYTES = 4
STATE_BYTES = 8
"""An optimizer's state, fp32, read and written: of each element, or of a row."""


@dataclass(frozen=True, slots=True)
class _Move:
    """What kernels of one name move: inputs read, those written again elsewhere, bytes written for each element."""

    kernel: re.Pattern[str]
    reads: tuple[int, ...]
    writes: tuple[int, ...] = ()
    cast_bytes: int = 0


MOVES = (
    _Move(re.compile(r"permute_2D_data_kernel|permute_indices_weights_kernel"), (2, 3), (2, 3)),
    _Move(re.compile(r"permute_2D_lengths_kernel"), (1,), (1,)),
    _Move(re.compile(r"permute_pooled_embs_kernel"), (0,), (0,)),
    _Move(re.compile(r"bounds_check_indices_kernel"), (1, 2)),
    _Move(re.compile(r"_get_FP8_qparam_cuda_kernel"), (0,)),
    _Move(re.compile(r"_compute_FP8_quantize_cuda_kernel"), (0,), cast_bytes=1),
    _Move(re.compile(r"_FP8rowwise_to_float_cuda_kernel"), (0,), cast_bytes=4),
)


def work(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    """What one kernel of such an op does; ``None`` where that isn't known.

    Args:
        signature: The op; of a backward pass with indices, tables and bytes of a weight as its ``output``.
        kernel: The kernel's name.
        item_bytes: Bytes per element where the signature names no type.
    """
    if BACKWARD.search(signature.op) or EXACT.search(signature.op):
        return _backward(signature, kernel)
    move = next((move for move in MOVES if move.kernel.search(kernel)), None)
    if move is None or not signature.at(0):
        return None
    read, again = ([tensor for i in inputs for tensor in signature.at(i)] for inputs in (move.reads, move.writes))
    numel = sum(tensor.numel for tensor in read)
    bytes_ = size_of([*read, *again], item_bytes) + move.cast_bytes * signature.at(0)[0].numel
    return columns_of((numel,), flops=numel if move.cast_bytes else 0, bytes_=bytes_)


def _backward(signature: Signature, kernel: str) -> Columns | None:
    exact = EXACT.search(signature.op)
    gradient, kind = signature.shape(0), exact or BACKWARD.search(signature.op)
    looked_up = _exact_lookup(signature) if exact else signature.output
    if gradient is None or kind is None or looked_up is None or len(gradient) != 2:
        return None
    indices, tables, weight_bytes = looked_up
    if tables == 0:
        return None
    width = gradient[1] // tables
    per_index = next((bytes_ for pattern, bytes_ in SORTING if pattern.search(kernel)), None)
    if per_index is not None:
        return columns_of((indices,), flops=0, bytes_=per_index * indices)
    listed = INDEX_BYTES + PLACE_BYTES
    if WEIGHTS_GRADIENT.search(kernel):
        bytes_ = indices * (width * weight_bytes + listed) + gradient[0] * gradient[1] * GRADIENT_BYTES
        return columns_of((indices, width), flops=2 * indices * width, bytes_=bytes_)
    state = _state_bytes(kind.group(1), width)
    if state is None or not UPDATE.search(kernel):
        return None
    read = width * GRADIENT_BYTES + listed
    changed = width * (weight_bytes if kind.group(1) == "Dense" else 2 * weight_bytes) + state
    columns = columns_of((indices, width), flops=4 * indices * width, bytes_=indices * read)
    return columns | {"work_low": 1.0, "work_high": (read + changed) / read}


def _exact_lookup(signature: Signature) -> tuple[int, int, int] | None:
    """Indices, tables and bytes of a weight: of gradient, weights (in three places), placements, offsets, ..."""
    weights, tables = signature.at(1), signature.at(5)
    # One more flag comes before the indices in newer versions.
    indices = next((index for index in (10, 11) if signature.at(index) and signature.at(index + 1)), None)
    if not weights or not tables or indices is None:
        return None
    return signature.at(indices)[0].numel, tables[0].numel, weights[0].item_bytes(GRADIENT_BYTES)


def _state_bytes(optimizer: str, width: int) -> int | None:
    """Bytes that an optimizer keeps for a row, read and written."""
    known = {"Dense": 0, "sgd": 0, "rowwise_adagrad": STATE_BYTES, "adagrad": STATE_BYTES * width}
    return known.get(optimizer)


def lookups(ops: pl.DataFrame) -> dict[int, list[int]]:
    """Of each backward op its row, and indices, tables and bytes of a weight of its look-up.

    That is the latest that fits and has no backward op yet: a backward pass goes the forward's way back.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    rows = ops.with_row_index("row").filter(pl.col("input_dims").is_not_null())
    found: dict[int, list[int]] = {}
    known: list[tuple[str, int, list[int]]] = []
    told = rows.filter(pl.col("name").str.contains(f"{LOOKUP}|{BACKWARD.pattern}")).sort("ts_ns")
    for row, name, dims, types in told.select("row", "name", "input_dims", "input_types").iter_rows():
        backward = BACKWARD.search(name)
        shapes = json.loads(dims)
        if backward is None:
            known += _lookup(name, shapes, json.loads(types or "[]"))
        elif shapes and len(shapes[0]) == 2:
            kind = backward.group(1).lower()
            fits = [i for i, (k, sums, one) in enumerate(known) if k == kind and sums == shapes[0][0] * one[1]]
            if fits:
                found[row] = known.pop(fits[-1])[2]
    return found


def _lookup(name: str, shapes: list[Any], types: list[str]) -> Iterator[tuple[str, int, list[int]]]:
    """Kind, sums, and what the backward pass needs of one look-up."""
    for pattern, (weights, tables, indices, offsets) in (SPLIT, DENSE):
        kind = pattern.search(name)
        if kind and len(shapes) > offsets and all(_is_tensor(shapes[i]) for i in (tables, indices, offsets)):
            weight_bytes = ITEM_BYTES.get(
                dtype_of(types[weights] if len(types) > weights else "") or "", GRADIENT_BYTES
            )
            yield kind.group(1), shapes[offsets][0] - 1, [shapes[indices][0], shapes[tables][0], weight_bytes]


def _is_tensor(shape: list[Any]) -> bool:
    return bool(shape) and isinstance(shape[0], int)
