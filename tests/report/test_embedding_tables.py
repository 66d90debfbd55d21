"""Embedding tables that a report finds by the look-ups of a step."""

import pytest

import tracekit as tk
from tracekit.analysis.embedding_tables import EmbeddingTables
from tracekit.testing import A100, TraceBuilder

# 1792 indices into 3 tables, 40,000 rows of 16 halves in all, summed for 128 samples.
INDICES, TABLES, SAMPLES, WIDTH, WEIGHTS = 1792, 3, 128, 16, 640_000
TYPES = ["float", "c10::Half", *["float"] * 2, "int", "long int", "int", "", "", "long int", "", "long int", "long int"]
BAG_TYPES = ["float", "long int", "long int"]


def find_tables(builder: TraceBuilder) -> EmbeddingTables | None:
    return tk.report(builder.load()).source.tables


def add_fbgemm(builder: TraceBuilder, start: float, weights: int = WEIGHTS, indices: int = INDICES) -> TraceBuilder:
    dims = [[0], [weights], [0], [0, 0], [TABLES], [TABLES], [TABLES + 1], [], [], [TABLES + 1], [], [indices],
            [TABLES * SAMPLES + 1]]  # fmt: skip
    concrete = ["", "", "", "", "", "", "", str(TABLES * WIDTH), str(WIDTH), "", "31", "", ""]
    name = "fbgemm::split_embedding_codegen_lookup_adagrad_function"
    builder.op(name, start, 40, dims=dims, types=TYPES, concrete=concrete)
    return builder.kernel("split_embedding_codegen_forward_unweighted_kernel", start + 50, 30, launch=start + 5)


def add_bag(builder: TraceBuilder, start: float, rows: int = 1000) -> TraceBuilder:
    dims, concrete = [[rows, WIDTH], [512], [64]], ["", "", ""]
    builder.op("aten::_embedding_bag", start, 40, dims=dims, types=BAG_TYPES, concrete=concrete)
    return builder.kernel("EmbeddingBag_updateOutputKernel_sum_mean", start + 50, 30, launch=start + 5)


def test_tables_of_one_look_up_by_hand() -> None:
    assert find_tables(add_fbgemm(TraceBuilder(A100), 0)) == EmbeddingTables(
        tables=3,
        weights=640_000,
        weight_bytes=1_280_000,
        least_width=16,
        most_width=16,
        indices=1792,
        optimizers=("adagrad",),
    )


def test_tables_without_weights_lie_elsewhere() -> None:
    found = find_tables(add_fbgemm(TraceBuilder(A100), 0, weights=0))
    assert found is not None
    assert (found.tables, found.on_host, found.weights) == (3, 3, 0)


def test_equal_bags_of_a_step_are_tables_each() -> None:
    found = find_tables(add_bag(add_bag(add_bag(TraceBuilder(A100), 0), 100, rows=50), 200))
    assert found is not None
    assert (found.tables, found.weights, found.indices) == (3, 2050 * WIDTH, 3 * 512)


@pytest.mark.parametrize("steps", [1, 4])
def test_steps_look_up_in_the_same_tables(steps: int) -> None:
    builder = TraceBuilder(A100)
    for step in range(steps):
        builder.step(step, 1000 * step, 900)
        # Each step draws another number of rows.
        add_fbgemm(builder, 1000 * step + 10, indices=100 + 10 * step)
    found = find_tables(builder)
    assert found is not None
    assert found.tables == 3
    assert 100 <= found.indices <= 130


def test_a_table_of_tokens_is_no_recommenders() -> None:
    builder = TraceBuilder(A100).op(
        "aten::embedding", 0, 40, dims=[[50_000, 64], [8, 128]], types=["float", "long int"]
    )
    assert find_tables(builder.kernel("indexSelectLargeIndex", 50, 30, launch=5)) is None


def test_look_ups_without_shapes_tell_no_tables() -> None:
    builder = TraceBuilder(A100).op("aten::_embedding_bag", 0, 40)
    assert find_tables(builder.kernel("EmbeddingBag_updateOutputKernel_sum_mean", 50, 30, launch=5)) is None


def test_tables_and_their_states_have_to_fit() -> None:
    """640 million halves, and Adagrad's state in fp32 for each."""
    builder = add_fbgemm(TraceBuilder(A100), 0, weights=1000 * WEIGHTS)
    target = tk.predict(builder.load(), gpu="h100-sxm")["h100-sxm"]
    assert target.memory.min_bytes == 1000 * WEIGHTS * (2 + 4)
