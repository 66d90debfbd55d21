"""Pipeline schedules against their closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.parallelism.pipeline_schedules import compute_stage_ends, order_1f1b, order_zero_bubble


def step(stages: int, chunks: int, micro_batches: int, send: float = 0.0) -> float:
    """Of equal stages that take 1 forward and 2 backward for a micro-batch."""
    pieces = stages * chunks
    forward, backward = np.full(pieces, 1 / chunks), np.full(pieces, 2 / chunks)
    return compute_stage_ends(forward, backward, np.full(pieces - 1, send), stages, micro_batches).max()


@settings(max_examples=40, deadline=None)
@given(stages=st.integers(1, 8), micro_batches=st.integers(1, 20))
def test_1f1b_waits_for_a_pass_of_each_other_stage(stages, micro_batches):
    assert step(stages, 1, micro_batches) == pytest.approx(3 * (micro_batches + stages - 1))


@settings(max_examples=40, deadline=None)
@given(stages=st.integers(1, 8), chunks=st.integers(2, 4), rounds=st.integers(1, 4))
def test_interleaving_divides_the_bubble_by_the_chunks(stages, chunks, rounds):
    """(P - 1) / (M V) of the work (Narayanan et al., 2021, section 2.2.2)."""
    micro_batches = stages * rounds
    bubble = step(stages, chunks, micro_batches) / (3 * micro_batches) - 1
    assert bubble == pytest.approx((stages - 1) / (micro_batches * chunks))


@settings(max_examples=40, deadline=None)
@given(stages=st.integers(1, 8), more=st.integers(0, 12), weights=st.floats(0, 1))
def test_weights_put_off_fill_the_bubble(stages, more, weights):
    """(P - 1) (F + B - W), and each stage as many micro-batches as 1F1B's first (Qi et al., 2023, table 2)."""
    one, late, micro_batches = np.ones(stages), np.full(stages, weights), stages + more
    done = compute_stage_ends(one, 2 * one, np.zeros(stages - 1), stages, micro_batches, late).max()
    assert done == pytest.approx(3 * micro_batches + (stages - 1) * (1 + (2 - weights) - weights))
    for mine in order_zero_bubble(stages, micro_batches):
        held = np.cumsum((mine[:, 0] == 0).astype(int) - (mine[:, 0] == 2))
        assert held.max() == stages


def test_sends_of_a_lone_micro_batch_lie_in_the_open():
    assert step(4, 1, 1, send=0.5) == pytest.approx(4 * 3 + 6 * 0.5)


def test_interleaved_stages_begin_with_passes_of_two_chunks():
    """2 stages of 2 chunks: the first runs 2 + 2 forward passes ahead, the last 2; then one and one in turn."""
    first, last = ("".join("FB"[kind] for kind in stage[:, 0]) for stage in order_1f1b(2, 2, 4))
    assert first == "FFFF" + "FB" * 4 + "BBBB"
    assert last == "FF" + "FB" * 6 + "BB"


def test_two_stages_of_two_micro_batches_by_hand():
    """F 1, B 2. Stage 1: F0 1-2, B0 2-4, F1 4-5, B1 5-7; stage 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9."""
    assert compute_stage_ends(np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.zeros(1), 2, 2).tolist() == [9, 7]


def test_a_send_holds_up_both_ends():
    """As above with sends of 0.5. Stage 1: F0 1.5-2.5, B0 2.5-5, F1 5-6, B1 6-8.5; stage 0: B0 5-7, B1 8.5-10.5."""
    assert compute_stage_ends(np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([0.5]), 2, 2).tolist() == [10.5, 8.5]


def test_chunks_send_more_often():
    """Each of 2 x 3 passes but the first chunk's backward and the last one's forward is followed by a send."""
    assert step(1, 3, 1, send=0.5) == pytest.approx(3 + 4 * 0.5)


def test_a_slow_stage_sets_the_pace():
    """The last one works three times as long: the others' passes hide, but for filling and emptying."""
    done = compute_stage_ends(np.array([1.0, 3.0]), np.array([1.0, 3.0]), np.zeros(1), 2, 10)
    assert done.max() == 1 + 10 * 6 + 1


@settings(deadline=None)
@given(stages=st.integers(1, 6), chunks=st.integers(1, 3), rounds=st.integers(1, 3))
def test_every_stage_does_each_of_its_passes_once(stages, chunks, rounds):
    tasks = order_1f1b(stages, chunks, stages * rounds)
    for stage, mine in enumerate(tasks):
        assert len({tuple(task) for task in mine.tolist()}) == 2 * chunks * stages * rounds
        assert set(mine[:, 1].tolist()) == {stage + stages * chunk for chunk in range(chunks)}
