"""Recorded times that break physics, on a trace whose right values are known; times in microseconds.

The trace is an A100's: three steps, each of four GEMMs of 550 and four pointwise kernels of 45, and one device
synchronisation, which returns 6 after the last kernel.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.asking import predict
from tracekit.doctor import examine
from tracekit.ingest.ledger import count_events
from tracekit.reporting import build_report
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import A100, TraceBuilder
from tracekit.timing import correct_times
from tracekit.timing.clocks import _estimate_drift

GEMM, RELU = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn", "vectorized_elementwise_kernel<4, relu>"
STEP_US = 2428.0
KERNELS = tuple(name for _ in range(4) for name in ((GEMM, 550.0), (RELU, 45.0)))

Fault = Callable[[list[dict[str, Any]]], None]


def build(fault: Fault = lambda kernels: None, steps: int = 3) -> TraceBuilder:
    """Build the trace; ``fault`` changes its kernels' events in place."""
    builder, now = TraceBuilder(), 1000.0
    for step in range(steps):
        began, free = now, now + 20
        for name, length in KERNELS:
            shape = {"dims": [[4096, 4096]] * 2, "types": ["c10::BFloat16"] * 2} if name == GEMM else {}
            builder.op("aten::mm" if name == GEMM else "aten::relu", now, 20, **shape)
            start = max(free, now + 20)
            builder.kernel(name, start, length, launch=now + 8)
            free = start + length + 1
            now += 27
        builder.call("cudaDeviceSynchronize", now, free + 5 - now)
        now = free + 10
        builder.step(step, began, now - began - 2)
    fault([event for event in builder.events if event.get("cat") == "kernel"])
    return builder


def measure(fault: Fault = lambda kernels: None) -> MeasuredRun:
    return prepare_run(build(fault).load())


def predict_us(run: MeasuredRun) -> float:
    return predict(run, ["h100-sxm"]).targets[0].step.step_time_us


def codes(run: MeasuredRun) -> list[str]:
    return [fault.code for fault in run.provenance.time_faults]


@pytest.fixture(scope="module")
def clean_us() -> float:
    run = measure()
    assert codes(run) == []
    assert predict_us(run) < run.measured_step.step_time_us / 2
    return predict_us(run)


def move(index: int, by_us: float) -> Fault:
    def change(kernels: list[dict[str, Any]]) -> None:
        kernels[index]["ts"] += by_us

    return change


def lengthen(rows: slice, by_us: float) -> Fault:
    def change(kernels: list[dict[str, Any]]) -> None:
        for kernel in kernels[rows]:
            kernel["dur"] += by_us

    return change


def shift(offset_us: float, drift: float = 0.0) -> Fault:
    def change(kernels: list[dict[str, Any]]) -> None:
        origin = kernels[0]["ts"]
        for kernel in kernels:
            kernel["ts"] += offset_us + drift * (kernel["ts"] - origin)

    return change


FAULTS = {
    "a kernel 27.8 hours early": (move(9, -1e11), ["times-displaced"]),
    "the first kernel 27.8 hours early": (move(0, -1e11), ["times-displaced"]),
    "a kernel 2 s late": (move(5, 2e6), ["times-displaced"]),
    "the last kernel 2 s late": (move(23, 2e6), ["times-displaced"]),
    "a kernel 100 us before its launch": (move(0, -120), ["times-displaced"]),
    "a step's kernels 100 us too long": (lengthen(slice(8, 16), 100), ["times-overrun"]),
    "a kernel 1.6 s too long": (lengthen(slice(10, 11), 1.6e6), ["times-overrun"]),
    "the last kernel 1.6 s too long": (lengthen(slice(23, 24), 1.6e6), ["times-overrun"]),
    "GPU times 8 us late": (shift(8), ["clock-offset"]),
    "GPU times 3 ms late": (shift(3000), ["clock-offset"]),
    "GPU times 3 ms early": (shift(-3000), ["clock-offset"]),
    "GPU times 20 us early": (shift(-40), ["clock-offset"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_corrected_and_said(name: str, clean_us: float) -> None:
    fault, expected = FAULTS[name]
    run = measure(fault)
    assert codes(run) == expected
    assert run.measured_step.step_time_us == pytest.approx(STEP_US, rel=0.02)
    assert predict_us(run) == pytest.approx(clean_us, rel=0.05)


@pytest.mark.parametrize("drift", [1e-3, -1e-3])
def test_a_clock_that_drifts_is_corrected(drift: float, clean_us: float) -> None:
    run = prepare_run(build(shift(0, drift), steps=20).load())
    assert codes(run) == ["clock-drift"]
    assert predict_us(run) == pytest.approx(clean_us, rel=0.05)


def test_an_activity_alone_on_its_stream_is_placed_too(clean_us: float) -> None:
    builder = build().kernel(RELU, 1100 - 1e11, 5, launch=1090, stream=20)
    run = prepare_run(builder.load())
    assert codes(run) == ["times-displaced"]
    assert predict_us(run) == pytest.approx(clean_us, rel=0.05)


def test_a_fault_costs_the_best_grade() -> None:
    trace = build(shift(8)).load()
    [check] = [check for check in examine(trace, prepare_run(trace)).checks if check.name == "times"]
    assert check.status == "warn"


def test_right_times_stay_as_they_are() -> None:
    rank = build().load().rank()
    assert correct_times(rank) == (rank, ())


def test_clocks_within_the_tolerance_stay_as_they_are() -> None:
    assert codes(measure(shift(4))) == []


@pytest.mark.parametrize(
    ("capability", "call", "allowed"),
    [(8, "cudaLaunchKernelExC", False), (9, "cudaLaunchKernelExC", True), (9, "cudaLaunchKernel", False)],
)
def test_kernels_may_overlap_only_by_programmatic_launch(capability: int, call: str, allowed: bool) -> None:
    """From Hopper on, and by a call that can ask for it: a kernel starts 20 before the one before it ends."""
    builder = build(lengthen(slice(0, 1), 20))
    builder.metadata["deviceProperties"] = [A100 | {"computeMajor": capability}]
    builder.events = [e | {"name": call} if e["name"] == "cudaLaunchKernel" else e for e in builder.events]
    assert [fault.code for fault in prepare_run(builder.load()).provenance.time_faults] == ["times-overrun"] * (
        not allowed
    )


def test_kernels_of_amd_never_overlap() -> None:
    builder = build(lengthen(slice(0, 1), 20))
    builder.metadata["deviceProperties"] = [A100 | {"name": "AMD Instinct MI300X", "computeMajor": 9}]
    builder.events = [e | {"name": e["name"].replace("cuda", "hip")} for e in builder.events]
    assert "times-overrun" in codes(prepare_run(builder.load()))


def change_kernels(**fields: Any) -> Fault:
    def change(kernels: list[dict[str, Any]]) -> None:
        for kernel in kernels[8:11]:
            kernel.update(fields)

    return change


def test_kernels_that_last_0_take_as_long_as_their_like(clean_us: float) -> None:
    run = measure(change_kernels(dur=0))
    assert codes(run) == ["durations-zero"]
    assert predict_us(run) == pytest.approx(clean_us, rel=0.05)


def test_kernels_that_all_last_0_are_below_their_bound() -> None:
    def change(kernels: list[dict[str, Any]]) -> None:
        for kernel in kernels:
            if kernel["name"] == GEMM:
                kernel["dur"] = 0

    trace = build(change).load()
    run = prepare_run(trace)
    [check] = [check for check in examine(trace, run).checks if check.name == "times"]
    assert check.status == "warn"
    assert "durations-below-bound" in [warning.code for warning in build_report(run).warnings]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_wait_that_returned_early_is_lengthened(steps: int, clean_us: float) -> None:
    builder = build(steps=steps)
    waits = [event for event in builder.events if event["name"] == "cudaDeviceSynchronize"]
    waits[-1]["dur"] = 0
    run = prepare_run(builder.load())
    assert codes(run) == ["waits-too-short"]
    assert predict_us(run) == pytest.approx(clean_us, rel=0.05)


def test_events_far_outside_the_recording_are_left_out(clean_us: float) -> None:
    builder = build(steps=20).op("aten::lost", -1e11, 5).kernel("lost", 9e10, 5).call("cudaFree", 8e10, 4)
    trace = builder.load()
    run = prepare_run(trace)
    assert codes(run) == ["times-outside"]
    assert predict_us(run) == pytest.approx(clean_us, rel=0.05)
    ledger = run.trace.ledger
    assert count_events(ledger) == (len(builder.events), len(builder.events) - 3)
    assert "aten::lost" not in run.trace.ops["name"].to_list()


def test_a_call_that_outlasts_the_recording_is_left_out(clean_us: float) -> None:
    run = prepare_run(build(steps=20).call("cudaStreamSynchronize", 30, 1e11).load())
    assert codes(run) == ["times-outside"]
    assert predict_us(run) == pytest.approx(clean_us, rel=0.05)


@pytest.mark.heavy
@settings(max_examples=30, deadline=None)
@given(
    index=st.integers(0, 23),
    kind=st.sampled_from(["move", "lengthen"]),
    size=st.floats(2_000, 1e9),
    sign=st.sampled_from([-1, 1]),
)
def test_no_single_fault_changes_the_answer_in_silence(index: int, kind: str, size: float, sign: int) -> None:
    fault = move(index, sign * size) if kind == "move" else lengthen(slice(index, index + 1), size)
    run = measure(fault)
    assert codes(run)
    assert run.measured_step.step_time_us == pytest.approx(STEP_US, rel=0.05)
    assert run.kernels["dur_ns"].sum() == pytest.approx(3 * 1e3 * (4 * 550 + 4 * 45), rel=0.05)


@settings(max_examples=20, deadline=None)
@given(offset=st.floats(-5_000, 5_000))
def test_any_clock_offset_is_taken_out(offset: float) -> None:
    run = measure(shift(offset))
    assert run.self_replay.error_pct == pytest.approx(0, abs=2)
    faster = run.program.replay_step(run.program.kernel_us / 4)
    assert faster.step_time_us == pytest.approx(STEP_US / 4, rel=0.2)
    assert codes(run) or abs(offset) < 25


def test_corrected_activities_stay_in_order() -> None:
    rank, _ = correct_times(build(move(9, -1e11)).load().rank())
    assert (np.diff(rank.activities["ts_ns"].to_numpy()) >= 0).all()


def find_calls(builder: TraceBuilder, name: str) -> list[dict[str, Any]]:
    return [event for event in builder.events if event["name"] == name]


@pytest.mark.parametrize("longer_us", [100.0, 20e3, 1e6, 50e6])
def test_a_wait_that_outlasts_the_next_op_is_cut(longer_us):
    builder = build()
    find_calls(builder, "cudaDeviceSynchronize")[0]["dur"] += longer_us
    run = prepare_run(builder.load())
    assert codes(run) == ["calls-overrun"]
    assert predict_us(run) == pytest.approx(predict_us(measure()), rel=0.01)
    assert run.trace.ledger.filter(pl.col("kind") == "calls-overrun").select("category", "count").rows() == [
        ("calls", 1)
    ]
    assert examine(builder.load(), run).grade != "A"


def test_a_launch_that_outlasts_its_op_is_cut():
    builder = build()
    for event in find_calls(builder, "cudaLaunchKernel")[3:6]:
        event["dur"] += 5e3
    run = prepare_run(builder.load())
    assert [(fault.code, fault.values["count"]) for fault in run.provenance.time_faults] == [("calls-overrun", 3)]
    assert predict_us(run) == pytest.approx(predict_us(measure()), rel=0.01)


def test_a_wait_ends_when_its_thread_launches_again():
    builder = TraceBuilder().step(1, 0, 400)
    builder.kernel("gemm", 20, 100, launch=10).call("cudaStreamSynchronize", 30, 300).kernel(
        "relu", 150, 50, launch=140
    )
    trace, found = correct_times(builder.load().rank())
    assert [message.code for message in found] == ["calls-overrun"]
    assert trace.calls.filter(pl.col("name") == "cudaStreamSynchronize")["dur_ns"].item() == 110_000


def test_driver_calls_lie_within_those_of_the_runtime():
    builder = TraceBuilder().step(1, 0, 400).kernel("gemm", 20, 100, launch=10, call="cuLaunchKernel")
    builder.call("cudaLaunchKernel", 8, 12).call("cudaDeviceSynchronize", 30, 95).call("cuCtxSynchronize", 31, 93)
    assert not correct_times(builder.load().rank())[1]


@pytest.mark.parametrize("longer_us", [5e3, 1e6])
def test_an_op_that_outlasts_its_step_is_cut(longer_us):
    builder = build()
    find_calls(builder, "aten::relu")[1]["dur"] += longer_us
    run = prepare_run(builder.load())
    assert codes(run) == ["ops-overrun"]
    assert predict_us(run) == pytest.approx(predict_us(measure()), rel=0.01)


def test_launches_at_one_time_tell_no_drift():
    at, most = np.array([5, 5, 5]), np.array([3.0, 2.0, 4.0])
    assert _estimate_drift(at, most) == 0.0
    assert _estimate_drift(np.array([0, 1000]), np.array([10.0, 30.0])) == pytest.approx(0.02)
