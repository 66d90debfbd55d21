"""Which marks are steps."""

import polars as pl
import pytest

from tests.jobs import served
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace
from tracekit.workload import steps


def marked(*, launches: dict[int, float], marks: tuple[tuple[int, float, float], ...]) -> Trace:
    """Steps by number, start and length, and a kernel launched at each of some times."""
    builder = TraceBuilder()
    for number, start, dur in marks:
        builder.step(number, start, dur)
    for launch, start in launches.items():
        builder.kernel("k", start, 10, launch=launch)
    return builder.load()


def numbers(trace: Trace) -> list[int]:
    return steps.find_steps(trace.ranks[0])["step"].to_list()


def test_a_mark_in_which_nothing_was_launched_is_no_step() -> None:
    trace = marked(launches={10: 20, 110: 120}, marks=((3, 0, 100), (4, 100, 100), (5, 200, 1)))
    assert numbers(trace) == [3, 4]


def test_marks_that_all_launch_are_all_steps() -> None:
    trace = marked(launches={10: 20, 110: 120, 201: 300}, marks=((3, 0, 100), (4, 100, 100), (5, 200, 100)))
    assert numbers(trace) == [3, 4, 5]


def test_marks_stay_where_no_launch_lies_in_any() -> None:
    trace = marked(launches={900: 920}, marks=((3, 0, 100), (4, 100, 100)))
    assert numbers(trace) == [3, 4]
    assert steps.find_steps(trace.ranks[0]).schema["start_ns"] == pl.Int64


def test_a_step_around_others_takes_nothing_from_them():
    builder = TraceBuilder().step(50, 0, 200).step(1, 0, 100).step(2, 100, 100)
    builder.kernel("gemm", 20, 10, launch=10).kernel("gemm", 120, 10, launch=110)
    found = [steps.find_steps(builder.load().rank())["step"].to_list() for _ in range(5)]
    assert found == [[1, 2]] * 5


def test_a_step_number_beyond_integers_is_no_step():
    trace = TraceBuilder().annotation("ProfilerStep#" + "9" * 20, 0, 100).kernel("gemm", 20, 10, launch=10).load()
    assert steps.find_steps(trace.rank())["step"].to_list() == [steps.WHOLE_TRACE_STEP]


PREFILL, DECODE = "execute_context_1(500_250000)_generation_0(0)", "execute_context_0(0)_generation_8(8)"


def test_batches_of_a_serving_engine_are_steps_up_to_the_next_one():
    found = steps.find_steps(served(PREFILL, DECODE, DECODE, "execute_context_2(64)_generation_8(8)").load().rank())
    assert found["kind"].to_list() == ["prefill", "decode", "decode", "mixed"]
    assert found["tokens"].to_list() == [500, 8, 8, 72]
    edges = found.select((pl.col("start_ns", "end_ns") - pl.col("start_ns").first()) // 1000)
    assert edges.rows() == [(0, 100), (100, 200), (200, 300), (300, 340)]
    assert steps.select_steps(found, None)["step"].to_list() == [1, 2]
    assert steps.select_steps(found, "0")["step"].to_list() == [0]


@pytest.mark.parametrize(
    ("name", "kind", "tokens"),
    [
        ("step[EXTEND bs=2 toks=4096]", "prefill", 4096),
        ("step[DECODE bs=16]", "decode", 16),
        ("step[TARGET_VERIFY bs=3]", "target_verify", 3),
        ("execute_8192_context_9(sq8155sk8430sqsq7sqsk7)_generation_37(sq37sk34489sqsq37sqsk34489)", "mixed", 8192),
    ],
)
def test_kinds_of_batches(name: str, kind: str, tokens: int):
    found = steps.find_steps(served(name, name).load().rank())
    assert found.select("kind", "tokens").rows() == [(kind, tokens)] * 2


def test_one_batch_and_an_empty_one_and_marks_within_it_are_one_step():
    builder = served(PREFILL, "execute_context_0(0)_generation_0(0)").annotation("step[EXTEND bs=1 toks=500]", 5, 30)
    found = steps.find_steps(builder.load().rank())
    assert found.select("kind", "tokens", "whole").rows() == [("prefill", 500, False)]
    assert numbers(builder.load()) == [0]


def trained(*, updates: tuple[str, ...]) -> TraceBuilder:
    """Iterations of 100 us, each with an update by some optimizers at its end."""
    builder = TraceBuilder()
    for start in (0, 100, 200):
        builder.op("aten::mm", start, 20).kernel("k", start + 20, 60, launch=start + 10)
        for place, name in enumerate(updates):
            builder.annotation(f"Optimizer.step#{name}.step", start + 70 + 10 * place, 10)
    return builder.kernel("evaluation", 330, 60, launch=310)


@pytest.mark.parametrize("updates", [("Adam",), ("Muon", "Adam"), ("Muon", "SGD", "Adam")])
def test_what_lies_between_updates_of_the_parameters_is_a_step(updates: tuple[str, ...]):
    ends = 70 + 10 * len(updates)
    found = steps.find_steps(trained(updates=updates).load().rank())
    edges = found.select((pl.col("start_ns", "end_ns") - pl.col("start_ns").first()) // 1000)
    assert edges.rows() == [(0, ends), (ends, 100 + ends), (100 + ends, 200 + ends)]
    run = prepare_run(trained(updates=updates).load())
    assert (run.measured_step.steps, run.measured_step.step_time_us) == (2, 100)
    assert run.kernels.filter(name="evaluation")["step"].to_list() == [None]


def test_an_optimizer_that_wraps_another_updates_once():
    builder = trained(updates=("Adam",))
    for start in (0, 100, 200):
        builder.annotation("Optimizer.step#Adam.step", start + 72, 5)
    assert numbers(builder.load()) == [0, 1, 2]


def test_an_optimizer_that_steps_within_the_backward_pass_tells_no_steps():
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("k", 20, 60, launch=10)
    for start in (100, 200, 300):
        builder.op("autograd::engine::evaluate_function: MmBackward0", start, 40)
        builder.kernel("k", start + 20, 60, launch=start + 10)
        builder.annotation("Optimizer.step#Adam.step", start + 50, 10)
    assert steps.is_whole_trace(steps.find_steps(builder.load().rank()))


def test_optimizers_that_take_turns_tell_no_steps():
    builder = trained(updates=("Critic",)).annotation("Optimizer.step#Actor.step", 285, 5)
    assert steps.is_whole_trace(steps.find_steps(builder.load().rank()))
    assert steps.count_optimizer_steps(builder.load().rank()) == 3


def test_profiler_steps_count_more_than_batches():
    assert numbers(served(DECODE, DECODE).step(7, 0, 100).step(8, 100, 100).load()) == [7, 8]


def test_a_batch_lasts_from_the_end_of_the_one_before_to_its_own():
    run = prepare_run(served(PREFILL, *[DECODE] * 4).load())
    assert (run.measured_step.steps, run.measured_step.step_time_us, run.measured_step.kernel_time_us) == (4, 100, 60)


def test_a_single_mark_of_number_0_is_a_mark():
    builder = TraceBuilder().kernel("before", 20, 10, launch=10).step(0, 100, 100).kernel("within", 120, 10, launch=110)
    kernels = prepare_run(builder.load()).kernels
    assert dict(kernels.select("name", "step").iter_rows()) == {"before": None, "within": 0}
    assert not steps.is_whole_trace(steps.find_steps(builder.load().rank()))


def busy_at_first(waits: float) -> TraceBuilder:
    """Two launches at 0 and 20; the first kernel starts so long after, the second follows it; each takes 1000."""
    builder = TraceBuilder().kernel("a", waits, 1000, launch=0).kernel("b", waits + 1001, 1000, launch=20)
    return builder.call("cudaDeviceSynchronize", 60, waits + 1950)


def test_a_step_begins_at_the_kernel_that_waited_for_work_from_before_the_trace() -> None:
    run = prepare_run(busy_at_first(5000).load())
    assert run.measured_step.step_time_us == 2001
    assert run.program.replay_step(run.program.kernel_us / 10).step_time_us == pytest.approx(201, abs=1)
    assert run.program.replay_step(run.program.kernel_us, 0.5).step_time_us == pytest.approx(2001, abs=1)
    assert any("work from before the recording" in str(warning) for warning in run.provenance.job_warnings)


def test_without_the_rule_or_a_long_wait_a_step_begins_with_the_trace() -> None:
    assert prepare_run(busy_at_first(5000).load(), without_rules=["busy-start"]).measured_step.step_time_us == 7010
    assert prepare_run(busy_at_first(90).load()).measured_step.step_time_us == pytest.approx(2100, abs=1)
