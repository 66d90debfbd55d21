"""What the profiler itself cost the CPU; times in microseconds."""

import pytest

from tests.codes import find_message, has_code
from tests.jobs import job
from tracekit.analysis.profiler_overhead import find_profiler_stalls
from tracekit.errors import WhatIfError
from tracekit.messages.what_ifs import PROFILER_WORK_REMOVED
from tracekit.reporting.sections import idle, warnings
from tracekit.run import prepare_run
from tracekit.testing import MAIN_THREAD, TraceBuilder
from tracekit.whatif import apply_edits


def late_launch(dur: float = 400) -> TraceBuilder:
    """A launch at 0 and, 20 µs into an op that lasts until 600, another one at 500."""
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("gemm", 8, 10, launch=0)
    return builder.op("aten::copy_", 80, dur + 120).kernel("copy", dur + 108, 50, launch=dur + 100)


def test_what_held_the_thread_up_is_taken_out():
    run = prepare_run(late_launch().overhead("Activity Buffer Request", 90, 300).load())
    edited = apply_edits(run, ["no-profiler()"])
    assert edited.edits[0].touched == 1
    assert edited.saving_us == pytest.approx(300)
    assert edited.edits[0].description == PROFILER_WORK_REMOVED(removed_us=300.0)


def test_within_a_call_too():
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("gemm", 8, 10, launch=0)
    builder.call("cudaFree", 100, 300).overhead("Instrumentation", 120, 200)
    edited = apply_edits(prepare_run(builder.kernel("copy", 508, 50, launch=500).load()), ["no-profiler()"])
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
        line for line in warnings.build_warnings(run, idle.analyze_idle_time(run)) if line.code == "profiler-holds-cpu"
    ]
    with pytest.raises(WhatIfError, check=has_code("edit-refused")):
        apply_edits(run, ["no-profiler()"])


def test_of_several_threads_the_one_within_an_op():
    builder = late_launch().kernel("other", 60, 10, launch=50, thread=77).overhead("Resource", 90, 300)
    assert find_profiler_stalls(builder.load().rank())["tid"].to_list() == [MAIN_THREAD]


@pytest.mark.parametrize("ranks", [1, 3])
def test_it_is_said_with_its_amount(ranks):
    builders = [late_launch().overhead("Activity Buffer Request", 90, 300) for _ in range(ranks)]
    run = prepare_run(job(*builders))
    found = find_message(warnings.build_warnings(run, idle.analyze_idle_time(run)), "profiler-holds-cpu")
    assert found.values == {"held_us": 300, "kinds": ("Activity Buffer Request",)}
