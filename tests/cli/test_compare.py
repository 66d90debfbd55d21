"""``tracekit compare`` as a user and as CI meet it."""

import json

import pytest

from tests.report.test_comparison import H100
from tracekit.testing import TraceBuilder


def save(path, mm_us, device=H100):
    builder = TraceBuilder(device).op("aten::mm", 0, 10, dims=[[4096, 4096], [4096, 4096]], types=["float", "float"])
    builder.kernel("sgemm", 10, mm_us, launch=2).call("cudaDeviceSynchronize", 12, mm_us + 2)
    return builder.save(path)


@pytest.fixture
def traces(tmp_path):
    return save(tmp_path / "before.json.gz", 1000), save(tmp_path / "after.json.gz", 1100)


def test_two_traces(run, traces, tmp_path):
    code, out, _ = run("compare", *traces)
    assert code == 0
    assert "A  before: 1.01 ms" in out
    assert "B  after: 1.11 ms, 9.86 % longer" in out
    code, out, _ = run("compare", *traces, "--json", "-o", tmp_path / "c.json")
    data = json.loads(out)
    assert data == json.loads((tmp_path / "c.json").read_text())
    assert data["matched"][0]["change_us"] == pytest.approx(100)


def test_the_summary_of_a_merge_request(run, traces, tmp_path):
    assert run("compare", *traces, "-o", tmp_path / "c.md")[0] == 0
    lines = (tmp_path / "c.md").read_text().splitlines()
    assert lines[0] == "# after: 1.11 ms, 9.86 % longer"
    assert "| gemm | 1.00 ms | 1.10 ms | +100 µs | 1.10x |" in lines
    (kernel,) = (line for line in lines if line.startswith("| aten::mm "))
    assert kernel.endswith(" 4096×4096, 4096×4096 | 1.00 ms | 1.10 ms | +100 µs | 1.10x |")


def test_of_what_traces_say_of_themselves_only_what_bears_on_the_run_is_compared(run, tmp_path):
    paths = []
    for run_of, cuda in enumerate((12040, 13000)):
        builder = TraceBuilder(H100).op("aten::mm", 0, 10).kernel("sgemm", 10, 1000, launch=2)
        builder.metadata |= {"displayTimeUnit": ("ms", "us")[run_of], "schemaVersion": run_of}
        builder.metadata["cuda_runtime_version"] = cuda
        paths.append(builder.save(tmp_path / f"{run_of}.json"))
    recorded = json.loads(run("compare", *paths, "--json")[1])["recorded"]
    assert [key for key, *_ in recorded] == ["cuda_runtime_version"]


def test_it_fails_ci_above_a_limit(run, traces):
    code, _, err = run("compare", *traces, "--fail-above", "5%")
    assert (code, "--fail-above" in err) == (3, True)
    assert run("compare", *traces, "--fail-above", "15")[0] == 0
    assert run("compare", *reversed(traces), "--fail-above", "5%")[0] == 0
    for unmeant in ("much", "-1", "nan"):
        assert run("compare", *traces, "--fail-above", unmeant)[0] == 2


def test_a_limit_that_two_runs_can_not_tell_fails(run, traces, tmp_path):
    builder = TraceBuilder(H100).op("aten::bmm", 0, 10, dims=[[8, 64, 64], [8, 64, 64]], types=["float", "float"])
    other = builder.kernel("sgemm", 10, 500, launch=2).save(tmp_path / "other.json.gz")
    prediction = tmp_path / "prediction.json"
    run("predict", traces[0], "--gpu", "t4", "-o", prediction)
    for a, b in ((traces[0], other), (prediction, traces[1])):
        code, out, err = run("compare", a, b, "--fail-above", "5%")
        assert (code, "--fail-above can't be told of" in err) == (1, True)
        assert "where the time goes" in out


def test_a_prediction_and_the_trace_recorded_since(run, traces, tmp_path):
    output = tmp_path / "prediction.json"
    assert run("predict", traces[0], "--gpu", "h200", "--gpu", "t4", "-o", output)[0] == 0
    since = save(tmp_path / "since.json.gz", 800, device=H100 | {"name": "NVIDIA H200", "numSms": 132})
    code, out, _ = run("compare", output, since, "--gpu", "h200")
    assert (code, "the prediction is off by" in out) == (0, True)
    code, out, _ = run("compare", output, traces[1], "--gpu", "h200")
    assert (code, "the prediction is off by" in out) == (0, False)
    assert "the prediction is for h200-sxm, the measurement of h100-sxm" in " ".join(out.split())
    code, _, err = run("compare", output, traces[1])
    assert (code, "--gpu" in err) == (1, True)
