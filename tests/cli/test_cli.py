"""The command line as a user meets it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tracekit.cli.output import format_command
from tracekit.testing import TraceBuilder


def test_predict_prints_a_screen(run, trace):
    code, out, err = run("predict", trace, "--gpu", "h100", "--gpu", "t4")
    assert code == 0
    assert err == ""
    for expected in ("h100-sxm", "t4", "speedup", "where the time goes", "aten::mm  512×512", "a100-sxm-80gb"):
        assert expected in out


def test_predict_says_what_limits_the_step_there_and_what_was_scaled(run, tmp_path):
    """Launches 100 apart, kernels of 10: any GPU waits for the CPU; nothing is known of half of them."""
    builder = TraceBuilder()
    for start in range(0, 1000, 200):
        builder.op("aten::mm", start, 20, dims=[[512, 512], [512, 512]], types=["float", "float"])
        builder.kernel("ampere_sgemm_128x64_nn", start + 10, 10, launch=start + 2)
        builder.op("my::op", start + 100, 20).kernel("mystery", start + 110, 10, launch=start + 102)
    out = run("predict", builder.save(tmp_path / "trace.json.gz"), "--gpu", "h100")[1]
    said = " ".join(out.split())
    assert re.search(r"On h100-sxm the CPU sets the pace: \d+ % of the critical path \(measured: \d+ %\)", said)
    assert "Of the kernel time 50 % is a rough estimate by the kind of kernel" in said


def test_predict_json_holds_the_contract(run, trace):
    code, out, _ = run("predict", trace, "--gpu", "h100-sxm", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["schema_version"] == 1
    assert set(data["source"]) >= {
        "gpu", "ranks", "steps", "step_time_us", "kernel_time_us", "kernels", "shapes_recorded",
    }  # fmt: skip
    assert set(data["replay"]) == {"step_time_us", "error_pct", "derived_wait_us", "kept_wait_us"}
    (target,) = data["targets"]
    assert set(target) >= {
        "gpu", "cluster", "step_time_us", "low_us", "high_us", "speedup", "kernel_time_us", "exposed_comm_us",
        "idle_us", "coverage", "fits_in_memory",
    }  # fmt: skip
    assert set(target["coverage"]) == {"modelled", "inferred", "scaled", "unknown"}


def test_info_and_report_json(run, trace):
    info = json.loads(run("info", trace, "--json")[1])
    assert set(info) == {
        "schema_version", "source", "replay", "events", "coverage", "modules", "over_bound", "warnings",
    }  # fmt: skip
    report = json.loads(run("report", trace, "--json")[1])
    assert set(report) >= {"source", "replay", "breakdown", "kernels", "findings"}
    assert report["kernels"][0]["name"] == "ampere_sgemm_128x64_nn"


def test_info_and_report_print_screens(run, trace):
    assert "100 % of kernel time has its work known" in run("info", trace)[1]
    assert "512×512" in run("report", trace, "--top", 1)[1]


def test_output_is_written_whole_and_not_overwritten(run, trace, tmp_path):
    output = tmp_path / "out.json"
    assert run("predict", trace, "--gpu", "t4", "-o", output)[0] == 0
    first = output.read_text()
    assert json.loads(first)["targets"][0]["gpu"] == "t4"
    code, _, err = run("predict", trace, "--gpu", "l4", "-o", output)
    assert code == 1
    assert "--force" in err
    assert output.read_text() == first
    assert run("predict", trace, "--gpu", "l4", "-o", output, "--force")[0] == 0
    assert json.loads(output.read_text())["targets"][0]["gpu"] == "l4"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "trace.json.gz"]


@pytest.mark.parametrize("verb", ["predict --gpu t4", "report", "redact"])
def test_what_is_no_file_is_not_replaced(verb, run, trace, tmp_path):
    verb, *options = verb.split()
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    code, out, err = run(verb, trace, *options, "--force", "-o", pipe)
    assert (code, out) == (1, "")
    assert "[output-not-a-file]" in err
    assert pipe.is_fifo()


def test_a_name_as_long_as_may_be(run, trace, tmp_path):
    assert run("report", trace, "-o", tmp_path / ("x" * 250 + ".json"))[0] == 0


@pytest.mark.parametrize("form", ["html", "json", "md", "xlsx", "txt"])
def test_a_trace_whose_name_is_no_text(form, run, trace, tmp_path):
    named = trace.rename(os.fsdecode(bytes(tmp_path) + b"/b\xff.json.gz"))
    code, out, _ = run("predict", named, "--gpu", "t4", "-o", tmp_path / f"out.{form}")
    assert code == 0
    assert "b?.json.gz" in "".join(out.split())  # a long name is wrapped


def test_stdout_that_knows_ascii_only_or_is_full(trace):
    def shown(out):
        command = [sys.executable, "-m", "tracekit", "info", trace]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, stdout=out, stderr=subprocess.PIPE
        )
        return done.returncode, done.stderr.count(b"\n"), done.stdout

    code, complaints, out = shown(subprocess.PIPE)
    assert (code, complaints) == (0, 0)
    assert b"GPU busy" in out
    with Path("/dev/full").open("wb") as full:
        assert shown(full)[:2] == (1, 1)


def test_a_gpu_that_was_named_is_not_asked_for(run, tmp_path):
    trace = TraceBuilder(device=None).kernel("ampere_sgemm", 20, 100, launch=10).save(tmp_path / "trace.json")
    assert "Name it with --source-gpu" in " ".join(run("info", trace)[1].split())
    assert "deviceProperties" not in run("info", trace, "--source-gpu", "t4")[1]


def test_another_gpu_than_the_trace_describes_is_said(run, trace):
    for verb in (("report",), ("predict", "--gpu", "t4")):
        assert "count as l4's" in " ".join(run(*verb, trace, "--source-gpu", "l4")[1].split())
        assert "count as" not in run(*verb, trace, "--source-gpu", "a100-sxm-80gb")[1]


def test_no_kernels_are_listed_where_none_are_wanted(run, trace):
    assert "op, shapes, kernel" in run("report", trace)[1]
    for verb in (("report",), ("predict", "--gpu", "t4")):
        out = run(*verb, trace, "--top", 0)[1]
        assert "top 0 of" not in out
        assert "op, shapes, kernel" not in out


def test_text_output(run, trace, tmp_path):
    run("report", trace, "-o", tmp_path / "out.txt")
    assert "where the time goes" in (tmp_path / "out.txt").read_text()


def test_gpus(run):
    code, out, _ = run("gpus")
    assert code == 0
    assert "mi300x" in out
    card = run("gpus", "l40s")[1]
    assert re.search(r"^memory_bytes +51,539,607,552 +\[\d\] *$", card, re.MULTILINE)
    assert re.search(r"^\[1\] .*https://", card, re.MULTILINE | re.DOTALL)
    assert json.loads(run("gpus", "l40s", "--json")[1])["sms"] == 142


FAILURES = {
    "no such file": (("info", "{tmp}/missing.json"), "[file-not-found]"),
    "not a trace": (("info", "{tmp}/other.json"), "[json-without-events]"),
    "truncated": (("predict", "{tmp}/cut.json", "--gpu", "t4"), "[file-cut-short]"),
    "unknown gpu": (("predict", "{tmp}/trace.json.gz", "--gpu", "h1000"), "[gpu-unknown]"),
    "unknown source": (("predict", "{tmp}/trace.json.gz", "--gpu", "t4", "--source-gpu", "x"), "[gpu-unknown]"),
    "ambiguous gpu": (("predict", "{tmp}/trace.json.gz", "--gpu", "a100"), "[gpu-ambiguous]"),
    "unknown step": (("report", "{tmp}/trace.json.gz", "--steps", "3"), "[step-not-found]"),
    "unknown rank": (("report", "{tmp}/trace.json.gz", "--ranks", "3"), "[rank-not-recorded]"),
    "unknown format": (("report", "{tmp}/trace.json.gz", "-o", "{tmp}/x.docx"), ".docx"),
    "no directory": (("report", "{tmp}/trace.json.gz", "-o", "{tmp}/nowhere/x.json"), "[output-no-directory]"),
    "long name": (
        ("report", "{tmp}/trace.json.gz", "-o", "{tmp}/" + 300 * "x" + ".json"),
        "[output-not-written]",
    ),
    **{
        f"long name for {verb}": ((verb, "{tmp}/" + 300 * "x" + suffix, *others), "File name too long")
        for verb, suffix, *others in (
            ("compare", ".json", "{tmp}/trace.json.gz"),
            ("view", ".html"),
            ("clusters", ".toml"),
            ("record", ".py"),
        )
    },
    "input as report": (
        ("report", "{tmp}/trace.json.gz", "--format", "json", "-f", "-o", "{tmp}/trace.json.gz"),
        "[output-is-input]",
    ),
    "input as timeline": (("export", "{tmp}", "-f", "-o", "{tmp}/trace.json.gz"), "[output-is-input]"),
    "input as redacted": (("redact", "{tmp}/trace.json.gz", "-f", "-o", "{tmp}/trace.json.gz"), "[output-is-input]"),
    "gpu card": (("gpus", "rtx-99"), "[gpu-unknown]"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_expected_failures_are_one_line_and_exit_code_1(case, run, trace, tmp_path):
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "cut.json").write_text('{"traceEvents": [')
    args, says = FAILURES[case]
    before = sorted(tmp_path.iterdir())
    code, out, err = run(*(arg.format(tmp=tmp_path) for arg in args))
    assert code == 1
    assert out == ""
    assert err.startswith("tracekit: ")
    assert err.count("\n") == 1
    assert says in err
    assert sorted(tmp_path.iterdir()) == before


def test_wrong_usage_is_exit_code_2(run, trace):
    assert run("predict", trace)[0] == 2
    assert run("predict", trace, "--gpu", "t4", "--frobnicate")[0] == 2
    for endless in (
        ("predict", trace, "--gpu", "t4", "--batch"),
        ("sweep", trace, "--gpu", "t4", "--samples"),
        ("serve", "--keep"),
    ):
        assert run(*endless, "inf")[0] == 2


def test_a_bug_is_exit_code_70(run, trace, monkeypatch):
    monkeypatch.setattr("tracekit.ingest.load", lambda path: 1 / 0)
    code, _, err = run("info", trace)
    assert code == 70
    assert "this is a bug in tracekit" in err


@pytest.mark.parametrize("verb", ["info", "report", "predict", "compare", "export", "view", "gpus"])
def test_help_has_an_example(run, verb):
    code, out, _ = run(verb, "--help")
    assert code == 0
    assert f"tracekit {verb}" in out
    assert "Example" in out


def test_a_page_is_shown_until_ctrl_c(run, tmp_path, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("socketserver.BaseServer.serve_forever", interrupted)
    (tmp_path / "report.html").write_text("<p>")
    code, out, err = run("view", tmp_path / "report.html", "--no-open")
    assert (code, out.startswith("http://127.0.0.1:"), err) == (0, True, "")


def test_version(run):
    assert run("--version")[1].startswith("tracekit 0.")


def test_help_is_quick():
    """Help loads none of the heavy packages; measured against starting Python with typer alone."""
    heavy = "{'polars', 'numba', 'numpy', 'predictors'} & set(sys.modules)"
    code = f"import sys; import tracekit.cli.app; assert not ({heavy}), {heavy}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FORMS = {
    "html": b"<!doctype html>",
    "json": b"{",
    "md": b"# ",
    "xlsx": b"PK",
    "parquet": b"PAR1",
    "csv": b"gpu,",
    "txt": b"NVIDIA T4: ",
}


def test_a_report_in_every_form(run, trace, tmp_path):
    for form, begin in FORMS.items():
        code, out, err = run("predict", trace, "--gpu", "t4", "-o", tmp_path / f"out.{form}")
        assert (code, "speedup" in out) == (0, True), form
        assert f"out.{form}" in err.replace("\n", "")
        assert (tmp_path / f"out.{form}").read_bytes().startswith(begin)
    assert run("report", trace, "-o", tmp_path / "report.html")[0] == 0


def test_a_report_keeps_the_secrets_of_a_uri_to_itself(monkeypatch):
    uri = "https://user:hunter2@host/trace.json.gz?X-Amz-Signature=5ec2e7"
    monkeypatch.setattr(sys, "argv", ["tracekit", "report", uri, "-o", "report.html"])
    assert format_command() == "tracekit report https://host/trace.json.gz -o report.html"


def test_a_format_is_printed_or_goes_to_the_output(run, trace, tmp_path):
    assert run("report", trace, "--format", "csv")[1].startswith("family,")
    code, out, _ = run("report", trace, "--format", "md", "-o", tmp_path / "notes")
    assert (code, "where the time goes" in out) == (0, True)
    assert (tmp_path / "notes").read_text().startswith("# A step")
    code, _, err = run("report", trace, "-o", tmp_path / "report.pdf")
    assert (code, ".html" in err) == (1, True)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_of_a_prediction_are_the_answer_with_the_kernels_beside(run, trace, tmp_path, form):
    output, kernels = tmp_path / f"out.{form}", tmp_path / f"out.kernels.{form}"
    assert run("predict", trace, "--gpu", "t4", "--gpu", "l4", "-o", output)[0] == 0
    read = pl.read_csv if form == "csv" else pl.read_parquet
    answer, launched = read(output), read(kernels)
    data = json.loads(run("predict", trace, "--gpu", "t4", "--gpu", "l4", "--json")[1])
    targets = [target["gpu"] for target in data["targets"]]
    assert answer["gpu"].to_list() == ["a100-sxm-80gb", *targets]
    assert answer["step_time_us"].to_list()[1:] == [target["step_time_us"] for target in data["targets"]]
    assert answer["low_us"].to_list()[1:] == [target["low_us"] for target in data["targets"]]
    assert launched["t4.time_us"].to_list() == [
        kernel["predicted_us"][targets.index("t4")] for kernel in data["kernels"]
    ]
    assert not [name for table in (answer, launched) for name in table.columns if " " in name]
    code, _, err = run("predict", trace, "--gpu", "t4", "-o", tmp_path / f"other.{form}", "-q")
    assert (code, err) == (0, "")
    output.unlink()
    code, _, err = run("predict", trace, "--gpu", "t4", "-o", output)
    assert (code, "[output-exists]" in err, output.exists()) == (1, True, False)


WRITING = {
    "predict": (("predict", "--gpu", "t4"), ("a.html", "a.json", "a.md", "a.xlsx", "a.csv")),
    "report": (("report",), ("a.html", "a.json", "a.csv")),
    "export": (("export", "--gpu", "t4"), ("a.json.gz", "a.parquet", "a.csv")),
    "rank by rank": (("predict", "--gpu", "t4", "--engine", "local"), ("a.html", "a.json")),
    "sweep": (("sweep", "--cluster", "2xt4"), ("a.json", "a.md", "a.csv")),
}


@pytest.mark.parametrize("command", WRITING)
def test_each_output_is_written(run, trace, tmp_path, monkeypatch, command):
    (name, *options), names = WRITING[command]
    monkeypatch.chdir(tmp_path)
    outputs = [word for one in names for word in ("-o", one)]
    code, _, err = run(name, trace, *options, *outputs)
    assert (code, [line for line in err.splitlines() if line.startswith("Wrote")][: len(names)]) == (
        0,
        [f"Wrote {one}" for one in names],
    )
    assert all((tmp_path / one).stat().st_size > 0 for one in names)


@pytest.mark.parametrize(
    ("outputs", "code"),
    [
        (("a.html", "there.json"), "output-exists"),
        (("there.json", "a.html"), "output-exists"),
        (("a.html", "a.exe"), "output-format-unknown"),
        (("a.html", "missing/a.json"), "output-no-directory"),
        (("a.csv", "a.kernels.csv"), "output-overlap"),
    ],
)
def test_all_outputs_are_written_or_none(run, trace, tmp_path, monkeypatch, outputs, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.json").write_text("old")
    exit_code, _, err = run("predict", trace, "--gpu", "t4", *(word for one in outputs for word in ("-o", one)))
    assert (exit_code, f"[{code}]" in err) == (1, True)
    assert not list(tmp_path.glob("a.*"))


def test_an_output_named_twice_is_written_once_and_a_dash_goes_with_files(run, trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = ("-o", "-", "-o", "a.json", "-o", "./a.json", "-o", "a.html")
    code, out, err = run("predict", trace, "--gpu", "t4", *outputs, "--format", "md")
    assert (code, out[:2], err) == (0, "# ", "Wrote a.json\nWrote a.html\n")
    assert json.loads((tmp_path / "a.json").read_text())["targets"]


@pytest.mark.parametrize("command", [("redact",), ("share",)])
def test_a_command_that_writes_to_one_place_takes_one(run, trace, tmp_path, command):
    code, _, err = run(*command, trace, "-o", tmp_path / "a.zip", "-o", tmp_path / "b.zip")
    assert (code, "[output-several]" in err) == (1, True)
    assert not list(tmp_path.glob("*.zip"))


@pytest.mark.parametrize(
    ("form", "begin"), [((), "# "), (("--format", "html"), "<!doctype html>"), (("--format", "txt"), "")]
)
def test_a_dash_is_standard_output(run, trace, tmp_path, monkeypatch, form, begin):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("predict", trace, "--gpu", "t4", "-o", "-", *form)
    assert (code, err, out.startswith(begin)) == (0, "", True)
    assert ("# " in out) is not ("predicted step" in out) or "html" in form
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]


@pytest.mark.parametrize("verb", ["sweep --gpu t4", "redact", "export", "share", "calibrate --bench"])
def test_a_dash_is_no_file(run, trace, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    command, *options = verb.split()
    inputs = [] if command == "calibrate" else [trace]
    code, out, err = run(command, *inputs, *options, "-o", "-")
    assert (code, out) == (1, "")
    assert "[output-needs-file]" in err
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]


@pytest.mark.parametrize("verb", [("info",), ("report",), ("predict", "--gpu", "h100-sxm")])
def test_verbose_shows_the_graphs_constants(run, trace, verb):
    graph = json.loads(run(*verb, trace, "-v", "--json")[1])["graph"]
    assert "graph" not in json.loads(run(*verb, trace, "--json")[1])
    assert (graph["recorded_waits"], graph["dropped_edges"]) == (0, 0)
    assert graph["exact_error_ns"] == 0
    assert {row["edge"] for row in graph["edges"]} >= {"run", "program", "launch"}
    assert "waits recorded" in run(*verb, trace, "-v")[1]
    assert "waits recorded" not in run(*verb, trace)[1]


def test_a_directory_that_can_not_be_written_to_is_refused_before_the_work(run, trace, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    code, out, err = run("report", trace, "-o", tmp_path / "x.json")
    assert (code, out) == (1, "")
    assert "[output-directory-read-only]" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("asked", "switch"), [(("predict", "--help"), "--json"), (("--help",), "--version")])
def test_help_shows_no_value_behind_a_switch(run, asked, switch):
    code, out, _ = run(*asked)
    assert (code, switch in out, "<bool>" in out) == (0, True, False)
