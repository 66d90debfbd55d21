"""Time that nothing explains, collectives that are kept and another stack's host: their intervals; microseconds."""

import pytest

import tracekit as tk
from tests.codes import find_message, list_codes
from tests.graph.test_unrecorded_work import steps_with_lost_work
from tracekit.parallelism.stragglers import HOST_SPEED_FACTOR
from tracekit.prediction.intervals import KEPT_COLLECTIVE_FACTOR
from tracekit.prediction.model import Prediction
from tracekit.prediction.target_host import STACK_FACTOR
from tracekit.testing import TraceBuilder


def on(builder: TraceBuilder, gpu: str, **options: str) -> Prediction:
    return tk.predict(builder.load(), gpu=gpu, host="same", **options)[gpu]


def without_launches(gap: float) -> TraceBuilder:
    """Three kernels of 100 on one stream, ``gap`` apart, and one on another stream in the midst of the first gap."""
    builder = TraceBuilder()
    for number in range(3):
        builder.kernel("gemm", number * (100 + gap), 100)
    return builder.kernel("add", 100 + gap / 2, 10, stream=9)


def test_gaps_without_a_reason_take_from_no_time_to_all_of_it():
    found = on(without_launches(5000), "h100-sxm")
    assert found.step.step_time_us > 10_000
    assert found.low_us < 320
    assert found.high_us >= found.step.step_time_us
    said = find_message(found.notes, "unknown-time-varies")
    assert said.values["shorter_us"] == pytest.approx(10_000, rel=0.01)


def test_short_gaps_are_those_of_any_kernels():
    found = on(without_launches(10), "h100-sxm")
    assert "unknown-time-varies" not in list_codes(found.notes)


def test_on_its_own_gpu_all_of_it_is_as_measured():
    found = on(without_launches(5000), "a100-sxm-80gb")
    assert (found.low_us, found.high_us) == (found.step.step_time_us, found.step.step_time_us)


def test_steps_without_any_launch_are_not_paced_by_their_marks():
    builder = TraceBuilder()
    for number in range(4):
        builder.step(number, number * 5000, 5000).kernel("gemm", number * 5000 + 10, 100)
    assert on(builder, "h100-sxm").low_us < 250


def test_work_that_is_not_recorded_scales_like_what_is_from_none_of_it_to_all():
    """Of a step of 2000 the kernel takes 500, what isn't recorded 1000, the host and latency 500."""
    found = on(steps_with_lost_work(), "h100-sxm")
    ratio = found.kernels["time_us"][0] / 500
    assert found.step.step_time_us == pytest.approx(500 + 1500 * ratio, abs=2)
    assert found.low_us < 500 + 500 * ratio
    assert found.high_us > 500 * ratio + 1500


def test_on_a_slower_gpu_work_that_is_not_recorded_may_take_longer_than_measured():
    slow = on(steps_with_lost_work(), "t4")
    assert slow.step.step_time_us > 500 + 1000 + slow.kernels["time_us"][0]
    assert slow.low_us < slow.step.step_time_us - 1000


def job() -> TraceBuilder:
    """One rank of eight: a kernel of 20, and 900 of a collective that nothing names."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    builder.kernel("gemm", 10, 20, launch=0)
    return builder.kernel("ncclDevKernel_Generic", 31, 900, launch=5, stream=7)


def test_collectives_that_are_kept_take_from_no_time_to_some_times_as_long():
    found = on(job(), "h100-sxm")
    row = found.kernels.row(1, named=True)
    assert (row["low_us"], row["high_us"]) == (0, 900 * KEPT_COLLECTIVE_FACTOR)
    assert found.low_us < 100
    assert found.high_us > 900 * KEPT_COLLECTIVE_FACTOR
    assert find_message(found.notes, "collectives-unpredicted").values["factor"] == KEPT_COLLECTIVE_FACTOR
    own = on(job(), "a100-sxm-80gb").kernels.row(1, named=True)
    assert (own["low_us"], own["high_us"]) == (900, 900)


def test_the_hosts_work_on_another_stack_is_uncertain_by_a_factor():
    """Ten launches 1000 apart."""
    builder = TraceBuilder()
    for number in range(10):
        builder.kernel("gemm", number * 1000 + 10, 10, launch=number * 1000)
    cuda, rocm = on(builder, "h100-sxm"), on(builder, "mi300x")
    assert cuda.high_us / cuda.step.step_time_us == pytest.approx(HOST_SPEED_FACTOR, rel=0.01)
    assert rocm.high_us / rocm.step.step_time_us > STACK_FACTOR
    assert rocm.step.step_time_us / rocm.low_us > 0.95 * STACK_FACTOR
    said = find_message(rocm.notes, "host-stack-changes")
    assert (said.values["source"], said.values["target"]) == ("CUDA", "ROCm")
    assert not {"host-stack-changes", "host-time-kept"} & {*list_codes(cuda.notes)} - {"host-time-kept"}
