"""``tracekit doctor`` and ``tracekit redact`` as a user meets them."""

import json

import pytest

from tracekit.testing import TraceBuilder


@pytest.fixture
def trace(tmp_path):
    builder = TraceBuilder().op("aten::mm", 0, 30).annotation("/home/alice/run", 0, 5)
    return builder.kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10).save(tmp_path / "trace.json.gz")


def test_doctor_prints_a_screen(run, trace):
    code, out, err = run("doctor", trace)
    assert (code, err) == (0, "")
    for expected in ("grade  C", "Shapes", "not recorded", "would help most: record_shapes=True", "profiler.step()"):
        assert expected in out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_doctor_fits_the_screen(run, trace, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = run("doctor", trace)[1]
    table = out[out.index("GPU") : out.index("would help most")]
    assert max(map(len, table.splitlines())) <= width
    assert "…" not in out


def test_doctor_json_holds_the_contract(run, trace):
    code, out, _ = run("doctor", trace, "--json")
    data = json.loads(out)
    assert code == 0
    assert set(data) == {
        "schema_version", "source", "rank", "ranks_read", "ranks_examined", "world_size", "grade", "checks", "best",
        "snippet", "warnings",
    }  # fmt: skip
    assert data["grade"] == "C"
    assert data["best"]["name"] == "shapes"
    for check in data["checks"]:
        assert set(check) == {"name", "title", "status", "evidence", "cost", "cost_pct", "fix", "option"}
        assert check["status"] in ("ok", "warn", "fail")


def test_doctor_reads_one_rank_of_several(run, tmp_path):
    for rank in (0, 1):
        builder = TraceBuilder().op("aten::mm", 0, 30).kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10)
        builder.metadata["distributedInfo"] = {"rank": rank, "world_size": 2}
        builder.save(tmp_path / f"rank{rank}.json")
    code, out, _ = run("doctor", tmp_path, "--ranks", 1, "--no-cache", "--memory", "1G", "--json")
    assert code == 0
    assert json.loads(out)["rank"] == 1
    assert run("doctor", tmp_path, "--ranks", 2)[0] == 1


def test_a_trace_without_gpu_activity_is_one_line(run, tmp_path):
    path = TraceBuilder().op("aten::mm", 0, 30).save(tmp_path / "cpu.json")
    code, out, err = run("doctor", path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "ProfilerActivity.CUDA" in err


def test_redact_says_what_it_removed(run, trace, tmp_path):
    code, out, err = run("redact", trace)
    assert (code, out) == (0, "")
    assert "texts with a path: 1" in err
    assert "trace.redacted.json.gz" in err.replace("\n", "")
    assert (tmp_path / "trace.redacted.json.gz").exists()
    assert run("info", tmp_path / "trace.redacted.json.gz")[0] == 0


def test_redact_does_not_overwrite(run, trace, tmp_path):
    output = tmp_path / "out.json"
    assert run("redact", trace, "-o", output, "-q") == (0, "", "")
    code, _, err = run("redact", trace, "-o", output)
    assert code == 1
    assert "--force" in err
    assert run("redact", trace, "-o", output, "--force")[0] == 0


@pytest.mark.parametrize("verb", ["doctor", "redact"])
def test_help_has_an_example(run, verb):
    code, out, _ = run(verb, "--help")
    assert code == 0
    assert f"Example: tracekit {verb}" in out
