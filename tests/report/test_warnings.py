"""What a reader has to know first."""

import pytest

from tracekit.replay.run import prepare
from tracekit.reporting.sections import warnings
from tracekit.testing import TraceBuilder


def said(unprofiled_step_us: object) -> str:
    """The warnings of a step of 100 us."""
    builder = TraceBuilder().step(1, 0, 100).kernel("k", 20, 60, launch=10)
    builder.metadata["tracekit"] = {"unprofiled_step_us": unprofiled_step_us}
    return "\n".join(warnings.build(prepare(builder.load())))


def test_what_the_profiler_cost_is_said_with_the_option_that_takes_it_out():
    assert "a step took 0.08 ms without the profiler and 0.1 ms with it: --unprofiled-step 0.08ms" in said([70, 80, 90])


@pytest.mark.parametrize("noted", [[99.0], [], [0], ["soon"], "soon", None])
def test_a_profiler_that_cost_nothing_and_notes_that_make_no_sense_are_not_mentioned(noted):
    assert "without the profiler" not in said(noted)
