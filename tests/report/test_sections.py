"""Sections whose figures can be worked out by hand; times in microseconds."""

import tomllib

import polars as pl
import pytest

import tracekit as tk
from predictors.weights_file import SHIPPED_WEIGHTS
from tests.conftest import SAMPLES
from tests.jobs import job, recorded
from tracekit.reporting.sections import kernels
from tracekit.testing import TraceBuilder

ALL_REDUCE = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 250_000, "Group size": 4}


def test_a_collective_is_exposed_where_nothing_else_runs():
    """A collective from 60 to 160, beside kernels from 10 to 110 and from 130 to 150."""
    builder = TraceBuilder().kernel("gemm", 10, 100, launch=0).kernel("relu", 130, 20, launch=20)
    builder.kernel("ncclDevKernel_AllReduce_Sum_f32", 60, 100, launch=30, stream=9, **ALL_REDUCE)
    (row,) = tk.report(builder.load()).communication
    assert (row.collective, row.ranks, row.count) == ("all_reduce", 4, 1)
    assert row.time_us == pytest.approx(100)
    assert row.exposed_us == pytest.approx(20 + 10)
    assert row.bytes == 1_000_000
    # A ring of 4 moves 2 * 3/4 of the buffer over every link: 1.5 MB in 100 us.
    assert row.busbw_gbps == pytest.approx(15)


def test_a_collective_without_a_size_has_no_bandwidth():
    (row,) = tk.report(TraceBuilder().kernel("ncclDevKernel_Generic", 10, 100, launch=0).load()).communication
    assert (row.bytes, row.busbw_gbps, row.exposed_us) == (None, None, 100)


def test_the_skew_of_a_collective_is_from_the_first_start_to_the_last():
    """Two all-reduces that end together on both ranks: one rank comes 30 later, then 50."""
    builders = []
    for starts in ((10, 210), (40, 260)):
        builder = TraceBuilder()
        for start, end in zip(starts, (110, 310), strict=True):
            builder.kernel("ncclDevKernel_AllReduce", start, end - start, launch=start - 8, stream=9, **recorded())
        builders.append(builder)
    (row,) = tk.report(job(*builders)).communication
    assert row.skew_us == pytest.approx(40)
    (alone,) = tk.report(builders[0].load()).communication
    assert alone.skew_us is None


def test_the_rates_of_a_kernel_are_its_work_over_its_time():
    """A product of 1000 x 100 by 100 x 10 in 2 us, twice: 2e6 operations and 4 x 111,000 bytes each time."""
    builder = TraceBuilder()
    for start in (0, 100):
        builder.op("aten::mm", start, 50, dims=[[1000, 100], [100, 10]], types=["float", "float"])
        builder.kernel("ampere_sgemm", start + 60, 2, launch=start + 10)
    copied = {"kind": "gpu_memcpy", "call": "cudaMemcpyAsync", "bytes": 30_000}
    builder.kernel("Memcpy HtoD (Pinned -> Device)", 170, 3, launch=110, **copied)
    copy, product = sorted(tk.report(builder.load()).kernels, key=lambda row: row.family == "gemm")
    assert (product.tflops, product.tbps) == (pytest.approx(1.0), pytest.approx(0.222))
    assert (copy.tflops, copy.tbps) == (0, pytest.approx(0.01))


def test_the_queue_of_a_stream():
    """Launched at 0, 10 and 20 and begun at 20, 60 and 70: 120 us of waiting in the step; at most two at a time."""
    builder = TraceBuilder().step(1, 0, 100)
    for launch, start, dur in ((0, 20, 40), (10, 60, 10), (20, 70, 30)):
        builder.kernel("gemm", start, dur, launch=launch)
    (row,) = tk.report(builder.load()).streams
    assert row.queued == pytest.approx(120 / (row.busy_us + row.idle_us))
    assert row.most_queued == 2


def test_steps_one_by_one():
    builder = TraceBuilder().step(3, 0, 100).step(4, 100, 150)
    for start in (10, 110):
        builder.op("aten::add", start, 20).kernel("add", start + 10, 30, launch=start)
    first, second = tk.report(builder.load()).steps
    assert (first.step, first.time_us, first.kernel_time_us, first.first) == (3, 100, 30, True)
    assert (second.step, second.time_us, second.kernel_time_us, second.first) == (4, 150, 30, False)


@pytest.mark.parametrize("marked", [True, False])
def test_a_copy_beside_the_steps_that_follow_lengthens_none(marked):
    """Five steps of 1000; the second also copies for 3500 on a stream of its own."""
    builder = TraceBuilder()
    for step in range(5):
        start = 1000 * step
        builder.step(step, start, 1000 if marked else 999).op("aten::mm", start + 5, 20)
        builder.kernel("gemm", start + 20, 900, launch=start + 10)
    builder.kernel("Memcpy DtoH (Device -> Pinned)", 1930, 3500, launch=1040, kind="gpu_memcpy", stream=20)
    if not marked:
        for event in builder.events:
            if event["cat"] == "user_annotation":
                del event["pid"]
    trace = builder.load()
    report = tk.report(trace)
    assert report.source.step_time_us == 1000
    assert [step.time_us for step in report.steps] == [pytest.approx(1000, abs=100)] * 5
    assert [step.kernel_time_us for step in report.steps][2:] == [pytest.approx(1000, abs=10)] * 3
    assert all(row.time_us >= 0 for row in report.idle)
    assert sum(share for _, share in tk.report(trace, steps="1").critical.places) == pytest.approx(100)


def test_the_path_of_a_slow_host_runs_on_the_host():
    builder = TraceBuilder().op("aten::add", 0, 20).kernel("add", 8, 10, launch=0)
    report = tk.report(builder.op("aten::mul", 500, 20).kernel("mul", 508, 10, launch=500).load())
    assert sum(share for _, share in report.critical.places) == pytest.approx(100)
    assert report.critical.places[0][0] == "host"
    assert report.critical.ops[0].op == "aten::mul"


def test_a_step_of_the_gpu_gets_faster_with_it_alone():
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("gemm", 10, 10_000, launch=5)
    builder.call("cudaDeviceSynchronize", 30, 9_985).op("aten::next", 10_016, 5)
    speeds = tk.report(builder.load()).speeds
    steps = {(gpu, host): us for gpu, host, us in speeds.points}
    assert steps[2.0, 1.0] == pytest.approx(steps[1.0, 1.0] - 5_000)
    assert steps[1.0, 1.5] == pytest.approx(steps[1.0, 1.0], rel=0.01)
    assert speeds.gpu_floor_us < 100 < 10_000 <= speeds.host_floor_us


def test_roofs_of_what_the_step_uses():
    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
    trace = builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", 20, 900, launch=10).load()
    (roof,) = tk.report(trace).roofs
    # NVIDIA A100 data sheet: 312 TFLOP/s, 2039 GB/s.
    assert (roof.gpu, roof.measured, roof.peak_tflops) == ("a100-sxm-80gb", True, (("bf16", 312.0),))
    assert roof.bandwidth_gbps == pytest.approx(2039)
    (kernel,) = tk.report(trace).kernels
    assert kernel.flops == 2 * 4096**3
    assert kernel.bytes == 3 * 4096**2 * 2


def a_product():
    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
    return builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", 20, 900, launch=10).load()


def test_errors_of_the_laws_in_use():
    (law,) = tk.report(a_product()).accuracy
    assert (law.law, law.share) == ("gemm half", 100)
    assert "h100-sxm" in law.gpus
    assert 0 < law.held_out <= law.worst


def test_each_law_has_its_own_section_of_the_card():
    laws = tomllib.loads((SHIPPED_WEIGHTS / "card.toml").read_text())["laws"]
    told = kernels.build_law_errors(
        pl.DataFrame({"law": [*laws, "none"], "time_us": [100.0] * len(laws) + [50.0]}), targets=()
    )
    assert [one.gpus for one in told] == [*(tuple(laws[law]["gpus"]) for law in sorted(laws)), ()]


def test_the_error_on_a_target_is_known_where_it_was_measured():
    """H100 and H200 were fitted, and nobody measured products in half precision on a V100."""
    targets = tk.predict(a_product(), gpu=["h100-sxm", "h200-sxm", "v100-sxm2-16gb"]).targets
    (law,) = kernels.build_law_errors(
        pl.DataFrame({"law": ["gemm half"], "paged": [False], "time_us": [900.0]}), targets
    )
    measured, sibling, nobody = law.on_target
    assert 0 < measured < law.held_out
    assert 0 < sibling < law.held_out
    assert nobody is None


def test_attention_over_whole_sequences_has_errors_of_its_own():
    """An engine's encoder was measured on an L40S, of attention over whole sequences nothing was published there."""
    targets = tk.predict(a_product(), gpu=["h100-sxm", "l40s"]).targets
    rows = pl.DataFrame({"law": ["sequence", "encoder"], "time_us": [900.0, 300.0]})
    whole, engine = kernels.build_law_errors(rows, targets)
    assert (whole.law, whole.share) == ("attention, whole sequences", 75)
    assert whole.on_target[0] > engine.on_target[0]
    assert whole.on_target[1] is None
    assert engine.on_target[1] is not None


def test_provenance_names_the_file_by_its_hash(tmp_path):
    path = TraceBuilder().kernel("gemm", 10, 100, launch=0).save(tmp_path / "a.json")
    origin = tk.report(tk.load(path)).provenance
    assert len(origin.sha256) == 64
    assert origin.command is None
    facts = {what: (value, source) for what, value, source in origin.gpus[0].facts}
    assert facts["memory bandwidth"][0] == "2039 GB/s"
    assert all(source for what, (_, source) in facts.items() if what != "links, one direction")


def test_kernels_that_take_as_long_are_ordered_by_what_tells_them_apart():
    builder = TraceBuilder().step(1, 0, 3000)
    for number in range(40):
        begin = 10 + 60 * number
        builder.op(f"aten::op{number:02d}", begin, 20, dims=[[64, 64]], types=["float"])
        builder.kernel("same", begin + 30, 10, launch=begin + 5)
    assert [kernel.op for kernel in tk.report(builder.load()).kernels] == [
        f"aten::op{number:02d}" for number in range(40)
    ]


def test_of_the_recording_nothing_private_is_told():
    builder = TraceBuilder().kernel("gemm", 10, 100, launch=0)
    builder.metadata.update(host_name="gpu-07.lab", user="ada", trace_id="5f", cupti_version=24, with_stack=1)
    recorded = dict(tk.report(builder.load()).provenance.recorded)
    assert (recorded["cupti_version"], recorded["with_stack"]) == ("24", "1")
    assert not recorded.keys() & {"host_name", "user", "trace_id", "traceName"}


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ({"name": "AMD Instinct MI308X", "numSms": 0}, "'AMD Instinct MI308X', not recognised (--source-gpu names it)"),
        (None, "not recorded (--source-gpu names it)"),
    ],
)
def test_a_gpu_that_is_not_known_is_said_as_it_was_recorded(device, said):
    assert tk.report(TraceBuilder(device).kernel("gemm", 10, 100, launch=0).load()).source.resolution == said


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"batch": 2},
        {"dp": 4},
        {"dp": 4, "fsdp": True},
        {"tp": 2},
        {"pp": 2, "micro_batches": 8},
        {"dp": 2, "tp": 2, "pp": 2, "pp_schedule": "zero-bubble"},
    ],
)
def test_figures_of_a_layout_agree_with_each_other(change):
    trace = tk.load(SAMPLES / "synthetic_transformer_train.json.gz")
    predictions = tk.predict(trace, cluster="8xl40s", what_if=["scale(family=gemm, 0.5)", "no-sync()"], **change)
    report = tk.report(predictions)
    (target,), source, (_, bar) = report.targets, report.source, report.bars
    step = target.step
    assert target.low_us <= step.step_time_us <= target.high_us
    assert step.exposed_comm_us <= step.kernel_time_us
    assert step.kernel_time_us + step.idle_us == pytest.approx(step.step_time_us)
    assert sum(time_us for _, time_us in bar.parts) == pytest.approx(bar.step_time_us) == step.step_time_us
    assert target.speedup == pytest.approx(source.step_time_us / step.step_time_us)
    assert target.per_second / source.per_second == pytest.approx(target.speedup_per_sample)
    assert report.what_if[-1].predicted_us == (step.step_time_us,)
