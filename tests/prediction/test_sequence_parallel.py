"""Sequence parallelism: tensor-parallel ranks split the tokens between their blocks, too."""

import numpy as np
import polars as pl
import pytest

from tests.codes import find_message, has_code
from tests.prediction.test_reductions import HIDDEN, MESSAGE, TOKENS, Model
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest, apply_request
from tracekit.parallelism.tensor_parallel import insert_sequence_exchanges, measure_gathered_bytes, split_layers


def insert(model: Model) -> tuple[pl.DataFrame, list[int], list[int]]:
    """Return the exchanges, the kernels that each starts behind, and the kernel that waits for each all-gather."""
    run = model.run
    own = run.kernels.height
    grown = insert_sequence_exchanges(run.program).program
    rows = grown.kernels[own:]
    line = grown.replay_timeline(np.append(run.kernels["dur_ns"] / 1e3, np.full(rows.height, 7.0)))
    ends, starts = line.activity_end_ns, line.activity_start_ns
    behind = [int(np.flatnonzero(ends[:own] <= one).max()) for one in starts[own:]]
    gathered = ends[own:][rows["collective"].to_numpy() == "all_gather"]
    waiting = [int(np.flatnonzero(starts[:own] >= one).min(initial=own)) for one in gathered]
    return rows, behind, waiting


def test_tokens_are_scattered_behind_a_block_and_gathered_before_the_next() -> None:
    # Kernels: query, attention, projection, norm, up, gelu, down; twice.
    rows, behind, waiting = insert(Model(2))
    assert rows["collective"].to_list() == ["reduce_scatter", "all_gather"] * 4
    assert rows["bytes"].to_list() == [MESSAGE] * 8
    assert behind == [2, 3, 6, 6, 9, 10, 13, 13]
    assert waiting == [4, 7, 11, 14]


def test_backward_the_gradients_of_a_blocks_input_are_scattered() -> None:
    rows, behind, _ = insert(Model(trains=True))
    assert behind[::2] == [2, 6, 9, 14]
    assert rows["phase"].to_list() == ["forward"] * 4 + ["backward"] * 4


def test_it_sends_as_many_bytes_as_the_all_reduces() -> None:
    """A ring's all-reduce is a reduce-scatter and an all-gather: 2 (n - 1) / n of the message over each link."""
    plain, split = (Model(2, trains=True).on(tp=4, sequence_parallel=on) for on in (False, True))
    whole = find_message(plain.notes, "tensor-parallel-inserted").values["message_bytes"]
    both = find_message(split.notes, "sequence-parallel-inserted").values["message_bytes"]
    assert whole * 2 == both
    assert 0.5 < split.inserted_us["collective"] / plain.inserted_us["collective"] < 2
    assert str(split.layout) == "4 ranks = dp 1 x tp 4 (sequence parallel)"


def test_norms_work_on_a_part_of_the_tokens() -> None:
    kernels, none = Model(trains=True).run.kernels, pl.DataFrame()
    plain, split = (split_layers(kernels, none, 1, 4, sequence_parallel=on) for on in (False, True))
    assert [table.row(3, named=True)["rows"] for table in (plain, split)] == [TOKENS, TOKENS // 4]
    others = pl.int_range(pl.len()) != 3
    assert split.filter(others).equals(plain.filter(others))


def test_what_blocks_gather_is_measured_of_the_forward_pass() -> None:
    assert measure_gathered_bytes(Model(3, trains=True).run.program) == 6 * TOKENS * HIDDEN * 2 == 6 * MESSAGE


def test_it_needs_tensor_parallel_ranks_of_its_own() -> None:
    with pytest.raises(LayoutError, check=has_code("sequence-parallel-of-one-rank")):
        apply_request(Layout(), LayoutRequest(sequence_parallel=True))
    with pytest.raises(LayoutError, check=has_code("recorded-tensor-parallel-fixed")):
        apply_request(Layout(tp=4), LayoutRequest(tp=8, sequence_parallel=True))
