"""What a reader has to know first."""

from dataclasses import replace

import pytest

import tracekit as tk
from tests.jobs import served
from tracekit.messages import Message
from tracekit.messages.traces import EVENTS_CUT
from tracekit.reporting.sections import limits, warnings
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace


def said_of(builder: TraceBuilder) -> tuple[Message, ...]:
    run = prepare_run(builder.load())
    return warnings.build_warnings(run, limits.analyze_idle_time(run))


def find(builder: TraceBuilder, code: str) -> list[Message]:
    """The warnings with a code."""
    return [warning for warning in said_of(builder) if warning.code == code]


def said(unprofiled_step_us: object) -> list[Message]:
    """The warnings about the profiler's overhead in a step of 100 us."""
    builder = TraceBuilder().step(1, 0, 100).kernel("k", 20, 60, launch=10)
    builder.metadata["tracekit"] = {"unprofiled_step_us": unprofiled_step_us}
    return find(builder, "profiler-slows-step")


def test_what_the_profiler_cost_is_said_with_the_option_that_takes_it_out():
    (warning,) = said([70, 80, 90])
    assert warning.values == {"without_us": 80, "with_us": 100}
    assert warning.render_hint() == "Take that out with --unprofiled-step 0.08ms."


@pytest.mark.parametrize("noted", [[99.0], [], [0], ["soon"], "soon", None])
def test_a_profiler_that_cost_nothing_and_notes_that_make_no_sense_are_not_mentioned(noted):
    assert said(noted) == []


@pytest.mark.parametrize(("marked", "times", "warns"), [(False, 2, True), (False, 1, False), (True, 2, False)])
def test_several_iterations_in_what_counts_as_one_step_are_said(marked, times, warns):
    builder = TraceBuilder().step(1, 0, 300) if marked else TraceBuilder()
    for start in range(0, 100 * times, 100):
        builder.kernel("k", start + 20, 60, launch=start + 10)
        builder.annotation("Optimizer.step#Adam.step", start + 80, 10)
    builder.annotation("Optimizer.step#SGD.step", 95, 4)
    assert [warning.values["updates"] for warning in find(builder, "steps-unmarked")] == [times] * warns


def test_batches_of_other_kinds_than_the_measured_ones_are_said():
    builder = served("step[EXTEND bs=2 toks=64]", *["step[DECODE bs=2]"] * 3)
    (warning,) = find(builder, "other-batches")
    assert (warning.values["step"], str(warning).partition(": the step")[0]) == (
        0,
        "The engine also ran 1 prefill batch",
    )
    assert find(builder.step(1, 0, 300), "other-batches") == []


@pytest.mark.parametrize("late", [True, False])
def test_a_step_that_is_idle_for_no_recorded_reason_is_said(late):
    """The second kernel, whose launch isn't recorded, starts 500 after the first one ended, or at once."""
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("first", 20, 60, launch=10)
    builder.kernel("second", 580 if late else 81, 400)
    warned = find(builder, "idle-unexplained")
    assert [(warning.values["idle_us"], warning.values["kernel"]) for warning in warned] == [(500, "second")] * late


@pytest.mark.parametrize("gpus", [1, 2])
def test_several_gpus_of_one_process_are_said(gpus):
    builder = TraceBuilder()
    for device in range(gpus):
        builder.kernel("k", 20, 60, launch=10 * device, device=device)
    assert [warning.values["gpus"] for warning in find(builder, "several-gpus-in-process")] == [gpus] * (gpus - 1)


@pytest.mark.parametrize("launched", [True, False])
def test_kernels_without_launches_are_said(launched):
    """Without them no kernel is of a step, and no prediction differs from the measured step."""
    builder = TraceBuilder().op("aten::mm", 0, 5)
    for step in range(2):
        builder.step(step, 100 * step, 100).kernel(
            "k", 100 * step + 20, 60, launch=100 * step + 5 if launched else None
        )
    report = tk.report(builder.load())
    said = [one.values["time_pct"] for one in report.warnings if one.code == "launches-missing-in-steps"]
    assert said == ([] if launched else [100])
    assert report.bars[0].parts == (("other", 60.0), ("idle", 40.0))


@pytest.mark.parametrize(("took_us", "softmax_us", "warns"), [(400, 400, True), (400, 100, False), (100, 100, False)])
def test_a_gpu_slower_than_its_kind_is_said_if_all_kinds_of_kernels_are(took_us, softmax_us, warns):
    """Kernels that move 128 MiB each: 66 us at an A100's full bandwidth."""
    builder, start = TraceBuilder(), 5000
    kinds = (
        ("aten::gelu", "vectorized_elementwise_kernel<4>", took_us),
        ("aten::native_layer_norm", "vectorized_layer_norm_kernel", took_us),
        ("aten::_softmax", "cunn_SoftMaxForward<4, float>", softmax_us),
    )
    for number, (op, kernel, dur) in enumerate(10 * kinds):
        builder.op(op, 100 * number, 30, dims=[[4096, 4096]], types=["float"])
        builder.kernel(kernel, start, dur, launch=100 * number + 5)
        start += dur + 2
    assert len(find(builder, "clock-low")) == warns


def test_waiting_of_one_rank_is_told_apart_from_the_part_in_which_nothing_else_ran():
    """Two collectives alike, the second 800 longer; a kernel runs beside 300 of them: 500 are shown as only waiting."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 2}
    message = {"Collective name": "allreduce", "In msg nelems": 2**20, "dtype": "Float", "Group size": 2}
    for start, took in ((100, 100), (300, 900)):
        builder.op("record_param_comms", start - 50, 10, **message)
        builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, took, launch=start - 48, stream=20)
    builder.kernel("k", 400, 300, launch=260)
    assert [one.values for one in find(builder, "one-rank-read")] == [{"ranks": 2, "kept_us": 800}]
    source = tk.report(builder.load()).source
    assert (source.exposed_comm_us, source.waiting_us) == (700, 500)


@pytest.mark.parametrize(("lost", "said"), [(0, []), (1, []), (50, [(50, 100)]), (99, [(99, 100)])])
def test_kernels_that_the_profiler_lost_are_said(lost, said):
    """Their steps look as if the CPU alone set the pace."""
    builder = TraceBuilder()
    for number in range(100):
        at = 100 * number
        if number < lost:
            builder.call("cudaLaunchKernel", at, 5)
        else:
            builder.kernel("gemm", at + 10, 80, launch=at)
    found = find(builder, "kernels-lost")
    assert [(one.values["lost"], one.values["launches"]) for one in found] == said


@pytest.mark.parametrize("damaged", [(0,), (1,), (0, 1)])
def test_of_several_ranks_it_is_said_whose_recording_is_damaged(damaged):
    ranks = []
    for number in range(2):
        builder = TraceBuilder().op("aten::mm", 0, 5).kernel("gemm", 20, 100, launch=4)
        builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": number, "world_size": 2}
        rank = builder.load().ranks[0]
        ranks.append(replace(rank, warnings=(EVENTS_CUT(length=9),)) if number in damaged else rank)
    run = prepare_run(Trace(tuple(ranks)))
    found = map(str, warnings.build_warnings(run, limits.analyze_idle_time(run)))
    said = [warning for warning in found if "cut short" in warning]
    alone = [f"rank {number}: {EVENTS_CUT(length=9)}" for number in damaged]
    assert said == (alone if len(damaged) == 1 else [f"{EVENTS_CUT(length=9)} (and 1 more like it)"])


@pytest.mark.parametrize(("values", "warns"), [(None, True), (["", "", "", "0.", "False"], False)])
def test_attention_with_a_mask_that_the_trace_does_not_tell_is_said(values, warns):
    q, op = [4, 16, 1024, 64], "aten::_scaled_dot_product_flash_attention"
    builder = TraceBuilder().op(op, 0, 20, dims=[q, q, q, [], []], types=["c10::Half"] * 3, concrete=values)
    builder.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", 30, 90, launch=5)
    assert [one.values["time_pct"] for one in find(builder, "attention-mask-unknown")] == [100] * warns
