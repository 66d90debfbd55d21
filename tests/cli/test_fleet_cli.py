"""``tracekit predict --engine``: no option is ignored."""

import html
import json
import os
import zipfile

import polars as pl
import pytest

from tests.fleet.test_fleet import worked
from tracekit.format import format_duration
from tracekit.testing import TraceBuilder

OF_PROGRAMS = {
    "--train": "",
    "--compile": "",
    "--tf32": "",
    "--channels-last": "",
    "--cuda-graph": "",
    "--optimizer": "adamw --train",
    "--autocast": "bf16",
    "--seq": "128",
    "--dtype": "bf16",
    "--measured": "run.json",
    "--attention": "eager",
}
"""Options of programs, with a value."""


@pytest.fixture
def job(tmp_path):
    """A folder of two ranks."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        worked(rank, 2).save(folder / f"rank{rank}.json")
    return folder


@pytest.mark.parametrize("flag", OF_PROGRAMS)
def test_options_of_programs_are_refused_for_traces(run, flag):
    told = ("predict", "nowhere", "--engine", "local", "--gpu", "h100-sxm", flag, *OF_PROGRAMS[flag].split())
    code, out, err = run(*told)
    assert (code, out) == (2, "")
    assert "[options-of-programs]" in err


def test_what_takes_all_ranks_in_memory_is_refused(run):
    told = ("predict", "nowhere", "--engine", "local", "--gpu", "h100-sxm", "--unprofiled-step", "1ms")
    code, out, err = run(*told)
    assert (code, out) == (2, "")
    assert "[fleet-option]" in err


def test_one_rank_needs_no_engine(run, job):
    """An engine shares out ranks; one that is named is predicted in one piece, and so is a program."""
    told = ("predict", job, "--gpu", "h100-sxm", "--ranks", "1", "--no-cache", "-q", "--json")
    assert json.loads(run(*told, "--engine", "local")[1])["targets"] == json.loads(run(*told)[1])["targets"]


def test_the_answer_comes_first(run, job, tmp_path, monkeypatch):
    """Speed, dollars and break-even, at prices of the configuration; a file holds no dollars."""
    (tmp_path / "own.toml").write_text("[price]\nh100-sxm = 2\na100-sxm-80gb = 1\n")
    monkeypatch.setenv("TRACEKIT_CONFIG", str(tmp_path / "own.toml"))
    told = ("predict", job, "--engine", "local", "--gpu", "a100-sxm-80gb", "--no-cache", "-q")
    code, screen, _ = run(*told, "-o", tmp_path / "out.json")
    answer = " ".join(screen[: screen.index("\n\n")].split())
    assert (code, answer[:26]) == (0, "2 × NVIDIA A100 SXM4 80 GB")
    assert "At $1.00 an hour" in answer
    assert "it is cheaper below $" in answer
    decision = json.loads((tmp_path / "out.json").read_text())["decision"]
    assert decision["targets"][0]["rank"] == 1
    assert decision["targets"][0]["dollars"] is None
    assert "$" not in (tmp_path / "out.json").read_text()


def test_every_form_has_the_answer(run, job, tmp_path):
    told = ("predict", job, "--engine", "local", "--gpu", "h100-sxm", "--no-cache", "-q", "--force")
    places = {suffix: tmp_path / f"out.{suffix}" for suffix in ("md", "xlsx", "parquet", "csv", "html", "json", "txt")}
    assert run(*told, *(word for place in places.values() for word in ("-o", place)))[0] == 0
    step = json.loads(places["json"].read_text())["targets"][0]["step_time_us"]
    for table in (pl.read_parquet(places["parquet"]), pl.read_csv(places["csv"])):
        assert table.filter(pl.col("gpu") == "h100-sxm")["step_time_us"].to_list() == [pytest.approx(step)]
        assert table.height == 2
    with zipfile.ZipFile(places["xlsx"]) as book:
        assert sum(name.startswith("xl/worksheets/sheet") for name in book.namelist()) == 5
    shown = format_duration(step)
    assert all(shown in places[suffix].read_text() for suffix in ("md", "html", "txt"))


def test_a_store_needs_an_engine(run, trace):
    code, out, err = run("predict", trace, "--gpu", "h100-sxm", "--store", "here")
    assert (code, out, "[store-without-engine]" in err) == (2, "", True)


@pytest.mark.heavy
def test_forms_of_a_fleet(run, job, tmp_path):
    """``--format`` wins over the suffix; ``-`` is standard output; a document holds no directories."""
    told = ("predict", job, "--engine", "local", "--gpu", "h100-sxm", "--no-cache", "-q")
    code, page, err = run(*told, "-o", "-", "--format", "html")
    assert (code, page[:15], err) == (0, "<!doctype html>", "")
    assert run(*told, "-o", "-")[1].startswith("# 2 × NVIDIA H100 SXM5")
    printed = json.loads(run(*told, "--format", "json", "-o", tmp_path / "out.data", "--json")[1])
    assert printed["job"]["source"] == str(job / "rank0.json")
    assert json.loads((tmp_path / "out.data").read_text()) == printed | {
        "job": printed["job"] | {"source": "rank0.json"}
    }
    assert run(*told, "-o", tmp_path / "out.json", "--with-details")[0] == 0
    assert json.loads((tmp_path / "out.json").read_text()) == printed


def test_names_of_unreadable_ranks_leave_out_directories(run, job, tmp_path):
    (job / "rank1.json").write_text("{")
    code, _, _ = run("predict", job, "--engine", "local", "--gpu", "h100-sxm", "--no-cache", "-o", tmp_path / "o.json")
    assert code == 0
    text = (tmp_path / "o.json").read_text()
    assert "rank1.json" in text
    assert os.fspath(job) not in text


def test_strict(run, tmp_path):
    shapeless = TraceBuilder().op("aten::mm", 0, 30).kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10)
    path = shapeless.save(tmp_path / "t.json")
    code, out, err = run("predict", path, "--engine", "local", "--gpu", "l40s", "--strict", "--json", "-q")
    assert (code, err) == (4, "tracekit: 0.0 % of kernel time is modelled for l40s, less than the 95 % of --strict\n")
    assert json.loads(out)["targets"][0]["coverage"]["modelled"] == 0


def test_the_page_has_all_notes(run, job, tmp_path):
    """The terminal says how many it leaves out; the page holds each that JSON has."""
    told = ("predict", job, "--engine", "local", "--cluster", "1x8xb200", "--no-cache", "--force")
    _, screen, _ = run(*told, "-o", tmp_path / "out.html")
    run(*told, "-q", "-o", tmp_path / "out.json")
    notes = json.loads((tmp_path / "out.json").read_text())["targets"][0]["notes"]
    page = html.unescape((tmp_path / "out.html").read_text()).replace(" (without --engine)", "")
    assert len(notes) > 3
    assert "more note" in screen
    assert [one["code"] for one in notes if one["text"] not in page] == []
