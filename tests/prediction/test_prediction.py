"""What a user relies on in a prediction."""

from functools import partial

import numpy as np
import pytest

import tracekit as tk
from predictors.result import UNKNOWN_SOURCE_HALF_WIDTH
from tests.codes import find_message, has_code, list_codes
from tracekit.comm.cluster import CLUSTER_FOLDER
from tracekit.errors import GpuError, StepError, TracekitError
from tracekit.format import format_duration
from tracekit.prediction import resolve_targets
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder

SOURCE = "a100-sxm-80gb"


def steps_of_gemms(m: int = 4096, kernel_us: float = 900, steps: int = 3) -> TraceBuilder:
    """GPU-bound bf16 steps: four products, then a read-back."""
    builder = TraceBuilder()
    now = gpu_free = 0.0
    for number in range(steps):
        begin = now
        for _ in range(4):
            builder.op("aten::mm", now, 20, dims=[[m, m], [m, m]], types=["c10::BFloat16"] * 2)
            start = max(now + 15, gpu_free + 1)
            gpu_free = start + kernel_us
            builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", start, kernel_us, launch=now + 7, launch_dur=5)
            now += 25
        end = gpu_free + 4
        builder.call("cudaDeviceSynchronize", now, end - now).op("aten::next", end + 5, 10)
        builder.step(number, begin, end + 15 - begin)
        now = end + 20
    return builder


@pytest.fixture(scope="module")
def trace():
    return steps_of_gemms().load()


def test_the_source_gpu_gives_the_measurement_back(trace):
    prediction = tk.predict(trace, gpu=SOURCE)[SOURCE]
    measured = tk.report(trace).source
    assert prediction.kernels["time_us"].to_list() == (trace.rank().activities["dur_ns"] / 1e3).to_list()
    assert prediction.step.step_time_us == pytest.approx(measured.step_time_us, rel=1e-9)
    assert prediction.step.kernel_time_us == pytest.approx(measured.kernel_time_us, rel=1e-9)
    assert (prediction.low_us, prediction.high_us) == pytest.approx((measured.step_time_us,) * 2)
    assert prediction.speedup == pytest.approx(1)


def test_measured_step_is_the_period(trace):
    source = tk.report(trace).source
    assert source.steps == 2  # the first of three starts with an empty queue
    assert source.step_time_us == pytest.approx(4 * 900 + 3 + 15 + 4 + 5 + 10 + 5, abs=1)
    assert source.kernel_time_us == pytest.approx(3600)
    assert source.kernel_time_us + source.idle_us == pytest.approx(source.step_time_us)


def test_a_replay_that_is_far_off_widens_the_interval_by_as_much_either_way():
    """Kernels of graphs on one stream, each over before the one before it: four times as long replayed."""
    builder, graph = TraceBuilder(), {"call": "cudaGraphLaunch"}
    for number in range(4):
        builder.op("aten::mm", 5 * number, 4, dims=[[512, 1024], [1024, 1024]], types=["c10::BFloat16"] * 2)
        name, length = "ampere_bf16_s16816gemm_bf16_128x128", 1000 - 30 * number
        builder.kernel(name, 20 + number, length, launch=5 * number + 1, **graph)
    prediction = tk.predict(builder.load(), gpu="h100-sxm")["h100-sxm"]
    assert 0 < prediction.low_us < prediction.step.step_time_us / 3


def test_intervals_hold_the_prediction_and_coverage_adds_up(trace):
    for prediction in tk.predict(trace, gpu=["h100-sxm", "v100-sxm-32gb", "mi300x", "t4"]).values():
        assert 0 < prediction.low_us <= prediction.step.step_time_us <= prediction.high_us
        coverage = prediction.coverage
        assert coverage.modelled + coverage.scaled + coverage.unknown == pytest.approx(100)
        assert coverage.modelled == pytest.approx(100)


def test_what_is_kept_from_a_gpu_that_is_not_known_has_an_interval():
    """Without shapes, from a GPU without numbers: kept, which may be ten times as long or a tenth."""
    unknown = {"name": "AMD Instinct MI308X", "numSms": 0, "totalGlobalMem": 0}
    builder = TraceBuilder(unknown).kernel("something_of_its_own", 5, 1000, launch=0)
    builder.call("cudaDeviceSynchronize", 6, 1000)
    found = tk.predict(builder.load(), gpu="h100-sxm")["h100-sxm"]
    assert found.coverage.unknown == pytest.approx(100)
    assert found.kernels["high_us"][0] / found.kernels["time_us"][0] == pytest.approx(np.exp(UNKNOWN_SOURCE_HALF_WIDTH))
    assert found.low_us < 0.2 * found.step.step_time_us
    assert found.high_us > 8 * found.step.step_time_us


def test_what_is_kept_from_a_gpu_that_is_not_known_is_off_alike():
    """A hundred such kernels are as unsure together as one alone: all are off by what the GPU is."""
    unknown = {"name": "AMD Instinct MI308X", "numSms": 0, "totalGlobalMem": 0}
    builder = TraceBuilder(unknown)
    for number in range(100):
        builder.kernel(f"something_of_its_own_{number}", 5 + 1000 * number, 1000, launch=number)
    builder.call("cudaDeviceSynchronize", 101, 100_000)
    found = tk.predict(builder.load(), gpu="h100-sxm")["h100-sxm"]
    assert found.high_us > 8 * found.step.step_time_us


def test_the_gpu_is_never_busy_for_longer_than_the_step():
    """The first of four steps waits 200 for its data, which counts to all of them: 1000 of 4200 is a step's part."""
    builder, now = TraceBuilder(), 0
    for number, waits in enumerate((200, 0, 0, 0)):
        builder.step(number, now, waits + 1000)
        now += waits
        builder.op("aten::mm", now, 20, dims=[[4096, 4096]] * 2, types=["float"] * 2)
        builder.kernel("sgemm", now + 20, 970, launch=now + 5).call("cudaDeviceSynchronize", now + 30, 962)
        now += 1000
    step = tk.predict(builder.load(), gpu="t4")["t4"].step
    assert step.kernel_time_us + step.idle_us == pytest.approx(step.step_time_us)


def test_a_better_gpu_is_faster(trace):
    predictions = tk.predict(trace, gpu=["h100-sxm", "t4"])
    assert predictions["h100-sxm"].speedup > 1.3
    assert predictions["t4"].speedup < 0.7


def test_the_host_sets_a_floor():
    """Kernels so short that the CPU is the limit: no GPU helps."""
    trace = steps_of_gemms(m=64, kernel_us=4).load()
    assert tk.predict(trace, gpu="b200")["b200"].speedup == pytest.approx(1, abs=0.15)
    assert "launch-bound-partly" in [finding.code for finding in tk.report(trace).findings]


def test_any_spelling_finds_the_prediction(trace):
    predictions = tk.predict(trace, gpu="NVIDIA H100 80GB HBM3")
    assert list(predictions) == ["h100-sxm"]
    assert predictions["H100_SXM"].gpu == "h100-sxm"
    with pytest.raises(KeyError):
        predictions["t4"]


def test_what_has_capitals_in_its_name_is_found_by_it(trace, tmp_path):
    path = tmp_path / "Lab.toml"
    path.write_text((CLUSTER_FOLDER / "dgx-h100.toml").read_text())
    predictions = tk.predict(trace, cluster=str(path))
    assert [*predictions] == ["Lab"]
    assert predictions["Lab"] is predictions["lab"] is next(iter(predictions.values()))


def test_what_is_asked_for_under_two_names_is_predicted_once(trace):
    asked = resolve_targets(["h100-sxm", "l40s", "H100"], ["8xh200-sxm", "8xh200-sxm", "4xh200-sxm"])
    assert [target.label for target in asked] == ["h100-sxm", "l40s", "8xh200-sxm", "4xh200-sxm"]


def test_predictions_show_themselves_as_a_table(trace):
    found = tk.predict(trace, gpu=["h100-sxm", "l40s"])
    lines = repr(found).splitlines()
    (head,) = [line for line in lines if "90 % interval" in line]
    rows = {line.split()[0]: line for line in lines[lines.index(head) + 1 :] if line.strip()}
    assert {"measured", "h100-sxm", "l40s"} <= set(rows)
    assert format_duration(found["l40s"].step.step_time_us) in rows["l40s"]
    assert "<table" in found._repr_html_()


def test_predictions_are_a_frame(trace):
    found = tk.predict(trace, gpu=["h100-sxm", "l40s"])
    table = found.to_polars()
    assert table["gpu"].to_list()[1:] == ["h100-sxm", "l40s"]
    assert table["step_time_us"].to_list()[1:] == [one.step.step_time_us for one in found.targets]
    pytest.importorskip("pandas")
    assert found.to_pandas()["step_time_us"].to_list() == table["step_time_us"].to_list()


@pytest.mark.parametrize("names", [{"gpu": "l40s", "cluster": None}, {"gpu": None, "cluster": "8xl40s"}])
def test_none_is_as_good_as_leaving_a_name_out(trace, names):
    assert len(tk.predict(trace, **names, what_if=None)) == 1
    assert set(tk.sweep(trace, **names, world_size=None).table["ranks"]) == {1, 2, 4, 8}


def test_a_target_has_to_be_named(trace):
    for verb in (tk.predict, tk.sweep):
        with pytest.raises(TracekitError, check=has_code("no-target")):
            verb(trace)


def test_a_gpu_that_its_cluster_stands_for_is_said(trace):
    found = tk.predict(trace, gpu="H100 SXM", cluster="8xh100-sxm")
    assert list(found) == ["8xh100-sxm"]
    assert "gpu-also-requested" in list_codes(found["8xh100-sxm"].notes)
    alone = tk.predict(trace, cluster="8xh100-sxm")["8xh100-sxm"]
    assert "gpu-also-requested" not in list_codes(alone.notes)


def test_unknown_and_ambiguous_gpus_are_named(trace):
    with pytest.raises(GpuError, match="h100", check=has_code("gpu-unknown")):
        tk.predict(trace, gpu="h1000")
    with pytest.raises(GpuError, match="a100-sxm-40gb", check=has_code("gpu-ambiguous")):
        tk.predict(trace, gpu="a100")


def test_steps_can_be_chosen(trace):
    assert tk.report(trace, steps="1").source.steps == tk.report(trace, steps=1).source.steps == 1
    assert tk.report(trace, steps="1:2").source.steps == 2
    with pytest.raises(StepError, check=has_code("step-not-found")):
        tk.report(trace, steps="9")
    with pytest.raises(StepError, check=has_code("steps-not-a-range")):
        tk.report(trace, steps="last")


def test_without_a_known_source_shapes_still_predict():
    builder = steps_of_gemms()
    del builder.metadata["deviceProperties"]
    trace = builder.load()
    unknown = tk.predict(trace, gpu="h100-sxm")["h100-sxm"]
    assert unknown.coverage.modelled == pytest.approx(100)
    assert "source-gpu-unknown" in list_codes(unknown.notes)
    assert tk.predict(trace, gpu="h100-sxm", source_gpu=SOURCE)["h100-sxm"].gpu == "h100-sxm"


def test_a_gpu_that_the_trace_names_but_nobody_knows_is_said():
    trace = TraceBuilder({**A100, "name": "Voodoo 5", "numSms": 2}).kernel("gemm", 10, 50, launch=0).load()
    report = tk.report(trace)
    assert report.source.gpu is None
    assert any("Voodoo 5" in str(warning) for warning in report.warnings)


def test_a_precision_that_the_target_lacks_is_said(trace):
    notes = tk.predict(trace, gpu="v100-sxm-32gb")["v100-sxm-32gb"].notes
    assert find_message(notes, "dtype-unsupported").values["dtype"] == "bf16"


@pytest.mark.parametrize(
    ("kernel", "dtype", "runs_as"),
    [
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
            "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm100TmaUmmaWarpSpecializedBlockScaled<5, "
            "2, 2>, cute::tuple<cute::C<256>, cute::C<128>, cute::C<256>>, cute::tuple<cutlass::float_e2m1_t, "
            "cutlass::float_ue4m3_t>, cute::tuple<cutlass::float_e2m1_t, cutlass::float_ue4m3_t>>>>",
            "nvfp4",
            "fp8",
        ),
        (
            "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_"
            "schedP2x1x2x3_biasM_bN_tmaOpt_clmp_dynBatch_sm100f",
            "mxfp8",
            "fp8",
        ),
        ("bmm_Bfloat16_E2m1E2m1_Fp32_Ab16_Bb16_t128x8x512_s5_et128x8_m128x8x64_c1x1x1_rM_TN_transOut", "nvfp4", "fp8"),
    ],
)
def test_formats_of_blackwell_do_not_run_on_hopper_and_ada(kernel, dtype, runs_as):
    """Below Blackwell there are no units for block-scaled formats: the estimate is in fp8, and says so."""
    builder = TraceBuilder(None).op("aten::mm", 0, 20, dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
    predictions = tk.predict(
        builder.kernel(kernel, 20, 100, launch=5).load(), gpu=["h100-sxm", "l40s", "b200"], source_gpu="b200"
    )
    for gpu in ("h100-sxm", "l40s"):
        said = find_message(predictions[gpu].notes, "dtype-unsupported").values
        assert (said["dtype"], said["runs_as"]) == (dtype, runs_as)
    assert "dtype-unsupported" not in list_codes(predictions["b200"].notes)


def test_the_power_of_a_laptop_is_said(trace):
    notes = tk.predict(trace, gpu="rtx-4060-laptop")["rtx-4060-laptop"].notes
    assert find_message(notes, "gpu-in-laptop").values["power_w"] == 115


def test_kernels_without_shapes_are_scaled_and_said():
    trace = TraceBuilder().op("aten::add", 0, 30).kernel("vectorized_elementwise_kernel", 20, 100, launch=10).load()
    prediction = tk.predict(trace, gpu="h100-sxm")["h100-sxm"]
    assert prediction.coverage.scaled == pytest.approx(100)
    assert prediction.kernels["time_us"][0] < 100


def test_collectives_are_kept_and_said():
    builder = TraceBuilder().kernel("gemm", 10, 100, launch=0).kernel("ncclDevKernel_AllReduce", 111, 300, launch=20)
    prediction = tk.predict(builder.load(), gpu="h100-sxm")["h100-sxm"]
    assert prediction.kernels["time_us"][1] == 300
    assert prediction.step.exposed_comm_us == pytest.approx(300)
    assert "collectives-kept" in list_codes(prediction.notes)


def test_kernels_twice_as_slow_never_shorten_the_step(trace):
    run = prepare_run(trace)
    measured_us = (run.kernels["dur_ns"] / 1e3).to_numpy()
    times = [run.program.replay_step(measured_us * factor).step_time_us for factor in np.linspace(0, 3, 13)]
    assert times == sorted(times)


def test_report_lists_what_takes_the_time(trace):
    report = tk.report(trace)
    assert report.breakdown[0].family == "gemm"
    assert report.kernels[0].time_us == pytest.approx(3600)
    assert report.kernels[0].count == pytest.approx(4)
    # 2 * 4096^3 FLOPs in 900 us are 153 TFLOP/s of 312.
    assert report.kernels[0].utilization == pytest.approx(100 * 152.7 / 312, rel=0.01)
    for bar in report.bars:
        assert sum(time for _, time in bar.parts) == pytest.approx(bar.step_time_us, rel=1e-6)


def test_a_files_name_is_no_trace():
    for ask in (tk.report, partial(tk.predict, gpu="l4"), partial(tk.sweep, gpu="l4")):
        with pytest.raises(TracekitError, match=r"'trace.json' is no trace. Load it: tk.load"):
            ask("trace.json")
