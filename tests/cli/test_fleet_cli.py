"""``tracekit predict --engine``: no option is ignored."""

import html
import json
import os

import pytest
from typer.main import get_command

from tests.fleet.test_fleet import worked
from tracekit.cli.app import app
from tracekit.testing import TraceBuilder

PREDICT = get_command(app).commands["predict"]  # type: ignore[attr-defined]
OPTIONS = {one.name: one for one in PREDICT.params}
TAKEN = {
    *("traces", "engine", "store", "memory", "no_cache"),
    *("gpu", "cluster", "source_gpu", "source_cluster", "steps", "framework", "model_config", "zipf", "indices"),
    "accepted_tokens",
    *("price", "prices", "samples", "rank_by", "steps_to_run", "tokens_to_run", "samples_to_run"),
    *("without_rule", "no_calibration", "no_scoreboard"),
    *("top", "json", "form", "output", "force", "with_details", "strict", "verbose", "quiet"),
}
VALUES = {
    "ranks": "0", "host": "typical", "host_from": "host.json",
    "power_cap": "500W", "clock": "1200MHz", "source_clock": "1200MHz", "world_size": "2", "dp": "2", "tp": "2",
    "pp": "2", "ep": "2", "batch": "2", "context": "4096", "micro_batches": "4", "pp_schedule": "1f1b",
    "what_if": "no-sync(aten::item)", "host_speed": "2", "unprofiled_step": "1ms", "optimizer": "adamw --train",
    "autocast": "bf16", "seq": "128", "dtype": "bf16", "table": "1000x64", "bottom_mlp": "8,4", "top_mlp": "4,1",
    "measured": "run.json", "attention": "eager",
}  # fmt: skip
"""A value of each option that is refused and takes one."""


@pytest.fixture
def job(tmp_path):
    """A folder of two ranks."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        worked(rank, 2).save(folder / f"rank{rank}.json")
    return folder


@pytest.mark.parametrize("name", [one for one in OPTIONS if one not in TAKEN])
def test_what_a_fleet_does_not_take_is_refused(run, name):
    flag = OPTIONS[name].opts[0]
    value = [] if OPTIONS[name].is_flag else VALUES[name].split()
    code, out, err = run("predict", "nowhere", "--engine", "local", "--gpu", "h100-sxm", flag, *value)
    assert (code, out) == (2, "")
    assert "[fleet-option]" in err


def test_the_answer_comes_first(run, job, tmp_path, monkeypatch):
    """Speed, dollars and break-even, at prices of the configuration; a file holds no dollars."""
    (tmp_path / "own.toml").write_text("[price]\nh100-sxm = 2\na100-sxm-80gb = 1\n")
    monkeypatch.setenv("TRACEKIT_CONFIG", str(tmp_path / "own.toml"))
    told = ("predict", job, "--engine", "local", "--gpu", "a100-sxm-80gb", "--no-cache", "-q")
    code, screen, _ = run(*told, "-o", tmp_path / "out.json")
    answer = " ".join(screen[: screen.index("\n\n")].split())
    assert (code, answer[:26]) == (0, "2 × NVIDIA A100 SXM4 80 GB")
    assert "At $1.00 an hour" in answer
    assert "it pays below $" in answer
    decision = json.loads((tmp_path / "out.json").read_text())["decision"]
    assert decision["targets"][0]["rank"] == 1
    assert decision["targets"][0]["dollars"] is None
    assert "$" not in (tmp_path / "out.json").read_text()


@pytest.mark.parametrize("form", ["md", "xlsx", "parquet", "csv"])
def test_forms_that_a_fleet_does_not_have(run, form, tmp_path):
    told = ("predict", "nowhere", "--engine", "local", "--gpu", "h100-sxm")
    code, out, err = run(*told, "--format", form)
    assert (code, out, "[fleet-option]" in err) == (2, "", True)
    assert run(*told, "-o", tmp_path / f"out.{form}")[0] == 1


def test_a_store_needs_an_engine(run, trace):
    code, out, err = run("predict", trace, "--gpu", "h100-sxm", "--store", "here")
    assert (code, out, "[store-without-engine]" in err) == (2, "", True)


def test_forms_of_a_fleet(run, job, tmp_path):
    """``--format`` wins over the suffix; ``-`` is standard output; a document holds no directories."""
    told = ("predict", job, "--engine", "local", "--gpu", "h100-sxm", "--no-cache", "-q")
    code, page, err = run(*told, "-o", "-", "--format", "html")
    assert (code, page[:15], err) == (0, "<!doctype html>", "")
    assert run(*told, "-o", "-")[1].startswith("2 × NVIDIA H100 SXM5")
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
