"""Several traces, ranks, standard input and the cache on the command line."""

import json
import os
import subprocess
import sys

import pytest

from tracekit.messages.traces import RANK_MISSING
from tracekit.testing import TraceBuilder


@pytest.fixture
def job(tmp_path):
    """A directory with ranks 1 to 3 of 4; each runs a kernel of its own."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in (1, 2, 3):
        builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
        builder.metadata = {"distributedInfo": {"rank": rank, "world_size": 4}, **builder.metadata}
        builder.kernel(f"ampere_sgemm_{rank}", 20, 100, launch=10).save(folder / f"trace{rank}.json.gz")
    return folder


@pytest.fixture
def keeps_small_files(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tracekit.ingest.cache.SMALLEST_FILE_BYTES", 0)


def test_a_directory_gives_all_its_ranks_together(run, job):
    report = json.loads(run("report", job, "--json")[1])
    assert {kernel["name"] for kernel in report["kernels"]} == {f"ampere_sgemm_{rank}" for rank in (1, 2, 3)}
    assert (report["source"]["rank"], report["source"]["measured"], report["source"]["ranks"]) == (None, 3, 4)
    assert [rank["rank"] for rank in report["ranks"]] == [1, 2, 3]
    assert str(RANK_MISSING(rank=0, world_size=4)) in [warning["text"] for warning in report["warnings"]]
    assert "ranks-not-joined" in [warning["code"] for warning in report["warnings"]]
    assert "3 of 4 ranks together" in " ".join(run("report", job)[1].split())


@pytest.mark.parametrize("inputs", [["{job}"], ["{job}/*.gz"], ["{job}/trace1.json.gz", "{job}/trace3.json.gz"]])
def test_ranks_chooses(inputs, run, job):
    data = json.loads(run("report", *(text.format(job=job) for text in inputs), "--ranks", 3, "--json")[1])
    assert data["kernels"][0]["name"] == "ampere_sgemm_3"


@pytest.mark.parametrize("verb", [("info",), ("report",), ("predict", "--gpu", "t4")])
def test_every_verb_takes_several(verb, run, job):
    code, out, err = run(*verb, *sorted(job.iterdir()), "--ranks", 2)
    assert (code, err) == (0, "")
    unwrapped = "".join(out.split())  # a line may break anywhere in a long path
    assert "trace2.json.gz" in unwrapped
    assert "rank2of4" in unwrapped


def test_one_file_says_nothing_of_others(run, job):
    assert "--ranks" not in run("info", job / "trace1.json.gz", "--json")[1]


def test_a_rank_that_was_not_given_is_one_line(run, job):
    code, out, err = run("info", job, "--ranks", 0)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "1-3" in err


def test_memory_is_checked_before_anything_is_read(run, job):
    assert run("info", "missing.json", "--memory", "lots")[0] == 2
    assert run("info", job, "--memory", "2G")[0] == 0


def test_standard_input(job):
    code = [sys.executable, "-m", "tracekit", "info", "-", "--json"]
    with (job / "trace2.json.gz").open("rb") as trace:
        done = subprocess.run(code, stdin=trace, capture_output=True, check=True)
    source = json.loads(done.stdout)["source"]
    assert (source["trace"], source["rank"]) == ("<stdin>", 2)


@pytest.mark.usefixtures("keeps_small_files")
def test_cache_shows_and_clears(run, job, tmp_path):
    assert json.loads(run("cache", "--json")[1])["entries"] == 0
    run("info", job, "--no-cache")
    assert json.loads(run("cache", "--json")[1])["entries"] == 0
    run("info", job)
    shown = json.loads(run("cache", "--json")[1])
    assert shown["entries"] == 3
    assert shown["directory"] == str(tmp_path / "cache" / "tracekit" / "traces")
    assert shown["size_bytes"] > 0
    code, out, err = run("cache")
    assert (code, err) == (0, "")
    assert "3 decoded traces," in out
    assert shown["directory"] in out
    assert "removed  3 decoded traces," in run("cache", "--clear")[1]
    assert json.loads(run("cache", "--json")[1])["entries"] == 0


@pytest.mark.usefixtures("keeps_small_files")
def test_the_same_is_said_with_and_without_the_cache(run, job):
    first, second = (run("report", job, "--json")[1] for _ in range(2))
    assert first == second == run("report", job, "--json", "--no-cache")[1]


def test_tests_keep_out_of_the_users_cache():
    assert "pytest" in os.environ["XDG_CACHE_HOME"]


def test_cache_help_has_an_example(run):
    assert "Example: tracekit cache" in run("cache", "--help")[1]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a named pipe")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("config.json", ("predict", "trace.json", "--gpu", "h100-sxm", "--model-config", "{pipe}")),
        ("model.py", ("capture", "{pipe}:main", "-o", "out.json.gz")),
        ("lab.toml", ("predict", "trace.json", "--gpu", "{pipe}")),
        ("bench.json", ("calibrate", "{pipe}")),
        ("counts.csv", ("shard", "2*1000x64:4", "--cluster", "4xh100-sxm", "--indices", "{pipe}")),
        ("all.json", ("info", "{folder}/a*.json")),
    ],
)
def test_a_pipe_that_nobody_writes_is_refused_unread(run, tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    pipe = tmp_path / name
    os.mkfifo(pipe)
    TraceBuilder().op("aten::mm", 0, 30).kernel("ampere_sgemm_64x32", 20, 100, launch=10).save(tmp_path / "trace.json")
    code, _, err = run(*(word.format(pipe=pipe, folder=tmp_path) for word in words))
    assert code in (1, 2)
    assert err.count("\n") == 1
