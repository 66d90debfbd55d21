"""``tracekit calibrate``: from a result or a trace to every later prediction, and out again."""

import json

import pytest

from predictors import load_gpu, predict
from tracekit import calibration
from tracekit.testing import TraceBuilder

PRODUCTS = [{"family": "gemm", "dtype": "fp32", "m": m, "n": 512, "k": 512} for m in (256, 512, 1024, 2048, 4096, 8192)]


@pytest.fixture(autouse=True)
def _own_calibrations(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def result(tmp_path):
    """Products that take a third longer than predicted; the last one was measured too unsteadily to count."""
    import polars as pl

    usual = predict(pl.DataFrame(PRODUCTS), "t4")["time_us"]
    rows = [{**row, "measured_us": 4 / 3 * time, "spread": 0.01} for row, time in zip(PRODUCTS, usual, strict=True)]
    rows[-1]["spread"] = 0.5
    gpu = {"name": "Tesla T4", "sms": 40, "memory_bytes": 15843721216, "compute_capability": "7.5"}
    facts = {"format": 1, "gpu": gpu, "software": {"torch": "2.9.0"}, "clocks": {"driver_version": "580.1"}}
    path = tmp_path / "RESULT.json"
    path.write_text(json.dumps({**facts, "kernels": rows, "skipped": {}}))
    return path


@pytest.fixture
def trace(tmp_path):
    builder = TraceBuilder()
    for start, rows in ((0, 512), (200, 1024)):
        builder.op("aten::mm", start, 30, dims=[[rows, 512], [512, 512]], types=["float", "float"])
        builder.kernel("ampere_sgemm_128x64_nn", start + 20, 100, launch=start + 10)
    return builder.save(tmp_path / "trace.json.gz")


def step_us(run, trace, gpu, *options):
    (target,) = json.loads(run("predict", trace, "--gpu", gpu, "--json", *options)[1])["targets"]
    return target["kernel_time_us"], [note["code"] for note in target["notes"]]


@pytest.mark.parametrize(("short_us", "kept"), [(3, "kept: 2 "), (3.5, "kept: 3 ")])
def test_times_in_whole_microseconds_count_where_they_tell_enough(run, tmp_path, short_us, kept):
    builder = TraceBuilder()
    for start, rows, time in ((0, 512, 100), (200, 1024, 150), (400, 8, short_us)):
        builder.op("aten::mm", start, 30, dims=[[rows, 512], [512, 512]], types=["float", "float"])
        builder.kernel("ampere_sgemm_128x64_nn", start + 20, time, launch=start + 10)
    code, out, _ = run("calibrate", "--trace", builder.save(tmp_path / "trace.json.gz"))
    assert (code, kept in out) == (0, True)


def test_a_result_changes_predictions_until_it_is_removed(run, result, trace):
    before, notes = step_us(run, trace, "t4")
    assert "calibration-used" not in notes
    code, out, err = run("calibrate", result)
    assert (code, err) == (0, "")
    for expected in ("5 kernels measured on t4", "bench, kept since", "torch 2.9.0", "driver 580.1", "gemm fp32"):
        assert expected in " ".join(out.split())
    after, notes = step_us(run, trace, "t4")
    assert after > 1.1 * before
    assert "calibration-used" in notes
    assert step_us(run, trace, "t4", "--no-calibration")[0] == before
    assert step_us(run, trace, "a10")[1].count("calibration-of-other-gpu") == 1
    kept = json.loads(run("calibrate", "--list", "--json")[1])["calibrations"]
    assert [(one["gpu"], one["origin"], one["kernels"]) for one in kept] == [("t4", "bench", 5)]
    assert "t4" in run("calibrate", "--list")[1]
    assert "t4" in run("calibrate", "--remove", "Tesla T4")[1]
    assert step_us(run, trace, "t4")[0] == before
    assert "No GPU is calibrated" in run("calibrate", "--list")[1]


def test_the_bench_scripts_flash_attention_says_nothing_of_other_kernels(run, tmp_path):
    """Half as fast as predicted on an H100, where FlashAttention 3 is another program."""
    import polars as pl

    shape = {"family": "attention", "dtype": "bf16", "batch": 4, "heads": 16, "head_dim": 128, "causal": True}
    rows = [
        shape | {"q_len": n, "kv_len": n, "paged": False, "framework": "fa2"} for n in (512, 1024, 2048, 4096, 8192)
    ]
    usual = predict(pl.DataFrame(rows), "h100-sxm")["time_us"]
    told = [{**row, "measured_us": 2 * time, "spread": 0.01} for row, time in zip(rows, usual, strict=True)]
    gpu = {"name": "NVIDIA H100 80GB HBM3", "sms": 132, "memory_bytes": 85031714816, "compute_capability": "9.0"}
    path = tmp_path / "RESULT.json"
    path.write_text(json.dumps({"format": 1, "gpu": gpu, "kernels": told}))
    assert run("calibrate", path)[0] == 0
    (kept,) = calibration.load_all()
    asked = pl.DataFrame([rows[3] | {"framework": stack} for stack in ("fa2", "fa3")])
    now = predict(asked, "h100-sxm", calibrations={load_gpu("h100-sxm"): kept.kernels})["time_us"]
    fa2, fa3 = now / predict(asked, "h100-sxm")["time_us"]
    assert (fa2, fa3) == (pytest.approx(2, rel=0.1), 1)


def misleading(result, beside=()):
    """A result of softmaxes of which some take twice as long for no reason, and of kernels beside them."""
    import polars as pl

    many = [2**n for n in range(6, 16)]
    sizes = [{"family": "softmax", "dtype": "fp32", "rows": n, "cols": 4096, "bytes": 32768 * n} for n in many]
    kernels = [*beside, *sizes]
    usual = predict(pl.DataFrame(kernels), "t4")["time_us"].to_list()
    times = [4 / 3] * len(beside) + [1, 1, 1, 2, 2] * 2
    rows = [{**row, "measured_us": x * us, "spread": 0.0} for row, x, us in zip(kernels, times, usual, strict=True)]
    result.write_text(json.dumps({**json.loads(result.read_text()), "kernels": rows}))
    return result


def test_kernels_that_tell_the_others_wrong_are_left_out(run, result):
    code, out, _ = run("calibrate", misleading(result, PRODUCTS), "--json")
    told = json.loads(out)
    assert (code, told["families"], told["kernels"]) == (0, ["gemm"], len(PRODUCTS))
    assert {row["law"]: row["sharpens"] for row in told["errors_pct"]} == {"softmax": False, "gemm fp32": True}


def test_what_can_not_be_kept_leaves_nothing_behind(run, result):
    (calibration.get_directory() / "t4.json").mkdir(parents=True)
    code, _, err = run("calibrate", result)
    assert (code, err.count("\n"), "[output-not-written]" in err) == (1, 1, True)
    assert [path.name for path in calibration.get_directory().iterdir()] == ["t4.json"]


def test_where_all_are_left_out_nothing_is_kept(run, result):
    code, _, err = run("calibrate", misleading(result))
    assert (code, "[calibration-unhelpful]" in err) == (1, True)
    assert not json.loads(run("calibrate", "--list", "--json")[1])["calibrations"]


def test_a_single_kernel_of_its_kind_is_left_out(run, tmp_path):
    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
    builder.kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10)
    code, _, err = run("calibrate", "--trace", builder.save(tmp_path / "trace.json.gz"))
    assert (code, "[calibration-unhelpful]" in err) == (1, True)


def test_a_trace_calibrates_the_gpu_it_was_recorded_on(run, trace):
    code, out, _ = run("calibrate", "--trace", trace, "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["gpu"], facts["origin"], facts["kernels"]) == ("a100-sxm-80gb", "trace", 2)
    assert facts["errors_pct"][0]["after"] is None
    assert "its GPU as a100-sxm-80gb" in run("calibrate", "--trace", trace, "--gpu", "l40s")[2]
    assert [one["gpu"] for one in json.loads(run("calibrate", "--list", "--json")[1])["calibrations"]] == [
        "a100-sxm-80gb",
        "l40s",
    ]


def test_a_slice_of_a_gpu_is_named_by_the_verbs_own_option(run, result):
    found = json.loads(result.read_text())
    result.write_text(json.dumps(found | {"gpu": found["gpu"] | {"sms": 20}}))
    code, _, err = run("calibrate", result)
    assert (code, "Name the GPU with --gpu" in err) == (1, True)
    assert run("calibrate", result, "--gpu", "t4")[0] == 0


def test_bench_prints_a_script(run, tmp_path):
    code, out, _ = run("calibrate", "--bench")
    assert code == 0
    compile(out, "bench.py", "exec")
    assert run("calibrate", "--bench", "-o", tmp_path / "bench.py")[0] == 0
    assert (tmp_path / "bench.py").read_text() == out
    assert "[output-exists]" in run("calibrate", "--bench", "-o", tmp_path / "bench.py")[2]


@pytest.mark.parametrize("text", ["{", '{"format": 9}', '{"format": 1, "kernels": []}'])
def test_what_is_no_result_is_one_line(run, tmp_path, text):
    path = tmp_path / "RESULT.json"
    path.write_text(text)
    code, _, err = run("calibrate", path)
    assert code == 1
    assert "[bench-result-invalid]" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("measured_us", -1), ("measured_us", float("nan")), ("m", 1e300), ("n", "many"), ("k", [512]), ("spread", None)],
)
def test_what_was_edited_by_hand_is_one_line(run, result, key, value):
    facts = json.loads(result.read_text())
    facts["kernels"][2][key] = value
    result.write_text(json.dumps(facts))
    code, _, err = run("calibrate", result)
    assert (code, err.count("\n")) == (1, 1)
    assert "[bench-result-invalid]" in err


def test_other_mistakes_are_said(run, tmp_path, trace, result):
    assert "[bench-result-unreadable]" in run("calibrate", tmp_path / "none.json")[2]
    assert "[calibration-not-found]" in run("calibrate", "--remove", "t4")[2]
    assert run("calibrate")[0] == 2
    assert run("calibrate", result, "--list")[0] == 2
    assert run("calibrate", result, "-o", tmp_path / "kept.json")[0] == 2
    run("calibrate", result)
    (tmp_path / "data/tracekit/calibrations/t4.json").write_text('{"format": 1}')
    assert "[calibration-damaged]" in run("predict", trace, "--gpu", "t4")[2]
    assert run("calibrate", "--remove", "t4")[0] == 0


def test_a_gpu_of_a_file_is_kept_by_its_name(run, trace, tmp_path):
    from predictors.gpu_names import GPU_FILES

    own = tmp_path / "own-gpu.toml"
    own.write_text((GPU_FILES / "t4.toml").read_text())
    assert load_gpu(str(own)).slug == "own-gpu"
    run("calibrate", "--trace", trace, "--gpu", own)
    assert "calibration-used" in step_us(run, trace, own, "--source-gpu", "a100-sxm-80gb")[1]
    assert "calibrated with" not in step_us(run, trace, "l40s")[1]
