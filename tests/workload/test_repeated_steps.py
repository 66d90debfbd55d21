"""Steps whose recorded numbers repeat, or that don't follow each other; microseconds."""

import polars as pl
import pytest

import tracekit as tk
from tests.codes import find_message, has_code, list_codes
from tests.jobs import job, recorded
from tracekit.errors import StepError
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.workload import steps
from tracekit.workload.step_kinds import number_kinds

REPEATED, OTHER_WORK = "step-numbers-repeated", "steps-of-other-work"


def work(builder: TraceBuilder, number: int, at: float, *, kernels: int = 4, each: float = 20) -> float:
    """Add a marked step of some products of 20, each with a pause of 1, and a wait; return when it ends."""
    for place in range(kernels):
        builder.kernel("gemm_kernel", at + 10 + place * (each + 1), each, launch=at + 2 * place, launch_dur=1)
    end = at + 10 + kernels * (each + 1)
    builder.call("cudaDeviceSynchronize", at + 2 * kernels, end - at - 2 * kernels)
    builder.step(number, at, end - at)
    return end


def marked(*stages: tuple[int, int, int], pause: float = 0) -> TraceBuilder:
    """Stages of first number, last number and kernels of a step, one after the other with a pause."""
    builder, at = TraceBuilder(), 0.0
    for first, last, kernels in stages:
        for number in range(first, last + 1):
            at = work(builder, number, at, kernels=kernels)
        at += pause
    return builder


def said(run: MeasuredRun) -> list[str]:
    return list_codes(run.provenance.job_warnings)


LIGHTNING = marked((0, 2, 4), (0, 2, 1), (3, 4, 4))


def test_a_schedule_that_starts_again_makes_steps_of_their_own():
    """Pauses of 30 ms lie between, in which nothing was recorded: 94 a step, also behind one."""
    run = prepare_run(marked(*[(1, 2, 4)] * 4, pause=30_000).load())
    assert run.steps.select("step", "label").rows() == list(enumerate([1, 2] * 4))
    assert (run.measured_step.steps, run.measured_step.step_time_us) == (7, 94)
    assert run.measured_step.mean_us == 94
    assert run.measured_step.kernel_time_us == 80
    assert said(run) == [REPEATED]


def test_a_schedule_of_one_step_starts_again():
    run = prepare_run(marked(*[(5, 5, 4)] * 5, pause=30_000).load())
    assert (run.measured_step.steps, run.measured_step.step_time_us, run.measured_step.mean_us) == (4, 94, 94)


def test_steps_after_unrecorded_ones_begin_at_their_mark():
    """Numbers go on over what the schedule leaves out: 94 a step, not 30,094."""
    run = prepare_run(marked((5, 6, 4), (20, 21, 4), (35, 36, 4), pause=30_000).load())
    assert run.steps["step"].to_list() == [5, 6, 20, 21, 35, 36]
    assert (run.measured_step.steps, run.measured_step.mean_us, run.measured_step.span_us) == (5, 94, 5 * 94)
    assert said(run) == []


def test_stages_that_share_numbers_are_told_apart():
    """Training takes 4 kernels, validation one; it goes on with number 3, which is next after validation's 2, too."""
    run = prepare_run(LIGHTNING.load())
    assert run.steps["label"].to_list() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert run.steps["work"].to_list() == [0, 0, 0, 1, 1, 1, 0, 0]
    assert (run.measured_step.steps, run.measured_step.step_time_us) == (4, 94)
    assert said(run) == [REPEATED, OTHER_WORK]
    told = find_message(run.provenance.job_warnings, OTHER_WORK).values
    assert (told["usual"], told["others"], told["steps"]) == ("0-2, 6-7", "3-5", "3:5")


@pytest.mark.parametrize(
    ("asked", "chosen", "step_us"),
    [("3:5", [3, 4, 5], 31), ("4", [4], 31), ("1:5", [1, 2], 94), ("6", [6], 94)],
)
def test_steps_are_asked_for_in_order_of_time(asked: str, chosen: list[int], step_us: float):
    """Of a range over stages the more usual kind is measured, never both."""
    run = prepare_run(LIGHTNING.load(), steps=asked)
    assert run.chosen_steps["step"].to_list() == chosen
    assert run.measured_step.step_time_us == step_us


def test_a_refusal_names_what_there_is():
    with pytest.raises(StepError, check=has_code("step-not-found")) as refused:
        prepare_run(LIGHTNING.load(), steps="8")
    assert refused.value.catalogue_message.values["known"] == "steps 0-7 in order of time, marked 0-2, 0-4"
    with pytest.raises(StepError) as of_unique:
        prepare_run(marked((5, 6, 4), (20, 21, 4)).load(), steps="7")
    assert of_unique.value.catalogue_message.values["known"] == "steps 5-6, 20-21"


def test_info_lists_the_numbers():
    assert tk.report(LIGHTNING.load()).source.step_numbers == "steps 0-7 in order of time, marked 0-2, 0-4"
    assert tk.report(marked((5, 7, 4)).load()).source.step_numbers == "steps 5-7"
    assert tk.report(TraceBuilder().kernel("k", 20, 10, launch=10).load()).source.step_numbers is None


def test_what_trains_is_usual_even_if_it_takes_less_time():
    builder, at = TraceBuilder(), 0.0
    for first, last, kernels in ((0, 2, 4), (0, 40, 1)):
        for number in range(first, last + 1):
            if kernels == 4:
                builder.op("autograd::engine::evaluate_function: MmBackward0", at + 1, 6)
            at = work(builder, number, at, kernels=kernels)
    assert prepare_run(builder.load()).measured_step.step_time_us == 94
    assert prepare_run(marked((0, 2, 4), (0, 40, 1)).load()).measured_step.step_time_us == 31


def test_an_update_of_parameters_makes_no_kind_of_its_own():
    """Gradients are accumulated over two steps; the profiler starts again after each four."""
    builder, at = TraceBuilder(), 0.0
    for number in [0, 1, 2, 3] * 2:
        start = at
        at = work(builder, number, at)
        if number % 2:
            builder.annotation("Optimizer.step#AdamW.step", start + 8.2, 1.6)
            builder.kernel("multi_tensor_apply_kernel", at - 10, 9, launch=start + 8.5, launch_dur=1)
    run = prepare_run(builder.load())
    assert run.steps["work"].to_list() == [0] * 8
    assert said(run) == [REPEATED]


def test_the_rule_can_be_left_out():
    run = prepare_run(LIGHTNING.load(), without_rules=["step-kinds"])
    assert (run.measured_step.steps, said(run)[0]) == (7, REPEATED)
    assert OTHER_WORK not in said(run)


def test_a_step_of_several_threads_is_one():
    """Another thread marks the same steps a bit later; a third one, inner steps of its own that count nothing."""
    builder = marked((0, 2, 4))
    for number in range(3):
        builder.annotation(f"ProfilerStep#{number}", 94 * number + 3, 85, thread=7)
    for number in range(2):
        builder.annotation(f"ProfilerStep#{number}", 100 + 20 * number, 10, thread=8)
    run = prepare_run(builder.load())
    assert run.steps.select("step", "label", "tid").rows() == [(0, 0, 100), (1, 1, 100), (2, 2, 100)]
    assert said(run) == []


def test_the_gpus_copy_of_a_mark_counts_nothing():
    builder = marked((0, 2, 4))
    for number in range(3):
        builder.event("gpu_user_annotation", f"ProfilerStep#{number}", 94 * number + 10, 90, 7, {}, pid=0)
    run = prepare_run(builder.load())
    assert (run.steps["step"].to_list(), run.measured_step.step_time_us) == ([0, 1, 2], 94)


def test_edges_rounded_into_each_other_are_two_steps():
    builder = TraceBuilder().step(5, 0, 101).step(5, 100, 101).kernel("k", 20, 10, launch=10)
    found = steps.find_steps(builder.kernel("k", 120, 10, launch=110).load().rank())
    assert found["label"].to_list() == [5, 5]


def test_ranks_whose_numbers_repeat_are_measured_together():
    group = recorded()
    builders = []
    for delay in (0.0, 3.0):
        builder = TraceBuilder()
        for place, number in enumerate([1, 2, 1, 2, 1, 2]):
            at = 30_000.0 * (place // 2) + 100 * (place % 2) + delay
            builder.step(number, at, 95).kernel("gemm", at + 10, 30, launch=at + 2)
            builder.kernel("ncclDevKernel_AllReduce", at + 42, 40 - delay, launch=at + 8, stream=9, **group)
            builder.call("cudaDeviceSynchronize", at + 14, 72 - delay)
        builders.append(builder)
    run = prepare_run(job(*builders))
    assert run.measured_step.steps == 5
    assert run.measured_step.mean_us < 110
    assert said(run).count(REPEATED) == 1


def test_work_of_no_step_has_no_kind():
    trace = TraceBuilder().kernel("k", 120, 10, launch=110).load()
    found = pl.DataFrame({"step": [0, 1], "label": [1, 1]})
    assert number_kinds(found, pl.Series([None], dtype=pl.Int64), trace.rank()).to_list() == [0, 0]
