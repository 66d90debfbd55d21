"""Concatenations whose parts weren't recorded."""

from typing import Any

import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)"
UNRECORDED: dict[str, Any] = {"dims": [[], []], "types": ["TensorList", "Scalar"]}


def forward(builder: TraceBuilder, start: float, sequence: int) -> TraceBuilder:
    """Add a concatenation with its kernel."""
    builder.op("aten::cat", start, 10, **UNRECORDED, **{"Sequence number": sequence})
    return builder.kernel(CAT, 500 + start, 10, launch=start + 2)


def gradient(builder: TraceBuilder, start: float, sequence: int, dims: list[Any]) -> TraceBuilder:
    """Add the backward pass of a concatenation."""
    return builder.op("CatBackward0", start, 10, dims=dims, types=["float"], **{"Sequence number": sequence})


def list_bytes(builder: TraceBuilder) -> list[int | None]:
    """List the bytes that each kernel moves."""
    return build_kernel_table(builder.load().rank())["bytes"].to_list()


def test_the_gradient_of_its_result_has_its_size() -> None:
    builder = forward(forward(TraceBuilder(), 0, 7), 20, 8)
    gradient(gradient(builder, 100, 8, [[64, 10]]), 120, 7, [[64, 48]])
    assert list_bytes(builder) == [2 * 4 * 64 * 48, 2 * 4 * 64 * 10]


def test_of_several_with_one_number_the_last_one_has_a_gradient() -> None:
    """The others, of indices, have none."""
    builder = forward(forward(TraceBuilder(), 0, 7), 20, 7)
    assert list_bytes(gradient(builder, 100, 7, [[64, 48]])) == [None, 2 * 4 * 64 * 48]


@pytest.mark.parametrize("name", ["SplitBackward0", "SplitWithSizesBackward0", "SplitBackward"])
@pytest.mark.parametrize("dims", [[[64, 8], [64, 8], [64, 4]], [[[64, 8], [64, 8]], [64, 4]]])
def test_a_split_joins_the_gradients_of_its_parts(name: str, dims: list[Any]) -> None:
    builder = TraceBuilder().op(name, 0, 30, dims=dims, types=["float"] * len(dims))
    assert list_bytes(forward(builder, 5, 3)) == [2 * 4 * 64 * 20]


@pytest.mark.parametrize(
    ("name", "sequence", "dims"),
    [("CatBackward0", 8, [[64, 48]]), ("MulBackward0", 7, [[64, 48]]), ("CatBackward0", 7, [[], []])],
)
def test_other_ops_do_not_tell(name: str, sequence: int, dims: list[Any]) -> None:
    builder = forward(TraceBuilder(), 0, 7)
    builder.op(name, 100, 10, dims=dims, types=["float"], **{"Sequence number": sequence})
    assert list_bytes(builder) == [None]


def test_two_gradients_with_one_number_contradict_each_other() -> None:
    builder = forward(TraceBuilder(), 0, 7)
    assert list_bytes(gradient(gradient(builder, 100, 7, [[64, 48]]), 120, 7, [[64, 10]])) == [None]


def test_recorded_parts_count() -> None:
    builder = TraceBuilder().op(
        "aten::cat", 0, 10, dims=[[[2, 3], [2, 5]], []], types=["TensorList", "Scalar"], **{"Sequence number": 7}
    )
    builder.kernel(CAT, 500, 10, launch=2)
    assert list_bytes(gradient(builder, 100, 7, [[64, 48]])) == [2 * 4 * 16]
