"""Read the inputs of FBGEMM's look-ups and backward passes: which tables, how many indices, where the weights lie.

A look-up goes over several tables at once; their single sizes aren't recorded, so they count as equal.
"""

import re
from dataclasses import astuple, dataclass

from tracekit.models.lookups import IndexPattern
from tracekit.workload.ops.table_lookups import FP32_BYTES, Placement, TableLookup
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
        tables: Tables.
        weight_bytes: Bytes of a weight.
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

        Args:
            width: Elements of a row.
            bags: Sums over all tables.
            pattern: How the indices are distributed; None if nobody knows.
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
        looked_up: Its tables and indices.
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
