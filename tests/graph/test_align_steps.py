"""Steps of several ranks joined by their collectives, else by time, else by number; microseconds."""

from collections.abc import Sequence

import pytest

from tests.codes import list_codes
from tests.jobs import job
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

OTHER_HOST = 70_000
"""A clock that is many steps ahead."""


def record(first: int, elements: Sequence[int], *, start: float = 0, seq: int | None = None) -> TraceBuilder:
    """Record steps of 500, numbered from ``first``, each with a GEMM and an all-reduce of so many elements."""
    builder = TraceBuilder()
    for place, count in enumerate(elements):
        at = start + 500 * place
        builder.step(first + place, at, 490).kernel("gemm", at + 20, 100, launch=at + 10)
        args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": count, "Group size": 2}
        if seq is not None:
            args |= {"Seq": seq + place, "Process Group Name": "0"}
        builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", at + 130, 200, launch=at + 30, **args)
    return builder


def list_steps(run: MeasuredRun) -> dict[int, list[int]]:
    """List each rank's steps of the kernel table."""
    return {rank: run.kernels.filter(rank=rank)["step"].unique().sort().to_list() for rank in (0, 1)}


def list_step_codes(run: MeasuredRun) -> list[str]:
    return [code for code in list_codes(run.provenance.job_warnings) if code.startswith("steps-")]


@pytest.mark.parametrize("number", [6, 106])
@pytest.mark.parametrize("start", [500, OTHER_HOST])
def test_numbers_of_collectives_join_steps_whatever_their_own_numbers_and_clocks(number: int, start: float) -> None:
    """Rank 1 begins a step later: its first all-reduce is rank 0's second."""
    run = prepare_run(job(record(5, [9, 9, 9], seq=40), record(number, [9, 9], start=start, seq=41)))
    assert list_steps(run) == {0: [5, 6, 7], 1: [6, 7]}
    assert list_step_codes(run) == ([] if number == 6 else ["steps-renumbered"])


@pytest.mark.parametrize("start", [0, OTHER_HOST])
def test_unlike_collectives_join_steps_that_have_the_same(start: float) -> None:
    """Equal numbers and even equal times mean nothing if the collectives differ in size."""
    run = prepare_run(job(record(5, [10, 20, 30]), record(5, [20, 30, 40], start=start)))
    assert list_steps(run) == {0: [5, 6, 7], 1: [6, 7, 8]}
    assert list_step_codes(run) == ["steps-renumbered"]


def test_a_first_step_that_was_recorded_in_part_does_not_hinder() -> None:
    run = prepare_run(job(record(5, [7, 20, 30, 40]), record(105, [10, 20, 30, 40], start=OTHER_HOST)))
    assert list_steps(run) == {0: [5, 6, 7, 8], 1: [5, 6, 7, 8]}


def test_steps_that_are_alike_are_joined_by_time() -> None:
    run = prepare_run(job(record(5, [9, 9, 9]), record(105, [9, 9, 9], start=510)))
    assert list_steps(run) == {0: [5, 6, 7], 1: [6, 7, 8]}
    assert list_step_codes(run) == ["steps-joined-by-time"]


@pytest.mark.parametrize(("number", "steps"), [(6, [6, 7, 8]), (105, [5, 6, 7])])
def test_where_clocks_differ_too_numbers_are_all_there_is_and_that_is_said(number: int, steps: list[int]) -> None:
    run = prepare_run(job(record(5, [9, 9, 9]), record(number, [9, 9, 9], start=OTHER_HOST)))
    assert list_steps(run) == {0: [5, 6, 7], 1: steps}
    assert list_step_codes(run) == ["steps-joined-by-number"]


def test_one_step_needs_no_clock() -> None:
    run = prepare_run(job(record(5, [9]), record(6, [9], start=OTHER_HOST)))
    assert list_steps(run) == {0: [5], 1: [5]}
