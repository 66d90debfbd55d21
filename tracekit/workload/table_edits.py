"""Change the embedding tables that a trace's ops look rows up in: their rows, and how many of them a sample looks up.

Only the inputs of ops change; the kernel table of the edited ops then has other work:

    aten::_embedding_bag [[1000, 16], [640], [64]]    rows 4000, pooling 20    [[4000, 16], [1280], [64]]

Whatever else has a table's shape changes with it: its dense gradient, its optimizer. The width and the number of tables
must stay: what follows a look-up depends on them in ways that a trace doesn't tell.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracekit.workload.ops.embedding import BAG_OPS, INDICES, TABLE_ROWS_ARGUMENT
from tracekit.workload.ops.fbgemm import CALLS, EXACT_BACKWARD_OP, LookedUp, parse_backward, parse_lookup
from tracekit.workload.signature import Signature

BAG_GRADIENTS = tuple(op for op in TABLE_ROWS_ARGUMENT if "bag" in op)
INDEX_MOVERS = r"^f(?:bgemm|b)::(?:permute_(?:\dD_)?sparse|permute_sparse_features|bounds_check|(?:block_)?bucketize)"
"""Ops that move or check indices before a look-up; they are their longest one-dimensional inputs."""
SPARSE_GRADIENT_OPS = ("aten::index_select", "aten::index_add_", "aten::index_add")
"""Ops that copy a sum's gradient to each of its rows, and add them to the table."""
LISTS = 3
"""Last inputs of FBGEMM's captured calls: rows, widths and indices of each table."""
DEVICE_AND_MANAGED = 2
"""Inputs with weights, of which one holds them."""
COLUMNS = ("name", "input_dims", "input_types", "concrete_inputs")


@dataclass(frozen=True, slots=True)
class TableEdit:
    """What changes in the tables of one width.

    Attributes:
        rows: Rows of each.
        width: Their width, which stays; of several that are looked up together, the mean.
        pooling: Look-ups of a sample; None as in the trace.
    """

    rows: int
    width: int
    pooling: float | None = None

    def count_indices(self, indices: int, bags: int) -> int:
        """Return how many rows are looked up for so many sums, of which the trace looked up so many."""
        return indices if self.pooling is None else round(bags * self.pooling)

    def fits(self, width: float | None) -> bool:
        """Return whether tables of a width are meant."""
        return width is not None and round(width) == self.width


@dataclass(frozen=True, slots=True)
class EditedOps:
    """A rank's ops with other tables.

    Attributes:
        widths: Widths of all tables that they look up in, in the order of calls.
        old_rows: Rows of PyTorch's tables that got another number of them.
    """

    ops: pl.DataFrame
    widths: tuple[int, ...]
    old_rows: frozenset[int]


@dataclass
class _Call:
    """A distinct call, with inputs that can be changed."""

    signature: Signature
    dims: list[Any]
    concrete: list[str]

    def replace_shape(self, old: Sequence[int], new: Sequence[int]) -> None:
        """Replace a shape of inputs."""
        self.dims = [list(new) if dims == list(old) else dims for dims in self.dims]


def edit_table_ops(ops: pl.DataFrame, edit: TableEdit) -> EditedOps:
    """Edit a rank's ops."""
    named = "|".join([*map(re.escape, (*BAG_OPS, *BAG_GRADIENTS)), *(call.op.pattern for call in CALLS)])
    mine = pl.col("name").str.contains(f"{named}|{EXACT_BACKWARD_OP.pattern}|{INDEX_MOVERS}")
    mine |= pl.col("name").is_in(SPARSE_GRADIENT_OPS)
    distinct = ops.filter(mine & pl.col("input_dims").is_not_null()).select(COLUMNS).unique(maintain_order=True)
    calls = [_parse_call(row) for row in distinct.iter_rows(named=True)]
    looked_up = [found for call in calls for found in _edit_lookup(call, edit)]
    before, after = (sum(one[place] for one in looked_up) for place in (1, 2))
    for call in calls:
        _edit_gradient(call, edit)
        if before and re.search(INDEX_MOVERS, call.signature.op):
            _scale_indices(call, after / before)
        if call.signature.op in SPARSE_GRADIENT_OPS:
            _edit_sparse_gradient(call, edit, looked_up)
    bags = {call.signature.get_shape(0) for call in calls if call.signature.op in BAG_OPS}
    shapes = [shape for shape in bags if shape and len(shape) == 2 and edit.fits(shape[1])]
    return EditedOps(
        ops=_replace_table_shapes(_join_calls(ops, distinct, calls), shapes, edit),
        widths=tuple(dict.fromkeys(width for width, *_ in looked_up)),
        old_rows=frozenset(rows for rows, _ in shapes if rows != edit.rows),
    )


def _parse_call(row: dict[str, Any]) -> _Call:
    signature = Signature.parse(row["name"], row["input_dims"], row["input_types"], row["concrete_inputs"])
    return _Call(signature, list(signature.dims), list(signature.concrete_inputs))


def _join_calls(ops: pl.DataFrame, distinct: pl.DataFrame, calls: Sequence[_Call]) -> pl.DataFrame:
    dims = [json.dumps(call.dims, separators=(",", ":")) for call in calls]
    concrete = [json.dumps(call.concrete, separators=(",", ":")) for call in calls]
    told = distinct.with_columns(
        new_dims=pl.Series(dims, dtype=pl.String),
        new_concrete=pl.when(pl.col("concrete_inputs").is_not_null()).then(pl.Series(concrete, dtype=pl.String)),
    )
    joined = ops.join(told, on=COLUMNS, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(
        input_dims=pl.coalesce("new_dims", "input_dims"),
        concrete_inputs=pl.coalesce("new_concrete", "concrete_inputs"),
    ).select(ops.columns)


def _replace_table_shapes(ops: pl.DataFrame, shapes: Iterable[Sequence[int]], edit: TableEdit) -> pl.DataFrame:
    """Replace the shapes of PyTorch's tables wherever they are."""
    edited = pl.col("input_dims")
    for rows, width in shapes:
        edited = edited.str.replace_all(f"[{rows},{width}]", f"[{edit.rows},{width}]", literal=True)
    return ops.with_columns(input_dims=edited)


def _edit_lookup(call: _Call, edit: TableEdit) -> Iterator[tuple[int, int, int]]:
    """Edit a look-up; yield the width of its tables, and the rows looked up before and after."""
    if call.signature.op in BAG_OPS:
        yield from _edit_bag(call, edit)
    else:
        yield from _edit_fbgemm(call, edit)


def _edit_bag(call: _Call, edit: TableEdit) -> Iterator[tuple[int, int, int]]:
    """Edit PyTorch's look-up in one table."""
    weight, indices, offsets = (call.signature.get_shape(index) for index in range(3))
    if weight is None or len(weight) != 2 or not indices or not offsets:
        return
    wanted = indices[0]
    if edit.fits(weight[1]):
        wanted = edit.count_indices(indices[0], offsets[0] - bool(call.signature.get_value(7)))
        call.dims[INDICES] = [wanted]
    yield weight[1], indices[0], wanted


def _edit_gradient(call: _Call, edit: TableEdit) -> None:
    """Edit the gradient of a table, which has the number of its rows as a value."""
    argument = TABLE_ROWS_ARGUMENT.get(call.signature.op) if call.signature.op in BAG_GRADIENTS else None
    gradient, indices = call.signature.get_shape(0), call.signature.get_shape(INDICES)
    if argument is None or not gradient or not indices or not edit.fits(gradient[-1]):
        return
    call.replace_shape(indices, [edit.count_indices(indices[0], gradient[0])])
    if argument < len(call.concrete):
        call.concrete[argument] = str(edit.rows)


def _edit_fbgemm(call: _Call, edit: TableEdit) -> Iterator[tuple[int, int, int]]:
    """Edit FBGEMM's look-up in several tables, or its backward pass."""
    signature = call.signature
    lookup, gradient = parse_lookup(signature), signature.get_shape(0)
    if lookup is not None and lookup.width is not None:
        known, wanted = lookup.looked_up, lookup.looked_up.indices
        if edit.fits(lookup.width):
            inputs = next(one for one in CALLS if one.op.search(signature.op))
            wanted = _edit_tables(call, edit, known, (lookup.width, lookup.bags), inputs.weights)
            if inputs.rows is not None and signature.get_shape(inputs.rows):
                call.dims[inputs.rows] = [known.tables * edit.rows]
        yield round(lookup.width), known.indices, wanted
    looked_up = parse_backward(signature) if EXACT_BACKWARD_OP.search(signature.op) else None
    if looked_up is not None and gradient and len(gradient) == 2 and edit.fits(gradient[1] / looked_up.tables):
        _edit_tables(call, edit, looked_up, (gradient[1] / looked_up.tables, gradient[0] * looked_up.tables), 1)


def _edit_tables(
    call: _Call, edit: TableEdit, looked_up: LookedUp, width_and_bags: tuple[float, int], weights: int
) -> int:
    """Edit the inputs that FBGEMM's calls have in common; return the rows looked up."""
    width, bags = width_and_bags
    wanted = edit.count_indices(looked_up.indices, bags)
    call.replace_shape([looked_up.indices], [wanted])
    for index in range(weights, weights + DEVICE_AND_MANAGED):
        if call.dims[index] == [looked_up.weights] and looked_up.weights:
            call.dims[index] = [round(looked_up.tables * edit.rows * width)]
    lists = [call.signature.get_integers(len(call.dims) - LISTS + place) for place in range(LISTS)]
    if all(one is not None and len(one) == looked_up.tables for one in lists):
        each = edit.rows, edit.width, wanted // looked_up.tables
        call.concrete[-LISTS:] = [json.dumps([size] * looked_up.tables) for size in each]
    return wanted


def _edit_sparse_gradient(call: _Call, edit: TableEdit, looked_up: Iterable[tuple[int, int, int]]) -> None:
    """Edit a sparse gradient, which has a row for each row looked up; other ops have tensors of other sizes."""
    counts = {old: new for width, old, new in looked_up if edit.fits(width)}
    table, indices = call.signature.get_shape(0), call.signature.get_shape(2)
    if not table or len(table) != 2 or not edit.fits(table[1]) or not indices or indices[0] not in counts:
        return
    call.replace_shape(indices, [counts[indices[0]]])
    call.replace_shape([indices[0], table[1]], [counts[indices[0]], table[1]])


def _scale_indices(call: _Call, ratio: float) -> None:
    longest = max((dims for dims in call.dims if len(dims) == 1 and isinstance(dims[0], int)), default=None)
    if longest:
        call.replace_shape(longest, [round(longest[0] * ratio)])
