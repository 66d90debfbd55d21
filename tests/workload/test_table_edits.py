"""Other embedding tables in a trace's ops, worked out by hand."""

import json
from typing import Any

import polars as pl
import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.table_edits import TableEdit, edit_table_ops

# 64 sums of 10 rows each, of a table of 1,000 rows, 16 wide.
BAG = ("aten::_embedding_bag", [[1000, 16], [640], [64], [], [], [], [], [], []], [*[""] * 7, "False", "-1"])
DENSE = (
    "aten::_embedding_bag_dense_backward",
    [[64, 16], [640], [640], [64], [], [], [], [], [], []],
    [*[""] * 5, "1000", "False", "0", "", "-1"],
)
CAPTURED = (
    "aten::_embedding_bag_backward",
    [[64, 16], [640], [64], [640], [64], [0], [], [], [], [], [], []],
    [*[""] * 6, "1000", "False", "0", "False", "", "-1"],
)
# FBGEMM: 3 tables of 5,000 rows, 16 wide, 64 samples; 3,840 indices.
LOOKUP = (
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
    [[0], [240_000], [0], [0], [3], [3], [4], [], [], [4], [], [3840], [193], [], [], [], [0], [], [], [], [15_000]],
    [*[""] * 7, "48", *[""] * 13],
)
EXACT = (
    "fbgemm::split_embedding_backward_codegen_sgd_unweighted_exact_cuda",
    [[64, 48], [240_000], [0], [0], [3], [3], [4], [], [4], [], [3840], [193]],
    [*[""] * 7, "16", "", "14", "", ""],
)
PERMUTE = ("fbgemm::permute_2D_sparse_data", [[3], [3, 64], [3840], [3840], []], [""] * 5)
FILL = ("aten::fill_", [[1000, 16], []], ["", "0"])


def edit(*ops: tuple[str, list[Any], list[str]], rows: int, width: int = 16, pooling: float | None = None) -> Any:
    """Edit the ops of a trace; return the edited ops, and each one's inputs."""
    builder = TraceBuilder()
    for number, (name, dims, concrete) in enumerate(ops):
        types = ["float" if shape else "Scalar" for shape in dims]
        builder.op(name, 20.0 * number, 10, dims=dims, types=types, concrete=concrete)
    edited = edit_table_ops(builder.kernel("k", 900, 5, launch=2).load().rank().ops, TableEdit(rows, width, pooling))
    return edited, [json.loads(dims) for dims in edited.ops["input_dims"]]


def test_pytorchs_table_gets_rows_wherever_it_is() -> None:
    edited, (bag, fill) = edit(BAG, FILL, rows=4000)
    assert bag == [[4000, 16], [640], [64], [], [], [], [], [], []]
    assert fill == [[4000, 16], []]
    assert (edited.widths, edited.old_rows) == ((16,), {1000})


def test_pooling_changes_the_indices() -> None:
    edited, (bag, dense, captured) = edit(BAG, DENSE, CAPTURED, rows=4000, pooling=2.5)
    assert bag[1] == [160]
    assert dense[:4] == [[64, 16], [160], [160], [64]]
    assert captured[:5] == [[64, 16], [160], [64], [160], [64]]
    values = [json.loads(concrete) for concrete in edited.ops["concrete_inputs"]]
    assert (values[1][5], values[2][6]) == ("4000", "4000")


def test_a_sparse_gradient_has_a_row_for_each_row_looked_up() -> None:
    copied = ("aten::index_select", [[64, 16], [], [640]], ["", "0", ""])
    added = ("aten::index_add_", [[1000, 16], [], [640], [640, 16], []], ["", "0", "", "", "-0.1"])
    other = ("aten::index_select", [[64, 8], [], [640]], ["", "0", ""])
    _, (_, *edited) = edit(BAG, copied, added, other, rows=4000, pooling=2)
    assert edited == [[[64, 16], [], [128]], [[4000, 16], [], [128], [128, 16], []], other[1]]


def test_the_last_offset_may_be_an_end() -> None:
    name, dims, concrete = BAG
    _, (bag,) = edit((name, dims, [*concrete[:7], "True", "-1"]), rows=1000, pooling=2)
    assert bag[1] == [2 * 63]


def test_fbgemms_tables_lie_in_one_tensor() -> None:
    edited, (lookup, exact, permute) = edit(LOOKUP, EXACT, PERMUTE, rows=20_000, pooling=5)
    assert (lookup[1], lookup[11], lookup[20]) == ([3 * 20_000 * 16], [3 * 64 * 5], [60_000])
    assert (exact[1], exact[10], exact[11]) == ([960_000], [960], [193])
    assert permute[2:4] == [[960], [960]]
    assert (edited.widths, edited.old_rows) == ((16,), frozenset())


def test_managed_weights_and_lists_of_tables_change_too() -> None:
    name, dims, concrete = EXACT
    managed = [dims[0], [0], [240_000], *dims[3:], [], [], []]
    lists = ["[5000, 5000, 5000]", "[16, 16, 16]", "[1280, 1280, 1280]"]
    edited, (_, exact) = edit(LOOKUP, (name, managed, [*concrete, *lists]), rows=100, pooling=5)
    assert exact[1:3] == [[0], [4800]]
    assert json.loads(edited.ops["concrete_inputs"][1])[-3:] == ["[100, 100, 100]", "[16, 16, 16]", "[320, 320, 320]"]


@pytest.mark.parametrize("op", [BAG, DENSE, LOOKUP, EXACT])
def test_tables_of_another_width_stay(op: tuple[str, list[Any], list[str]]) -> None:
    edited, (dims,) = edit(op, rows=7, width=32, pooling=3)
    assert dims == op[1]
    assert edited.widths in ((16,), ())


def test_without_look_ups_nothing_changes() -> None:
    edited, (fill, permute) = edit(FILL, PERMUTE, rows=7, pooling=3)
    assert (fill, permute, edited.widths) == (FILL[1], PERMUTE[1], ())


@pytest.mark.parametrize("dims", [[], [[]], [[1000], [640], [64]], [[0, 16], [0], [0]], [[[3]], [[4]], [[5]]]])
@pytest.mark.parametrize("op", [BAG[0], DENSE[0], LOOKUP[0], EXACT[0], PERMUTE[0]])
def test_odd_inputs_stay(op: str, dims: list[Any]) -> None:
    builder = TraceBuilder().op(op, 0, 10, dims=dims, types=["float"] * len(dims)).kernel("k", 20, 5, launch=2)
    ops = builder.load().rank().ops
    edited = edit_table_ops(ops, TableEdit(7, 32, 3))
    assert edited.ops.height == ops.height
    assert edited.ops.drop("input_dims").equals(ops.drop("input_dims"))


def test_ops_keep_their_order_and_columns() -> None:
    edited, _ = edit(FILL, BAG, FILL, LOOKUP, rows=9)
    assert edited.ops["name"].to_list() == [FILL[0], BAG[0], FILL[0], LOOKUP[0]]
    assert isinstance(edited.ops, pl.DataFrame)
