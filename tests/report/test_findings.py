"""Every finding with a trace in which it fires and one in which it doesn't; times in microseconds."""

import pytest

import tracekit as tk
from tests.asking import predict
from tests.codes import find_message, list_codes
from tests.conftest import SAMPLES
from tests.graph.test_replays import replays
from tests.jobs import gradient_step, job
from tests.prediction.test_memory_and_cost import training
from tracekit.analysis.idle import attribute_idle_time
from tracekit.analysis.sensitivity import SpeedReplays
from tracekit.messages.findings import FEW_BLOCKS_LAUNCHED, SPAN_RAN
from tracekit.reporting.findings import FINDINGS, collect_findings
from tracekit.reporting.findings.context import Finding, FindingContext
from tracekit.reporting.kernel_rows import build_kernel_rows, predict_on_source
from tracekit.reporting.sections.step import build_step_parts, compute_measured_shares, compute_target_shares
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

BF16 = "c10::BFloat16"
TENSOR = "ampere_bf16_s16816gemm_bf16_128x128"
V100 = {"id": 0, "name": "Tesla V100-SXM2-32GB", "totalGlobalMem": 34_089_730_048, "computeMajor": 7, "computeMinor": 0,
        "numSms": 80}  # fmt: skip


class Timeline(TraceBuilder):
    """Kernels one after another, queued ahead: the GPU is the limit. Ends with a synchronisation."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.cpu, self.gpu = 0.0, 20.0

    def run(self, op, kernel, dur, dims, dtype=BF16, **args):
        self.op(op, self.cpu, 6, dims=dims, types=[dtype] * len(dims))
        self.gpu = max(self.gpu + 1, self.cpu + 6)
        self.kernel(kernel, self.gpu, dur, launch=self.cpu + 1, launch_dur=3, **args)
        self.cpu, self.gpu = self.cpu + 8, self.gpu + dur
        return self

    def found(self, *gpus) -> dict[str, Finding]:
        self.call("cudaDeviceSynchronize", self.cpu, self.gpu + 3 - self.cpu).op("aten::end", self.gpu + 4, 2)
        return found(self, *gpus)


def found(builder: TraceBuilder, *gpus, without_rules=()) -> dict[str, Finding]:
    """The findings without the report's other sections, which replay the step dozens of times."""
    run = prepare_run(builder.load(), without_rules=without_rules)
    targets = tuple(predict(run, gpus).targets) if gpus else ()
    idle = attribute_idle_time(run.program, run.measured_timeline).scale_to(run.measured_step)
    rows = build_kernel_rows(run, targets, predict_on_source(run))
    replayed = (compute_measured_shares(run), *map(compute_target_shares, targets))
    parts = build_step_parts(run.measured_step, replayed[0].families, idle)
    case = FindingContext(run, rows, idle, SpeedReplays(run), parts, replayed, targets)
    return {finding.code: finding for finding in collect_findings(case)}


def mm(m, n, k):
    return [[m, k], [k, n]]


def slow_host():
    builder = TraceBuilder()
    for start in range(0, 1000, 100):
        builder.op("aten::add", start, 90).kernel("add", start + 88, 10, launch=start + 80)
    return builder


def test_launch_bound():
    finding = found(slow_host())["launch-bound"]
    assert finding.saves_us > 500
    assert finding.evidence[0].what == "before aten::add"
    assert "launch-bound" not in Timeline().run("aten::mm", TENSOR, 5000, mm(4096, 4096, 4096)).found()


def test_time_kept_within_graphs_is_not_the_cpus():
    builder = replays(*[100] * 8)
    for start in range(0, 4000, 40):
        builder.op("aten::add", 1300 + start, 38).kernel("add", 1330 + start, 8, launch=1320 + start)
    half = found(replays(*[100] * 8).op("aten::add", 1300, 30).kernel("add", 1330, 8, launch=1320))
    assert "launch-bound" not in half
    floor = found(builder)["launch-bound-partly"].message.values
    assert floor["floor_pct"] == pytest.approx(100)
    assert 0 < float(str(floor["kept_us"])) < float(str(floor["floor_us"]))


def reading(waits):
    """A product of 500 whose result the CPU waits for or not, work of 300 of its own, and the next product."""
    builder = TraceBuilder().op("aten::mm", 0, 10).kernel("gemm", 10, 500, launch=5)
    after = 15.0
    if waits:
        builder.op("aten::item", 15, 500).call("cudaStreamSynchronize", 17, 496)
        after = 515.0
    start = max(after + 308, 511)
    return builder.op("aten::mm", after + 300, 10).kernel("gemm", start, 500, launch=after + 303)


def test_synchronisation():
    finding = found(reading(waits=True))["synchronisation"]
    assert finding.saves_us == pytest.approx(312, abs=25)
    assert finding.evidence[0].what == "before aten::mm"
    assert "synchronisation" not in found(reading(waits=False))


def loading(dur):
    builder, now = TraceBuilder(), 0.0
    for _ in range(3):
        builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", now, dur)
        now += dur + 5
        builder.op("aten::mm", now, 10).kernel("gemm", now + 10, 300, launch=now + 5)
        builder.call("cudaDeviceSynchronize", now + 12, 301)
        now += 320
    return builder


def test_data_loading():
    """The first of three batches is loaded before anything that the step is measured by."""
    finding = found(loading(1000))["data-loading"]
    assert finding.saves_us == pytest.approx(2000, rel=0.6)
    assert finding.evidence[0].detail == SPAN_RAN(times=2.0)
    assert "data-loading" not in found(loading(2))


def allocating(dur):
    builder = TraceBuilder()
    for start in (0.0, 1200.0):
        builder.op("aten::empty", start, dur + 2).call("cudaMalloc", start + 1, dur)
        builder.op("aten::mm", start + dur + 5, 10).kernel("gemm", start + dur + 20, 100, launch=start + dur + 8)
    return builder


def test_evidence_that_takes_as_long_is_ordered_by_name():
    builder = TraceBuilder().step(1, 0, 2600)
    for number in range(40):
        builder.annotation(f"enumerate(DataLoader)#_Loader{number:02d}.__next__", 10 + 60 * number, 50)
    (finding,) = (
        f for f in tk.report(builder.kernel("k", 2450, 100, launch=2430).load()).findings if f.code == "data-loading"
    )
    assert [row.what[23:31] for row in finding.evidence] == [f"Loader0{number}" for number in range(5)]


def test_allocator():
    finding = found(allocating(900))["allocator"]
    assert finding.saves_us > 800
    assert finding.evidence[0].what == "cudaMalloc"
    assert "allocator" not in found(allocating(1))


@pytest.mark.parametrize("kind", ["data-loading", "allocator"])
def test_what_other_steps_did_says_nothing_of_the_chosen_one(kind):
    builder = TraceBuilder()
    for number, (start, takes) in enumerate(((0.0, 3000), (4000.0, 500)), 1):
        builder.step(number, start, takes + 300)
        if kind == "allocator":
            builder.call("cudaMalloc", start + 10, takes)
        else:
            builder.annotation("enumerate(DataLoader)#_Loader.__next__", start + 10, takes)
        builder.kernel("gemm", start + takes + 50, 100, launch=start + takes + 30)
    (finding,) = (one for one in tk.report(builder.load(), steps=2).findings if one.code == kind)
    assert "takes 500 µs of a step" in finding.title
    assert finding.evidence[0].time_us == 500


def all_reduce(builder, start, dur, elements, launch):
    args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": elements, "Group size": 8,
            "Process Group Name": "0"}  # fmt: skip
    return builder.kernel("ncclDevKernel_AllReduce_Sum_f32", start, dur, launch=launch, stream=9, **args)


def test_exposed_communication():
    alone = all_reduce(TraceBuilder().kernel("gemm", 10, 900, launch=0), 911, 300, 10_000_000, 20)
    finding = found(alone)["exposed-communication"]
    assert finding.saves_us == pytest.approx(300, abs=5)
    hidden = all_reduce(TraceBuilder().kernel("gemm", 10, 900, launch=0), 20, 300, 10_000_000, 12)
    assert "exposed-communication" not in found(hidden)


def test_exposed_communication_behind_a_slow_host_says_so():
    builder = TraceBuilder().op("aten::add", 0, 40).kernel("add", 10, 10, launch=5)
    all_reduce(builder, 100, 300, 10_000_000, 80).op("aten::add", 900, 200).kernel("add", 1090, 5, launch=1080)
    finding = found(builder)["exposed-communication-behind-cpu"]
    assert finding.saves_us == pytest.approx(0, abs=1)


def test_communication_that_no_step_is_known_to_have_launched_is_not_blamed_on_the_host():
    builder = TraceBuilder().step(1, 0, 1000).kernel("gemm", 10, 400, launch=5).call("cudaDeviceSynchronize", 20, 960)
    codes = found(all_reduce(builder, 420, 500, 10_000_000, None))
    assert not any(code.startswith("exposed-communication") for code in codes)


def collectives(elements, count=8):
    builder = TraceBuilder()
    for i in range(count):
        all_reduce(builder, 60 + 41 * i, 40, elements, 5 * i)
    return builder


def test_small_collectives():
    finding = found(collectives(1000))["small-collectives"]
    assert finding.saves_us == pytest.approx(7 * 40, rel=0.05)
    assert finding.message.values["collectives"] == 8
    assert "small-collectives" not in found(collectives(10_000_000))


def test_small_collectives_are_counted_on_each_rank():
    """Two on each of four ranks are not eight that could be sent together."""
    of_all = tk.report(job(*(collectives(1000, 2) for _ in range(4)))).findings
    assert "small-collectives" not in {finding.code for finding in of_all}


def test_full_precision():
    slow = Timeline().run("aten::mm", "ampere_sgemm_128x128_nn", 9000, mm(4096, 4096, 4096), "float").found()
    # 2 * 4096^3 FLOPs at 156 TFLOP/s take 880 us at least.
    assert 5000 < slow["full-precision"].saves_us < 9000 - 880
    assert "full-precision" in slow
    assert "full-precision" not in Timeline().run("aten::mm", TENSOR, 900, mm(4096, 4096, 4096)).found()


def test_full_precision_without_tf32_means_fp16():
    trace = Timeline(V100).run("aten::mm", "volta_sgemm_128x128_nn", 12_000, mm(4096, 4096, 4096), "float")
    assert "full-precision-without-tf32" in trace.found()


def test_tensor_cores_unused():
    slow = Timeline().run("aten::mm", "cutlass_80_simt_sgemm_128x128", 9000, mm(4096, 4096, 4096)).found()
    assert slow["tensor-cores-unused"].saves_us > 7000
    assert "tensor-cores-unused" not in Timeline().run("aten::mm", TENSOR, 700, mm(4096, 4096, 4096)).found()


def test_misaligned_shapes():
    slow = Timeline().run("aten::mm", "cutlass_bf16_align1", 4000, mm(4096, 4095, 4096)).found()
    assert slow["misaligned-shapes"].saves_us > 2500
    assert slow["misaligned-shapes"].evidence[0].detail.values["n"] == 4095
    assert "misaligned-shapes" not in Timeline().run("aten::mm", TENSOR, 4000, mm(4096, 4096, 4096)).found()


def test_low_utilization():
    thin = Timeline().run("aten::mm", TENSOR, 100, mm(64, 64, 16384), grid=[4, 1, 1], block=[128, 1, 1]).found()
    assert thin["low-utilization"].saves_us > 50
    few = thin["low-utilization"].evidence[0].detail
    assert few.template is FEW_BLOCKS_LAUNCHED
    assert (few.values["blocks"], few.values["sms"]) == (4, 108)
    assert "low-utilization" not in Timeline().run("aten::mm", TENSOR, 700, mm(4096, 4096, 4096)).found()


def attention(op="aten::_softmax"):
    trace = Timeline().run("aten::bmm", TENSOR, 1000, [[32, 4096, 64], [32, 64, 4096]])
    trace.run(op, "void softmax_warp_forward", 3000, [[32, 4096, 4096], [], []])
    return trace.run("aten::bmm", TENSOR, 1000, [[32, 4096, 4096], [32, 4096, 64]])


def test_unfused_attention():
    finding = attention().found()["unfused-attention"]
    # 4 * 32 * 4096^2 * 64 FLOPs at 312 TFLOP/s take 440 us at least.
    assert 3000 < finding.saves_us < 5000 - 440
    trace = Timeline().run("aten::mm", TENSOR, 1000, mm(4096, 4096, 4096))
    trace.run("aten::_softmax", "void softmax_warp_forward", 300, [[4096, 1000], [], []])
    assert "unfused-attention" not in trace.found()


def test_unfused_attention_is_that_of_the_forward_pass():
    """Its backward pass, of one softmax and four products, is no forward pass that one kernel could be."""
    trace = attention()
    begin = trace.cpu
    scores, heads = [32, 4096, 4096], [32, 4096, 64]
    trace.run("aten::bmm", TENSOR, 1000, [heads, [32, 64, 4096]])
    trace.run("aten::_softmax_backward_data", "void softmax_warp_backward", 4000, [scores, scores, [], []])
    for _ in range(3):
        trace.run("aten::bmm", TENSOR, 1000, [scores, heads])
    trace.op("autograd::engine::evaluate_function: BmmBackward0", begin - 1, trace.cpu - begin)
    assert trace.found()["unfused-attention"].saves_us == pytest.approx(
        attention().found()["unfused-attention"].saves_us
    )


H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_031_714_816, "computeMajor": 9,
        "computeMinor": 0, "numSms": 132}  # fmt: skip


def flash(
    device, kernel="void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", queries=4096
):
    query, keys = [4, 16, queries, 128], [4, 16, 4096, 128]
    trace = Timeline(device) if device else Timeline()
    op = "aten::_scaled_dot_product_flash_attention"
    trace.op(
        op,
        0,
        6,
        dims=[query, keys, keys, [], [], []],
        types=[BF16] * 3 + ["Scalar"] * 3,
        concrete=[""] * 4 + ["True", ""],
    )
    trace.kernel(kernel, 20, 860, launch=1, launch_dur=3)
    trace.cpu, trace.gpu = 8.0, 880.0
    return trace


def test_older_attention():
    """860 us of FlashAttention 2 are 320 TFLOP/s; FlashAttention 3 reaches 579 of such sequences."""
    finding = flash(H100).found()["older-attention"]
    assert finding.saves_us == pytest.approx(860 * (1 - 320 / 579), rel=0.25)
    assert finding.message.values["rate_pct"] == pytest.approx(50, abs=0.5)
    assert "older-attention" not in flash(None).found()
    assert "older-attention" not in flash(H100, "cutlass::device_kernel<flash::FlashAttnFwdSm90<>>").found()


def test_decoding_by_older_attention_waits_for_memory():
    trace = flash(H100, queries=1)
    trace.call("cudaDeviceSynchronize", trace.cpu, trace.gpu + 3 - trace.cpu)
    assert "older-attention" not in trace.found()
    (there,) = predict(prepare_run(trace.load()), ("b200",)).targets
    assert "attention-built-for-a100" not in list_codes(there.notes)


def test_attention_that_a_target_has_better_kernels_for_is_said():
    trace = flash(None)
    trace.call("cudaDeviceSynchronize", trace.cpu, trace.gpu + 3 - trace.cpu)
    notes = {target.gpu: target.notes for target in predict(prepare_run(trace.load()), ("b200", "l40s", "h20")).targets}
    said = find_message(notes["b200"], "attention-built-for-a100").values
    assert (said["time_pct"], said["rate_pct"]) == (pytest.approx(100), pytest.approx(25, abs=0.5))
    # An H20 has a seventh of an H100's rate: the A100's instructions reach it.
    assert not any("attention-built-for-a100" in list_codes(notes[gpu]) for gpu in ("l40s", "h20"))


def pointwise(*shapes):
    trace = Timeline()
    for op, shape in zip(("aten::mul", "aten::add", "aten::gelu"), shapes, strict=True):
        trace.run(op, "void vectorized_elementwise_kernel", 100, [shape])
    return trace


def test_unfused_chains():
    finding = pointwise([4096, 4096], [4096, 4096], [4096, 4096]).found()["unfused-chains"]
    assert finding.saves_us == pytest.approx(200, rel=0.1)
    assert finding.evidence[0].what == "aten::mul → aten::add → aten::gelu"
    assert "unfused-chains" not in pointwise([4096, 4096], [512, 512], [64, 64]).found()


def adam(*ops):
    trace = Timeline()
    for op in ops:
        trace.run(f"aten::{op}", "void multi_tensor_apply_kernel", 200, [[[1024, 8192]] * 3], "TensorList")
    return trace


def test_unfused_optimizer():
    passes = (
        "_foreach_mul_",
        "_foreach_addcmul_",
        "_foreach_sqrt",
        "_foreach_div_",
        "_foreach_add_",
        "_foreach_addcdiv_",
    )
    assert "unfused-optimizer" in adam(*passes).found()
    assert "unfused-optimizer" not in adam("_fused_adam_").found()


def copied(kind):
    trace = Timeline().run("aten::mm", TENSOR, 500, mm(4096, 4096, 4096))
    trace.run("aten::copy_", f"Memcpy HtoD ({kind} -> Device)", 4000, [[4096, 1024]], kind="gpu_memcpy", bytes=16 << 20)
    return trace.found()


def test_pageable_copies():
    # 16 MiB over PCIe 4.0 take 0.5 ms at least.
    assert 2500 < copied("Pageable")["pageable-copies"].saves_us < 3500
    assert "pageable-copies" not in copied("Pinned")


def test_what_limits_a_target():
    trace = Timeline()
    for _ in range(40):
        trace.run("aten::mm", TENSOR, 20, mm(1024, 1024, 512))
    finding = trace.found("b200")["cpu-or-gpu-is-bottleneck"]
    assert finding.on == "b200"
    same = Timeline().run("aten::mm", TENSOR, 900, mm(4096, 4096, 4096))
    assert not any(code.endswith("is-bottleneck") for code in same.found("a100-sxm-80gb"))


def test_what_limits_a_target_with_the_edits_that_it_is_predicted_with():
    """Ten launches of 90 become one: the CPU set the pace of all of the step, and of less once they are a graph."""
    trace = slow_host().load()
    plain, edited = (tk.report(tk.predict(trace, gpu="h100-sxm", what_if=edits)) for edits in ([], ["cuda-graph()"]))
    titles = [next(f.title for f in report.findings if f.on == "h100-sxm") for report in (plain, edited)]
    assert titles == [
        "On h100-sxm the CPU sets the pace: 99 % of the critical path (measured: 98 %).",
        "On h100-sxm the CPU most likely sets the pace, 62 % of the critical path (measured: 98 %); beside a fast one "
        "kernels do.",
    ]


@pytest.mark.parametrize(
    ("cluster", "change", "kind"),
    [
        ("4x1xh100-sxm@eth25", {"dp": 4}, "communication"),
        ("8xl4", {"dp": 8, "fsdp": True}, "communication"),
        ("8xl40s", {"pp": 4}, None),
        ("8xl40s", {"host": "same"}, "gpu"),
    ],
)
def test_what_a_layout_adds_can_set_the_pace(cluster, change, kind):
    """Gradients over 25 Gbit/s, parameters over PCI Express, and a pipeline that mostly waits for itself."""
    predictions = tk.predict(tk.load(SAMPLES / "synthetic_transformer_train.json.gz"), cluster=cluster, **change)
    told = [finding.bottleneck.limit for finding in tk.report(predictions).findings if finding.bottleneck]
    assert told == ([kind] if kind else [])


def test_the_report_of_edited_predictions_is_about_the_run_as_measured():
    predictions = tk.predict(reading(waits=True).load(), gpu="h100-sxm", what_if=["no-sync()"])
    report = tk.report(predictions)
    alone = tk.report(reading(waits=True).load(), what_if=["no-sync()"])
    assert [f for f in report.findings if f.on is None] == list(alone.findings)
    assert [row.saving_us for row in report.what_if] == [row.saving_us for row in alone.what_if] == [pytest.approx(312)]
    assert report.what_if[0].predicted_us == (predictions["h100-sxm"].step.step_time_us,)


def test_memory_headroom():
    # 20 bytes for each of 2^20 parameters, and what the product writes.
    assert found(training(2**20))["memory-headroom"].message.values["gpu_bytes"] == 80 * 2**30
    assert "memory-headroom" not in found(training(3 * 2**30))


def test_a_job_that_does_not_fit():
    large = found(training(3 * 2**29), "t4", "h100-sxm")
    assert large["does-not-fit"].on == "t4"
    assert "does-not-fit" not in found(training(2**20), "t4")


def steps(*durations):
    builder, now = TraceBuilder(), 0.0
    for number, dur in enumerate(durations):
        builder.step(number, now, dur).op("aten::add", now + 5, 20).kernel("add", now + 15, dur / 2, launch=now + 7)
        now += dur
    return builder


def test_warm_up():
    finding = found(steps(300, 900, 300, 300))["warm-up"]
    assert "--steps 2:3" in finding.advice
    assert finding.saves_us is None
    assert "warm-up" not in found(steps(300, 300, 300, 300))


def test_warm_up_of_a_step_that_is_left_out_is_no_finding():
    assert "warm-up" not in found(steps(900, 300, 300, 300))


def regions(count):
    builder = TraceBuilder()
    for i in range(count):
        builder.op(f"Torch-Compiled Region: {i}/0", 100 * i, 80).op("inner", 100 * i + 5, 10)
        builder.kernel("triton_poi_fused_add_0", 100 * i + 30, 20, launch=100 * i + 10)
    return builder


def test_graph_breaks():
    finding = found(regions(3))["graph-breaks"]
    assert finding.message.values["regions"] == 3
    assert "graph-breaks" not in found(regions(1))
    of_both = {f.code: f for f in tk.report(job(regions(1), regions(4))).findings}
    assert "2.50 compiled regions" in of_both["graph-breaks"].title


def test_faster_than_bound():
    assert "faster-than-bound" in Timeline().run("aten::mm", TENSOR, 100, mm(4096, 4096, 4096)).found()
    assert "faster-than-bound" not in Timeline().run("aten::mm", TENSOR, 900, mm(4096, 4096, 4096)).found()
    too_short = Timeline().run("aten::mm", TENSOR, 0, mm(64, 64, 64)).run("aten::mm", TENSOR, 900, mm(4096, 4096, 4096))
    assert "faster-than-bound" not in too_short.found()


def test_a_step_at_its_roofline_has_nothing_but_its_largest_part():
    """A product at 90 % of the peak, and nothing else."""
    (finding,) = Timeline().run("aten::mm", TENSOR, 3920, mm(8192, 8192, 8192)).found().values()
    assert finding.code == "largest-kernels-at-limit"
    assert finding.saves_us == pytest.approx(392, rel=0.05)
    assert finding.message.values["reached_pct"] == pytest.approx(90, abs=0.5)


def test_the_largest_part_of_a_step_may_be_idle_within_graphs():
    """Eight pauses of 100 between two kernels of 10 each, 3 from replay to replay, after 200 without any."""
    finding = found(replays(*[100] * 8), without_rules=["graph-launch-steps"])["largest-idle-in-graph"]
    assert finding.message.values["step_pct"] == pytest.approx(100 * 800 / 1184, abs=1)
    assert finding.saves_us == finding.message.values["time_us"]
    assert finding.parts == ("in_graph",)


def test_collectives_that_other_work_hides_are_the_largest_part_without_being_the_limit():
    """Of 900, a collective runs beside short kernels for 800; they are split, and the kernels take as long alone."""
    builder = TraceBuilder()
    for number in range(9):
        builder.kernel("gemm", 10 + 100 * number, 95, launch=2 * number)
    all_reduce(builder, 20, 800, 10_000_000, 30)
    all_reduce(builder, 21, 800, 10_000_000, 32)
    builder.events[-1]["tid"] = builder.events[-1]["args"]["stream"] = 10
    finding = found(builder)["largest-collectives-hidden"]
    assert finding.saves_us < 0.1 * float(str(finding.message.values["time_us"]))


def test_advice_that_is_followed_already_is_left_out():
    loads = loading(1000)
    for event in loads.events:
        if "_SingleProcessDataLoaderIter" in event["name"]:
            event["name"] = event["name"].replace("_SingleProcess", "_MultiProcessing")
    assert "data-loading-by-workers" in found(loads)
    expandable = allocating(900)
    for event in expandable.events:
        event["name"] = event["name"].replace("cudaMalloc", "cuMemCreate")
    assert "allocator-expandable" in found(expandable)
    compiled = slow_host().op("Torch-Compiled Region: 0/0", 1100, 20)
    assert [one.code for one in found(compiled)["launch-bound"].message.values["remedies"]] == [
        "cuda-graphs",
        "larger-batch",
    ]


def test_those_that_save_most_come_first():
    report = tk.report(attention().load())
    savings = [finding.saves_us or 0.0 for finding in report.findings]
    assert savings == sorted(savings, reverse=True)
    assert all(saving <= report.source.step_time_us for saving in savings)


def test_straggler():
    """Rank 1 computes 100 longer; rank 0 waits for it."""
    late = {f.code: f for f in tk.report(job(gradient_step(100, 340), gradient_step(200, 340))).findings}
    assert late["straggler"].saves_us == pytest.approx(100)
    assert late["straggler"].evidence[0].what == "rank 1"
    even = tk.report(job(gradient_step(100, 240), gradient_step(100, 240))).findings
    assert "straggler" not in {finding.code for finding in even}


def test_every_finding_has_its_case_here():
    tested = {name.removeprefix("test_") for name in globals()}
    functions = {find.__name__.removeprefix("find_") for find in FINDINGS}
    names = {
        "allocator_calls": "allocator", "missing_tensor_cores": "tensor_cores_unused",
        "memory_limits": "memory_headroom", "bottlenecks": "what_limits_a_target", "warmup_step": "warm_up",
    }  # fmt: skip
    assert {names.get(function, function) for function in functions} <= tested
