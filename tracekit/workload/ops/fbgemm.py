"""Compute the work of FBGEMM's ops: look-ups, backward passes, and kernels that move and pack inputs and results.

A backward op only has the gradient; the matching look-up has the number of indices. Each index reads one row of the
gradient. Each different row of a table is changed once. The number of different rows isn't recorded: it is expected of
the distribution of the indices (:mod:`tracekit.models.lookups`).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import polars as pl

from tracekit.arrays import has_name
from tracekit.models.lookups import IndexPattern
from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, build_traffic_columns, sum_bytes
from tracekit.workload.ops.sparse_features import build_counters
from tracekit.workload.ops.table_lookups import (
    FP32_BYTES,
    LOADING_CLOCKS,
    POSITION_BYTES,
    UPDATING_CLOCKS,
    Placement,
    TableLookup,
    compute_fbgemm_lookup,
    compute_update_columns,
    count_block_clocks,
    sum_traffic,
)
from tracekit.workload.signature import Signature

LOOKUP_OP = r"^fbgemm::\w*embedding_codegen_lookup"
PLACEMENTS = tuple(Placement)
FIRST_INDICES, LAST_INDICES = 8, 12
"""Inputs of a backward pass among which the indices are, before the offsets; versions have more or fewer."""


@dataclass(frozen=True, slots=True)
class _CallInputs:
    """Positions of a call's inputs.

    Attributes:
        op: Its name; a group is the kind of backward pass that follows.
        weights: Weights on the GPU; managed ones and the cache follow, unless ``dense``.
        tables: An input with an entry per table.
        width: Width of all tables together, or of one if ``nobag``.
        indices: The indices, before the starts of the bags.
        rows: An input with an entry per row of all tables, where values of inputs aren't recorded.
        dense: Whether all weights are on the GPU, of a parameter that PyTorch's optimizers update.
        nobag: Whether rows aren't summed up.
    """

    op: re.Pattern[str]
    weights: int
    tables: int
    width: int
    indices: int
    rows: int | None = None
    dense: bool = False
    nobag: bool = False


CALLS = (
    _CallInputs(re.compile(r"^fbgemm::split_embedding_codegen_lookup_(rowwise_adagrad)_function$"), 1, 5, 7, 11, 20),
    _CallInputs(re.compile(r"^fbgemm::split_embedding_codegen_lookup_(\w+)_function$"), 1, 5, 7, 11),
    _CallInputs(re.compile(r"^fbgemm::split_embedding_codegen_forward_(?:un)?weighted(?:_vbe)?_cuda$"), 0, 4, 6, 8),
    _CallInputs(re.compile(r"^fbgemm::split_embedding_nobag_codegen_forward_unweighted_cuda$"), 0, 4, 5, 6, nobag=True),
    _CallInputs(re.compile(r"^fbgemm::(dense)_embedding_codegen_lookup_function$"), 0, 1, 3, 7, dense=True),
    _CallInputs(re.compile(r"^fbgemm::dense_embedding_codegen_forward_(?:un)?weighted_cuda$"), 0, 1, 3, 5, dense=True),
    _CallInputs(
        re.compile(r"^fbgemm::dense_embedding_nobag_codegen_forward_unweighted_cuda$"), 0, 1, 2, 3, None, True, True
    ),
)
"""Look-ups, and their kernels as ops of their own (FBGEMM's ``embedding_forward_split_template.cu`` and
``embedding_backward_split_host_template.cpp``)."""
LOOKUP_OPS = "|".join(call.op.pattern for call in CALLS)


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Tables and indices of a call.

    Attributes:
        indices: Indices into all tables.
        weights: Weights of all tables; 0 where the trace doesn't tell.
        placement: Position in ``PLACEMENTS`` of where they lie.
    """

    indices: int
    tables: int
    weight_bytes: int
    weights: int
    placement: int = 0

    def split_evenly(self, width: float, bags: int, pattern: IndexPattern | None) -> TableLookup:
        """Return the look-ups in equal tables; tables of unknown size have as many rows as indices.

        ``width`` is in elements of a row; ``bags`` are sums over all tables.
        """
        each = self.indices / self.tables
        return TableLookup(
            rows=int(self.weights / (max(width, 1) * self.tables)) or max(round(each), 1),
            width=width,
            indices=each,
            bags=bags / self.tables,
            weight_bytes=self.weight_bytes,
            pattern=pattern,
            placement=PLACEMENTS[self.placement],
            tables=self.tables,
        )


@dataclass(frozen=True, slots=True)
class LookupCall:
    """A look-up.

    Attributes:
        kind: Kind of the backward pass that follows, an optimizer or ``dense``; empty where the call doesn't tell.
        bags: Sums over all tables.
        width: Elements of a row, the mean of all tables; None if not recorded.
    """

    kind: str
    looked_up: LookedUp
    bags: int
    width: float | None

    def to_numbers(self) -> list[int]:
        """Return what :class:`LookedUp` is made of."""
        return list(astuple(self.looked_up))


def parse_lookup(signature: Signature) -> LookupCall | None:
    """Parse a look-up; None where it isn't one, or its inputs aren't those of a known version."""
    found = ((call, call.op.search(signature.op)) for call in CALLS)
    call, match = next(((call, match) for call, match in found if match), (None, None))
    if call is None or match is None:
        return None
    looked_up = _parse_tables(signature, call.weights, call.tables, call.indices, dense=call.dense)
    offsets = signature.get_shape(call.indices + 1)
    if looked_up is None or not offsets:
        return None
    kind = match.group(1) if match.re.groups else ""
    bags = looked_up.indices if call.nobag else offsets[0] - 1
    return LookupCall(kind, looked_up, bags, _find_width(signature, call, looked_up))


def parse_backward(signature: Signature) -> LookedUp | None:
    """Parse the tables and indices of a backward pass that has them itself: gradient, weights, placements, ..."""
    known = range(FIRST_INDICES, LAST_INDICES)
    indices = next((i for i in known if signature.get_shape(i) and signature.get_shape(i + 1)), None)
    return None if indices is None else _parse_tables(signature, 1, 5, indices)


def _parse_tables(
    signature: Signature, weights: int, tables: int, indices: int, *, dense: bool = False
) -> LookedUp | None:
    on_gpu, table, index = (signature.get_tensor(i) for i in (weights, tables, indices))
    if on_gpu is None or table is None or index is None or not table.numel:
        return None
    held, placement = on_gpu, Placement.DEVICE
    if not dense:
        managed, cache = signature.get_tensor(weights + 1), signature.get_tensor(weights + 2)
        if managed is not None and managed.numel > on_gpu.numel:
            held, placement = managed, Placement.MANAGED
            placement = Placement.MANAGED_CACHING if cache is not None and cache.numel else placement
    weight_bytes = int(held.get_item_bytes(FP32_BYTES))
    return LookedUp(index.numel, table.numel, weight_bytes, held.numel, PLACEMENTS.index(placement))


def _find_width(signature: Signature, call: _CallInputs, looked_up: LookedUp) -> float | None:
    width = signature.get_integer(call.width)
    if width:
        return width if call.nobag else width / looked_up.tables
    state = signature.get_tensor(call.rows) if call.rows is not None else None
    return looked_up.weights / state.numel if state is not None and state.numel and looked_up.weights else None


LISTS = 3
"""Last inputs of a captured call: lists of each table's rows, width and indices."""


def list_tables(
    signature: Signature, looked_up: LookedUp, width: float, bags: int, pattern: IndexPattern | None
) -> list[TableLookup]:
    """List the tables of a call, equal ones as one.

    ``looked_up`` is what the call tells of all tables together, ``width`` their mean width, ``bags`` the sums over all.
    """
    each = [signature.get_integers(len(signature.dims) - LISTS + place) or [] for place in range(LISTS)]
    if {len(sizes) for sizes in each} != {looked_up.tables}:
        return [looked_up.split_evenly(width, bags, pattern)]
    return [
        TableLookup(
            rows=max(rows, 1),
            width=of_row,
            indices=indices,
            bags=bags / looked_up.tables,
            weight_bytes=looked_up.weight_bytes,
            pattern=pattern,
            tables=count,
        )
        for (rows, of_row, indices), count in Counter(zip(*each, strict=True)).items()
    ]


OP = "fbgemm::int_nbit_split_embedding_codegen_lookup_function"
ON_GPU, MANAGED = 0, 1

BITS_BY_ARGUMENT = {7: 2, 8: 4, 9: 8, 10: 16, 11: 32, 20: 8}
"""Position of the argument that is the widest table of a type (0: there is none) to bits of that type."""
INTEGER_ARGUMENTS = (7, 8, 9)
SCALE_BYTES = 4
TABLES, WIDTH, INDICES, OFFSETS, POOLING, OUTPUT = 5, 6, 12, 13, 14, 16
NO_POOLING = 2
OUTPUT_BYTES: dict[int | None, int] = {0: 4, 1: 2, 2: 1, 5: 2}
"""Bytes of fp32, fp16, int8, bf16, as FBGEMM numbers them."""


def compute_quantised_lookup(signature: Signature, pattern: IndexPattern | None = None) -> Columns | None:
    """Compute a row per index, summed per bag, with a bag for each table and sample; None for any other op.

    Tables are assumed to be as wide and long as their average. For tables of several types, the narrowest and the
    widest type are the bounds, and the mean of their row sizes is assumed.
    """
    if signature.op != OP:
        return None
    tables, indices, offsets = (signature.get_tensors(index) for index in (TABLES, INDICES, OFFSETS))
    width = signature.get_value(WIDTH)
    if not tables or not indices or not offsets or not isinstance(width, int) or tables[0].numel < 2:
        return None
    count = tables[0].numel - 1
    sizes = [_compute_row_bytes(index, width / count) for index in BITS_BY_ARGUMENT if signature.get_value(index)]
    if not sizes:
        return None
    drawn, bags = indices[0].numel / count, (offsets[0].numel - 1) / count
    pooled = signature.get_value(POOLING) != NO_POOLING
    held, placement = _find_weights(signature)
    size = sum(sizes) / len(sizes)
    lookup = TableLookup(
        rows=int(held / (size * count)) or max(round(drawn), 1),
        width=width / count,
        indices=drawn,
        bags=bags if pooled else drawn,
        weight_bytes=size * count / width,
        pattern=pattern,
        placement=placement,
        tables=count,
        index_bytes=indices[0].get_item_bytes(INDEX_BYTES),
    )
    output_bytes = OUTPUT_BYTES.get(signature.get_integer(OUTPUT), 2)
    columns = compute_fbgemm_lookup([lookup], output_bytes)
    if len(sizes) == 1:
        return columns
    least, most = (_scale_rows(columns, lookup, end / size, output_bytes) for end in (min(sizes), max(sizes)))
    low, high = float(columns.get("work_low") or 1.0), float(columns.get("work_high") or 1.0)
    return columns | {"work_low": min(low, least), "work_high": max(high, most)}


def _scale_rows(columns: Columns, lookup: TableLookup, factor: float, output_bytes: float) -> float:
    """Return the bytes moved with rows of another size, over those of ``columns``."""
    scaled = compute_fbgemm_lookup([replace(lookup, weight_bytes=lookup.weight_bytes * factor)], output_bytes)
    return sum_traffic(scaled) / sum_traffic(columns)


def _find_weights(signature: Signature) -> tuple[int, Placement]:
    """Return the bytes of all tables, and where they lie; 0 where the trace doesn't tell."""
    on_gpu, managed = (tensor.numel if (tensor := signature.get_tensor(i)) else 0 for i in (ON_GPU, MANAGED))
    return (managed, Placement.MANAGED) if managed > on_gpu else (on_gpu, Placement.DEVICE)


def _compute_row_bytes(index: int, width: float) -> float:
    return width * BITS_BY_ARGUMENT[index] / 8 + (SCALE_BYTES if index in INTEGER_ARGUMENTS else 0)


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

    A backward pass has what its look-up tells as its ``output``; ``item_bytes`` count where the signature has no type.
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
    """
    named = f"{LOOKUP_OP}|{BACKWARD_FUNCTION.pattern}"
    if not has_name(ops, named):
        return {}
    rows = ops.with_row_index("row").filter(pl.col("input_dims").is_not_null())
    found: dict[int, list[int]] = {}
    known: list[LookupCall] = []
    chosen = rows.filter(pl.col("name").str.contains(named)).sort("ts_ns")
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
