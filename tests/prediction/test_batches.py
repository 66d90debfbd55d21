"""Batches of a serving engine as steps: what they get done, on other GPUs too."""

from functools import partial

import pytest

import tracekit as tk
from tests.jobs import job, served
from tracekit.prediction.batch import infer_rank_batch
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

PREFILL, DECODE = "step[EXTEND bs=2 toks=4096]", "step[DECODE bs=16]"


def queued(behind: float = 0) -> Trace:
    """Two batches of prompts and four of decoding, of which each keeps the GPU for 80 of 100 us.

    Args:
        behind: How much longer those of prompts do, which nothing waits for.
    """
    builder, free = TraceBuilder(), 0.0
    for number, name in enumerate([PREFILL] * 2 + [DECODE] * 4):
        dur = 80 + behind * (name == PREFILL)
        start = max(100.0 * number + 20, free + 2)
        builder.annotation(name, 100 * number, 60).kernel("k", start, dur, launch=100 * number + 10)
        free = start + dur
    return builder.load()


def test_ranks_whose_engines_ran_other_batches_have_no_steps_in_common():
    rank = partial(served, kernel=80)
    alike = prepare_run(job(rank(DECODE, DECODE, DECODE), rank(DECODE, DECODE, DECODE)))
    assert (alike.measured_step.steps, alike.measured_step.step_time_us) == (2, 100)
    unlike = prepare_run(job(rank(DECODE, DECODE, DECODE), rank(DECODE, "step[IDLE bs=0]", DECODE)))
    assert unlike.steps["step"].to_list() == [0, 0]
    assert (unlike.measured_step.steps, unlike.measured_step.step_time_us) == (1, 290)
    assert unlike.kernels["step"].unique().to_list() == [0]


def test_the_engine_says_how_many_tokens_a_step_has():
    run = prepare_run(queued())
    assert (run.measured_step.steps, run.measured_step.step_time_us) == (4, 100)
    batch = infer_rank_batch(run.program)
    assert batch is not None
    assert (batch.size, batch.unit, batch.marked) == (16, "tokens", True)
    source = tk.report(queued()).source
    assert source.batches == "decode"
    assert source.per_second == pytest.approx(16 / 100e-6)


def test_a_step_lies_in_its_interval_though_what_ran_before_it_makes_it_shorter():
    """The kernel before ends within a step that the CPU paces."""
    builder = TraceBuilder()
    for start, dur in ((0, 50), (100, 95), (200, 20), (300, 20)):
        builder.step(start // 100, start, 100).op("aten::mm", start, 15, dims=[[512, 512]] * 2, types=["float"] * 2)
        builder.kernel("sgemm", start + 20, dur, launch=start + 10)
    (found,) = tk.predict(builder.load(), gpu="a100-pcie-40gb", steps=2, host_speed=1.01).targets
    assert found.low_us < found.step.step_time_us < found.high_us


def test_what_an_earlier_batch_left_in_the_queue_counts_to_no_later_one():
    """The GPU is 82 us behind when decoding begins; a batch of that takes it 82 all the same, with the gap."""
    for steps, count in ((None, 4), ("2", 1)):
        measured = prepare_run(queued(behind=50), steps=steps).measured_step
        assert (measured.step_time_us, measured.span_us) == pytest.approx((82, count * 82))
