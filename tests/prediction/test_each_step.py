"""Steps are predicted one by one, and the answer is their median; times in microseconds."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest

import tracekit as tk
from tracekit.analysis.contention import ContentionModel
from tracekit.analysis.sensitivity import SpeedReplays, compute_sensitivity
from tracekit.replay.step_time import StepScale
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.whatif import apply_edits, compute_saving_us

SOURCE, TARGET = "a100-sxm-80gb", "h100-sxm"
KERNELS, KERNEL = 4, 550.0
STEP = 5 + 7 + KERNELS * KERNEL + 3 + 4 + 11
"""To the launch, its latency, kernels with gaps of 1, to the return of the synchronisation, what follows it."""


def job(*pauses: float, kernel: float = KERNEL) -> TraceBuilder:
    """A step for each of some pauses of the CPU before its first launch, each of four products that it waits for."""
    builder, now = TraceBuilder(), 0.0
    for number, pause in enumerate(pauses):
        begin, now = now, now + pause
        free = now + 12 - 1
        for launch in range(KERNELS):
            builder.op("aten::mm", now + 1, 8, dims=[[4096, 4096]] * 2, types=["c10::BFloat16"] * 2)
            builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", free + 1, kernel, launch=now + 5, launch_dur=3)
            free, now = free + 1 + kernel, now + (10 if launch < KERNELS - 1 else 0)
        builder.call("cudaDeviceSynchronize", now + 9, free + 4 - now - 9)
        now = free + 4 + 11
        builder.step(number, begin, now - begin)
    return builder


def run(*pauses: float) -> MeasuredRun:
    return prepare_run(job(*pauses).load())


def predicted_us(builder: TraceBuilder, steps: str | None = None, gpu: str = TARGET) -> float:
    return tk.predict(builder.load(), gpu=gpu, steps=steps)[gpu].step.step_time_us


@pytest.mark.parametrize("pauses", [(0, 0, 1000, 0), (0, 0, 0, 100_000, 0, 0), (0, 0, 0, 0, 1e6)])
def test_one_slow_step_changes_nothing(pauses):
    """Kernels half as long: each step loses half of their time, whatever the slow one does."""
    slow = run(*pauses)
    assert slow.measured_step.step_time_us == pytest.approx(STEP)
    assert slow.program.replay_step(slow.program.kernel_us / 2).step_time_us == pytest.approx(
        STEP - KERNELS * KERNEL / 2, abs=0.01
    )
    assert predicted_us(job(*pauses)) == pytest.approx(predicted_us(job(*[0.0] * len(pauses))), rel=1e-6)


def test_the_ends_of_the_interval_are_medians_too():
    clean, slow = (tk.predict(job(*pauses).load(), gpu=TARGET)[TARGET] for pauses in ([0.0] * 6, [0, 0, 0, 1e5, 0, 0]))
    assert (slow.low_us, slow.high_us) == pytest.approx((clean.low_us, clean.high_us), rel=1e-4)
    assert slow.low_us < slow.step.step_time_us < slow.high_us


@pytest.mark.parametrize("pauses", [(0, 0, 1000), (0, 300, 0, 1000, 500), (50, 0, 0, 100_000, 0, 0)])
def test_the_gpu_of_the_trace_gives_the_measured_step_exactly(pauses):
    found = tk.predict(job(*pauses).load(), gpu=SOURCE)
    same = found[SOURCE]
    assert same.step.step_time_us == found.run.measured_step.step_time_us
    assert (same.low_us, same.high_us, same.speedup) == (*[same.step.step_time_us] * 2, 1)


KEEPS_CLOCK = "l40s"
"""A GPU whose clock doesn't follow from how busy the chosen steps are."""
PAUSES = (20.0, 0.0, 300.0, 5000.0, 40.0, 1200.0)


@cache
def predicted_of_steps_us(steps: str) -> float:
    return predicted_us(job(*PAUSES), steps, KEEPS_CLOCK)


@pytest.mark.parametrize("steps", [pair for pair in combinations(range(len(PAUSES)), 2) if pair[1] - pair[0] > 1])
def test_steps_chosen_together_lie_between_each_chosen_alone(steps):
    first, last = steps
    alone = [predicted_of_steps_us(str(step)) for step in range(first, last + 1)]
    together = predicted_of_steps_us(f"{first}:{last}")
    assert min(alone) <= together <= max(alone)
    counted = alone[1:] if first == 0 else alone  # the first of the trace starts with an empty queue
    assert together == pytest.approx(np.median(counted))


def test_edits_and_speeds_judge_each_step():
    slow = run(0, 0, 0, 100_000, 0, 0)
    half = STEP - KERNELS * KERNEL / 2
    assert compute_saving_us(slow.program, apply_edits(slow.program, ["scale(0.5)"]).program) == pytest.approx(
        KERNELS * KERNEL / 2, abs=0.01
    )
    assert compute_sensitivity(SpeedReplays(slow), (1, 2), (1,)).table["step_time_us"].to_list() == pytest.approx(
        [STEP, half], abs=0.01
    )
    found = ContentionModel(slow.program, slow.gpu).estimate(slow.program.kernel_us / 2)
    assert found.uncontended.step_time_us == pytest.approx(half, abs=0.01)


def test_steps_are_scaled_by_their_own_replays():
    """200 to 100 of 150, 100 to 80 of 80; what the replay gives no time keeps its own and gets what comes on top."""
    scale = StepScale(np.array([150.0, 80.0, 30.0]), np.array([200.0, 100.0, 0.0]))
    assert scale.apply(np.array([100, 100, 7])).tolist() == [75, 80, 37]
    assert scale.apply(scale.replayed_ns).tolist() == scale.measured_ns.tolist()


@pytest.mark.parametrize(
    "gpu", [TARGET, *(pytest.param(gpu, marks=pytest.mark.heavy) for gpu in ("v100-sxm-32gb", "l4"))]
)
def test_steps_together_lie_between_the_steps_alone(gpu: str):
    """Steps chosen together take no less than the shortest of them alone, and no more than the longest."""
    builder = job(0, 400, 3000, 50)
    alone = [tk.predict(builder.load(), gpu=gpu, steps=str(number))[gpu] for number in range(4)]
    for first, last in combinations(range(4), 2):
        together = tk.predict(builder.load(), gpu=gpu, steps=f"{first}:{last}")[gpu]
        parts = alone[first : last + 1]
        step_times = [one.step.step_time_us for one in parts]
        assert min(step_times) * (1 - 1e-9) <= together.step.step_time_us <= max(step_times) * (1 + 1e-9)


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.5])
def test_steps_are_additive(factor: float):
    """Times of the steps add up to the span of all of them, and so do their kernels, at any speed of the GPU."""
    slow = run(0, 400, 3000, 50, 0)
    timeline = slow.program.replay_timeline(slow.program.kernel_us * factor)
    steps = slow.program.step_timer.tabulate(timeline)
    span_ns = steps["end_ns"].max() - steps["end_ns"][0] + steps["time_ns"][0]
    assert steps["time_ns"].sum() == span_ns
    assert steps["busy_ns"].sum() == pytest.approx(slow.program.kernel_us.sum() * factor * 1e3, rel=1e-6)
