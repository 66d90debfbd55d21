"""Whatever a step that is left out did, no section of the report counts it; times in microseconds."""

from dataclasses import fields, replace
from functools import cache

import pytest

import tracekit as tk
from tests.jobs import job, recorded
from tracekit.reporting.model import Report
from tracekit.testing import TraceBuilder

BF16 = ["c10::BFloat16"] * 2
GEMM = "ampere_bf16_s16816gemm_bf16_128x128"
PERIOD = 4000
ABOUT_THE_FILE = ("events", "provenance", "warnings")
"""Sections on what was recorded."""


def add_step(builder: TraceBuilder, number: int, slower: float, late: float) -> None:
    """Load, allocate, multiply, add twice, reduce, wait and update; ends 4000 after where step ``number`` begins."""
    at = PERIOD * (number + 1 - slower)
    host, gpu = at + 10 * slower, at + 700 * slower + late
    builder.step(number, at, PERIOD * slower - 1)
    builder.annotation("enumerate(DataLoader)#_Loader.__next__", host, 300 * slower)
    builder.op("aten::empty", host + 310 * slower, 110).call("cudaMalloc", host + 312 * slower, 100)
    builder.python("nn.Module: Linear_0", host + 450 * slower, 40)
    for i, (op, kernel, dur, dims) in enumerate((
        ("aten::mm", GEMM, 900, [[4096, 4096], [4096, 4096]]),
        ("aten::mul", "void vectorized_elementwise_kernel", 100, [[4096, 4096]]),
        ("aten::add", "void vectorized_elementwise_kernel", 120, [[4096, 4096]]),
        ("aten::mm", GEMM, 60, [[64, 16384], [16384, 64]]),
    )):  # fmt: skip
        launch = host + 455 * slower + 8 * i
        builder.op(op, launch, 7, dims=dims, types=BF16[: len(dims)])
        builder.kernel(kernel, gpu, dur, launch=launch + 1)
        gpu += dur + 1
    if slower > 1:
        builder.op("aten::conv2d", host + 490 * slower, 9).kernel("cudnn_conv", gpu, 700, launch=host + 491 * slower)
        gpu += 701
    backward = host + 600 * slower
    builder.op("autograd::engine::evaluate_function: MmBackward0", backward, 30)
    builder.kernel(GEMM, gpu, 300, launch=backward + 10)
    gpu += 301
    end = at + 3000 * slower
    for i in range(4):
        begin = gpu + 5 + 50 * i
        stop = end if i == 3 else begin + 40
        launch = host + 500 * slower + 8 * i
        builder.kernel("ncclDevKernel_AllReduce", begin, stop - begin, launch=launch, stream=9, **recorded())
    builder.op("aten::item", host + 650 * slower, end + 20 - host - 650 * slower)
    builder.call("cudaStreamSynchronize", host + 652 * slower, end + 15 - host - 652 * slower)
    builder.annotation("Optimizer.step#Adam.step", end + 30, 40)
    builder.kernel("void multi_tensor_apply_kernel", end + 50, 200, launch=end + 35)


@cache
def report(slower: float) -> Report:
    """Of two ranks and the steps 4 and 5, the second rank later; step 3 takes as many times as long."""
    ranks = []
    for late in (0, 150):
        builder = TraceBuilder()
        for number, times in ((3, slower), (4, 1), (5, 1)):
            add_step(builder, number, times, late)
        ranks.append(builder)
    return tk.report(tk.predict(job(*ranks), gpu=["h100-sxm"], steps="4:5"))


EXACT = [
    field.name
    for field in fields(Report)
    if field.name not in (*ABOUT_THE_FILE, "source", "speeds", "findings", "targets")
]


@pytest.mark.parametrize("section", EXACT)
def test_a_section_is_of_the_chosen_steps(section):
    assert getattr(report(3), section) == getattr(report(1), section)


def test_the_source_counts_all_kernels_yet_is_of_the_chosen_steps():
    slow, plain = report(3).source, report(1).source
    assert slow.kernels == plain.kernels + 2
    assert replace(slow, kernels=plain.kernels) == plain


def test_findings_are_of_the_chosen_steps():
    """Without synchronisations the CPU runs ahead from the step before: that saving alone depends on it."""
    slow, plain = ([replace(one, saves_us=None) for one in report(times).findings] for times in (3, 1))
    assert slow == plain
    assert len(slow) > 3


def test_other_speeds_and_gpus_are_of_the_chosen_steps():
    slow, plain = report(3), report(1)
    assert slow.speeds.points == plain.speeds.points
    assert [target.step for target in slow.targets] == [target.step for target in plain.targets]
    assert [target.memory for target in slow.targets] == [target.memory for target in plain.targets]


def test_the_sections_say_something():
    found = report(3)
    assert {field.name for field in fields(Report) if not getattr(found, field.name)} <= {
        *("copies", "modules", "over_bound", "peak_slices", "phases", "refused", "serving", "what_if")
    }
    assert found.source.step_time_us == pytest.approx(PERIOD)
    assert [(step.step, step.time_us) for step in found.steps] == [(4, PERIOD), (5, PERIOD)]


def test_intervals_and_notes_are_of_the_chosen_steps():
    slow, plain = (report(times).targets[0] for times in (3, 1))
    assert (slow.low_us, slow.high_us) == pytest.approx((plain.low_us, plain.high_us), rel=1e-3)
    assert [note.code for note in slow.notes] == [note.code for note in plain.notes]
