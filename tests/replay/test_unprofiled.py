"""The profiler's overhead taken out; times in microseconds."""

import pytest

from tests.codes import has_code
from tests.replay.test_whatif import launch_bound, run_of
from tracekit.analysis.profiler_overhead import remove_profiler_overhead
from tracekit.errors import TracekitError
from tracekit.whatif import apply_edits
from tracekit.whatif.registry import parse_edits


def test_the_hosts_work_is_cut_until_the_step_fits():
    """All work of the CPU by half: the last launch comes at 105 and its kernel ends at 123."""
    run = remove_profiler_overhead(run_of(launch_bound()), 123)
    assert run.measured_step.step_time_us == 123
    assert run.self_replay.span_us == pytest.approx(123, abs=0.01)
    assert run.provenance.assumptions[0].code == "profiler-overhead-removed"
    assert run.provenance.assumptions[0].values["host_pct"] == pytest.approx(50, abs=0.1)


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (231, "unprofiled-step-too-long"),
        (10, "unprofiled-step-too-short"),
        (float("nan"), "unprofiled-step-too-long"),
    ],
)
def test_steps_that_can_not_be(step, code):
    with pytest.raises(TracekitError, check=has_code(code)):
        remove_profiler_overhead(run_of(launch_bound()), step)


def test_edits_apply_to_the_run_without_the_profiler():
    run = remove_profiler_overhead(run_of(launch_bound()), 230)
    done = apply_edits(run.program, parse_edits(["compile(1)"], host_speed=2))
    assert [one.text for one in done.edits] == ["host-speed(2)", "compile(1)"]
    assert done.edits[0].saving_us == pytest.approx(230 - 123)
    assert done.program.edits == ("host-speed(2)", "compile(1)")
