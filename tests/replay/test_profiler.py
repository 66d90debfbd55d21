"""What the profiler itself cost the CPU; times in microseconds."""

import pytest

from tests.asking import predict
from tests.codes import find_message, has_code
from tests.jobs import job
from tracekit.analysis.profiler_overhead import find_profiler_stalls, remove_profiler_overhead
from tracekit.errors import WhatIfError
from tracekit.messages.what_ifs import PROFILER_WORK_REMOVED
from tracekit.reporting.sections import limits, warnings
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import MAIN_THREAD, TraceBuilder
from tracekit.whatif import apply_edits


def late_launch(dur: float = 400) -> TraceBuilder:
    """A launch at 0 and, 20 µs into an op that lasts until 600, another one at 500."""
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("gemm", 8, 10, launch=0)
    return builder.op("aten::copy_", 80, dur + 120).kernel("copy", dur + 108, 50, launch=dur + 100)


def test_what_held_the_thread_up_is_taken_out():
    run = prepare_run(late_launch().overhead("Activity Buffer Request", 90, 300).load())
    edited = apply_edits(run.program, ["no-profiler()"])
    assert edited.edits[0].touched == 1
    assert edited.saving_us == pytest.approx(300)
    assert edited.edits[0].description == PROFILER_WORK_REMOVED(removed_us=300.0)


def test_within_a_call_too():
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("gemm", 8, 10, launch=0)
    builder.call("cudaFree", 100, 300).overhead("Instrumentation", 120, 200)
    edited = apply_edits(prepare_run(builder.kernel("copy", 508, 50, launch=500).load()).program, ["no-profiler()"])
    assert edited.saving_us == pytest.approx(200, rel=0.1)


@pytest.mark.parametrize(
    "builder",
    [
        late_launch().overhead("Buffer Flush", 10, 300),  # an op ends and one begins meanwhile
        late_launch().overhead("Buffer Flush", 30, 20),  # between ops: no one knows
        late_launch().overhead("Lazy Function Loading", 90, 300),  # CUDA's, not the profiler's
        late_launch(),
    ],
)
def test_what_held_nothing_up_stays(builder):
    run = prepare_run(builder.load())
    assert find_profiler_stalls(run.trace).is_empty()
    assert not [
        line
        for line in warnings.build_warnings(run, limits.analyze_idle_time(run))
        if line.code == "profiler-holds-cpu"
    ]
    with pytest.raises(WhatIfError, check=has_code("edit-refused")):
        apply_edits(run.program, ["no-profiler()"])


def test_of_several_threads_the_one_within_an_op():
    builder = late_launch().kernel("other", 60, 10, launch=50, thread=77).overhead("Resource", 90, 300)
    assert find_profiler_stalls(builder.load().rank())["tid"].to_list() == [MAIN_THREAD]


def steps_held_up(*held: float) -> TraceBuilder:
    """Steps of 1000 with two launches 500 apart; the profiler works for ``held`` within an op of each."""
    builder = TraceBuilder()
    for number, dur in enumerate(held):
        at = 1000 * number
        builder.step(number, at, 1000).op("aten::mm", at + 1, 20).kernel("gemm", at + 10, 10, launch=at + 2)
        builder.op("aten::copy_", at + 80, 450).kernel("copy", at + 508, 50, launch=at + 500)
        if dur:
            builder.overhead("Buffer Flush", at + 90, dur)
    return builder


def test_what_held_up_a_step_that_is_not_measured_is_neither_said_nor_advised():
    run = prepare_run(steps_held_up(300, 0, 0).load())
    assert "profiler-holds-cpu" not in {
        line.code for line in warnings.build_warnings(run, limits.analyze_idle_time(run))
    }
    with pytest.raises(WhatIfError, check=has_code("edit-refused")):
        apply_edits(run.program, ["no-profiler()"])


def test_advice_is_what_the_edit_does():
    run = prepare_run(steps_held_up(300, 100, 100).load())
    found = find_message(warnings.build_warnings(run, limits.analyze_idle_time(run)), "profiler-holds-cpu")
    assert found.values["held_us"] == 200
    assert apply_edits(run.program, ["no-profiler()"]).edits[0].description == PROFILER_WORK_REMOVED(removed_us=200.0)


def note_of(run: MeasuredRun, gpu: str = "h100-sxm") -> dict[str, object] | None:
    """Values of the note on the profiler's cost on a GPU, with its code."""
    notes = predict(run, [gpu])[gpu].notes
    return next(({"code": one.code, **one.values} for one in notes if one.code.startswith("profiler-cost")), None)


def test_a_step_that_the_cpu_limits_states_the_profilers_part():
    """The GPU works for 60 of a step of 1000."""
    unknown, recorded = (note_of(prepare_run(steps_held_up(*held).load())) for held in ((0, 0, 0), (0, 100, 100)))
    assert unknown
    assert recorded
    assert unknown["code"] == "profiler-cost-unknown"
    assert unknown["host_pct"] == pytest.approx(95, abs=3)
    assert (recorded["code"], recorded["recorded_us"]) == ("profiler-cost-recorded", 100)


def test_a_step_timed_without_the_profiler_states_the_step_without_it():
    builder = steps_held_up(0, 0, 0)
    builder.metadata["tracekit"] = {"unprofiled_step_us": [600, 600]}
    run = prepare_run(builder.load())
    known = note_of(run)
    assert known
    assert known["code"] == "profiler-cost-known"
    assert known["step_us"] == pytest.approx(600, rel=0.05)
    assert note_of(remove_profiler_overhead(run, 600)) is None


def test_a_step_that_the_gpu_limits_or_of_the_traced_gpu_says_nothing():
    builder = TraceBuilder()
    for number in range(3):
        at = 1000 * number
        builder.step(number, at, 1000).kernel("k", at + 10, 975, launch=at + 2)
        builder.call("cudaDeviceSynchronize", at + 8, 987)
    assert note_of(prepare_run(builder.load())) is None
    assert note_of(prepare_run(steps_held_up(0, 0, 0).load()), "a100-sxm-80gb") is None


@pytest.mark.parametrize("ranks", [1, 3])
def test_it_is_said_with_its_amount(ranks):
    builders = [late_launch().overhead("Activity Buffer Request", 90, 300) for _ in range(ranks)]
    run = prepare_run(job(*builders))
    found = find_message(warnings.build_warnings(run, limits.analyze_idle_time(run)), "profiler-holds-cpu")
    assert found.values == {"held_us": 300, "kinds": ("Activity Buffer Request",)}
