"""Damaged and hostile files end in a documented way, whatever is asked of them."""

import json
from pathlib import Path

import pytest

import tracekit
from tests.codes import list_codes
from tracekit.messages.traces import (
    ACTIVITY_SIZES_IMPOSSIBLE,
    EVENTS_UNTIMED,
    RANK_BEYOND_WORLD,
    RANK_IMPOSSIBLE,
    STEP_MARKS_UNNUMBERED,
)
from tracekit.testing import TraceBuilder
from tracekit.workload import steps

HOSTILE = Path(__file__).parent.parent / "ingest" / "hostile"
VERBS = {"info": (), "report": (), "predict": ("--gpu", "h100-sxm"), "doctor": ()}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("file", sorted(path.name for path in HOSTILE.iterdir()))
def test_hostile_files_end_in_a_result_or_in_one_line(file, verb, run):
    code, out, err = run(verb, HOSTILE / file, *VERBS[verb])
    assert (code, bool(out), err.count("\n")) in [(0, True, 0), (1, False, 1)]
    assert "bug in tracekit" not in err


UNTIMED = {"no duration": {"dur": None}, "overflowed": {"dur": 1e13}, "zeros": {"ts": 0, "dur": 0}, "far": {"ts": 9e18}}


@pytest.fixture(scope="module")
def kernel_times_us():
    """Of the trace without a category of events."""
    return {}


@pytest.mark.parametrize("times", UNTIMED)
@pytest.mark.parametrize("category", ["cuda_sync", "overhead", "user_annotation", "cpu_op", "gpu_memset"])
def test_a_table_without_a_usable_time_is_as_good_as_none(category, times, run, tmp_path, kernel_times_us):
    document = json.loads((HOSTILE / "dur_zero_all.json").read_text())
    kept = [event for event in document["traceEvents"] if event["cat"] != category]
    event = {"ph": "X", "cat": category, "name": "alone", "pid": 0, "tid": 7, "ts": 1500, "dur": 5, "args": {}}

    def report(events):
        (tmp_path / "trace.json").write_text(json.dumps(document | {"traceEvents": events}))
        return json.loads(run("report", tmp_path / "trace.json", "--json")[1])

    found = report([*kept, event | UNTIMED[times]])
    assert str(EVENTS_UNTIMED(events=1)) in [warning["text"] for warning in found["warnings"]]
    if category not in kernel_times_us:
        kernel_times_us[category] = report(kept)["source"]["kernel_time_us"]
    assert found["source"]["kernel_time_us"] == kernel_times_us[category]


@pytest.mark.parametrize("times", UNTIMED)
@pytest.mark.parametrize("verb", VERBS)
def test_a_trace_without_any_usable_time_is_one_line(verb, times, run, tmp_path):
    document = json.loads((HOSTILE / "dur_zero_all.json").read_text())
    document["traceEvents"] = [event | UNTIMED[times] for event in document["traceEvents"]]
    (tmp_path / "trace.json").write_text(json.dumps(document))
    code, out, err = run(verb, tmp_path / "trace.json", *VERBS[verb])
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "[events-without-times]" in err


@pytest.mark.parametrize("rank", [2**70, 2**63, 2**31, -1, 1.5, "x", [1], True])
@pytest.mark.parametrize("key", ["rank", "world_size"])
def test_a_rank_that_cannot_be_is_left_out_and_said(key, rank):
    builder = TraceBuilder().kernel("gemm", 20, 10, launch=0)
    builder.metadata["distributedInfo"] = {"rank": 3, "world_size": 4} | {key: rank}
    trace = builder.load().rank()
    assert (trace.rank, trace.world_size) == ((None, 4) if key == "rank" else (3, 1))
    assert RANK_IMPOSSIBLE(key=key, value=repr(rank)) in trace.warnings
    assert tracekit.predict(builder.load(), gpu="h100-sxm").targets


def test_a_rank_beyond_the_world_is_said():
    builder = TraceBuilder().kernel("gemm", 20, 10, launch=0)
    builder.metadata["distributedInfo"] = {"rank": 8, "world_size": 4}
    assert RANK_BEYOND_WORLD(rank=8, world_size=4) in builder.load().rank().warnings


def test_files_named_like_the_rank_of_no_machine_are_asked_which_they_are(run, tmp_path):
    for number in (999_999_999, 999_999_998):
        TraceBuilder().kernel("gemm", 20, 10, launch=0).save(tmp_path / f"trace_rank{number}.json")
    code, _, err = run("info", tmp_path)
    assert (code, err.count("\n")) == (1, 1)
    assert "[ranks-ambiguous]" in err


@pytest.mark.parametrize("number", ["9" * 400, "9" * 19, "-1", "", "x", "٣"])
@pytest.mark.parametrize("verb", VERBS)
def test_step_marks_without_a_usable_number_are_left_out_and_said(verb, number, run, tmp_path):
    builder = TraceBuilder().step(7, 0, 100).kernel("gemm", 20, 10, launch=10)
    builder.kernel("gemm", 50, 10, launch=40)
    builder.annotation(f"ProfilerStep#{number}", 200, 100).kernel("gemm", 220, 10, launch=210)
    assert STEP_MARKS_UNNUMBERED(marks=1) in builder.load().rank().warnings
    code, _, err = run(verb, builder.save(tmp_path / "trace.json"), *VERBS[verb])
    assert (code, err) == (0, "")
    assert steps.find_steps(builder.load().rank())["step"].to_list() == [7]


@pytest.mark.parametrize("given", [[-1, 1, 1], [256, -999, 1], [-8, -8, 1], [-(2**40)] * 3, [2**62] * 3, [2**32, 1, 1]])
@pytest.mark.parametrize("key", ["grid", "block"])
@pytest.mark.parametrize("on_call", [False, True])
def test_a_grid_that_cannot_be_is_left_out_and_said(on_call, key, given):
    geometry = {"grid": [8, 1, 1], "block": [128, 1, 1]} | {key: given}
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>()"
    )
    builder = TraceBuilder().op("aten::add", 0, 30).kernel(name, 20, 10, launch=10, **geometry)
    if on_call:
        builder.events[1]["args"] |= geometry
    trace = builder.load()
    column, words = ("blocks", "blocks") if key == "grid" else ("threads_per_block", "threads per block")
    assert trace.rank().activities[column].to_list() == [None]
    assert ACTIVITY_SIZES_IMPOSSIBLE(column=words, events=1) in trace.rank().warnings
    [predicted] = tracekit.predict(trace, gpu="h100-sxm").targets
    assert predicted.step.step_time_us < 1000


@pytest.mark.parametrize("key", ["bytes", "registers per thread", "shared memory"])
def test_negative_sizes_are_left_out_and_said(key):
    trace = TraceBuilder().kernel("Memcpy HtoD", 20, 10, launch=10, kind="gpu_memcpy", **{key: -(2**40)}).load()
    assert "activity-sizes-impossible" in list_codes(trace.rank().warnings)
    assert tracekit.predict(trace, gpu="h100-sxm").targets


@pytest.mark.parametrize("length", [250, 255])
def test_a_name_may_be_as_long_as_the_file_system_allows(length, run, tmp_path):
    path = TraceBuilder().kernel("gemm", 20, 10, launch=0).save(tmp_path / ("a" * (length - 5) + ".json"))
    code, _, err = run("info", path)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(12, "x"), ImportError("lib.so: failed to map segment from x")]
)
def test_a_lack_of_memory_is_one_line(error, run, monkeypatch, tmp_path):
    def fail(*args, **options):
        raise RuntimeError from error

    monkeypatch.setattr("tracekit.ingest.load", fail)
    code, out, err = run("info", tmp_path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "not enough memory" in err


LONG = "9" * 30


@pytest.mark.parametrize(
    "name",
    [
        f"ampere_sgemm_{'9' * 5000}x64_nn",
        "ampere_sgemm_0x0_nn",
        "batched_transpose_0x0",
        f"void at::native::vectorized_elementwise_kernel<{LONG}, at::native::CUDAFunctor_add<float>>(int)",
        f"void at::native::elementwise_kernel<128, {LONG}, foo>",
        f"multi_tensor_apply_kernel<TensorListMetadata<{LONG}>, AdamFunctor<float, 4, 4, 1>>",
        f"void softmax_warp_forward<float, float, float, {LONG}, false, false>(float*)",
        f"cutlass_80_tensorop_f16_s16816gemm_{LONG}x{LONG}_32x4_nn_align8",
        f"ampere_sgemm_{LONG}x{LONG}_nn",
        f"batched_transpose_{LONG}x{LONG}",
    ],
)
def test_numbers_in_kernel_names_may_have_any_length(name):
    builder = TraceBuilder().op("aten::x", 0, 50, dims=[[64, 32], [32, 16]], types=["float", "float"])
    trace = builder.kernel(name, 20, 10, launch=10, grid=[8, 1, 1], block=[128, 1, 1]).load()
    assert tracekit.predict(trace, gpu="h100-sxm").targets


@pytest.mark.parametrize("name", [f"execute_context_1({LONG})_generation_1({LONG})", f"step[DECODE bs={LONG} toks=1]"])
def test_numbers_of_batches_may_have_any_length(name):
    builder = TraceBuilder().annotation(name, 0, 50).kernel("gemm", 20, 10, launch=10)
    builder.annotation(name, 60, 50).kernel("gemm", 90, 10, launch=70)
    assert tracekit.report(builder.load()).source.kernels == 2


@pytest.mark.parametrize("file", ["corr_collide.json", "dur_zero_all.json", "pf_coverage_sums_to_0.json"])
def test_coverage_adds_up_to_all_where_no_gpu_time_is_in_a_step(file):
    [target] = tracekit.predict(tracekit.load(HOSTILE / file), gpu="h100-sxm").targets
    coverage = target.coverage
    assert coverage.modelled + coverage.scaled + coverage.unknown == pytest.approx(100)
    known = tracekit.report(tracekit.load(HOSTILE / file)).coverage
    assert known.work + known.family + known.unknown == pytest.approx(100)


@pytest.mark.parametrize("verb", ["info", "report", "predict"])
def test_a_model_config_that_is_missing_is_one_line(verb, run, tmp_path):
    trace = TraceBuilder().kernel("gemm", 20, 10, launch=0).save(tmp_path / "trace.json")
    code, out, err = run(verb, trace, *VERBS[verb], "--model-config", tmp_path / "none.json")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "[config-unreadable]" in err


@pytest.mark.parametrize("verb", ["predict", "sweep", "export"])
def test_a_trace_of_a_host_that_is_missing_is_one_line(verb, run, tmp_path):
    trace = TraceBuilder().kernel("gemm", 20, 10, launch=0).save(tmp_path / "trace.json")
    written = ["-o", tmp_path / "out.csv"] if verb == "export" else []
    given = ["--gpu", "h100-sxm", "--host-from", tmp_path / "none.json", *written]
    code, out, err = run(verb, trace, *given)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "none.json" in err
    assert not (tmp_path / "out.csv").exists()
