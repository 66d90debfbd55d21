"""What a new user types first: the bare command, a bare file, help, completion, the demo, explanations."""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from tracekit.cli.app import COMMANDS, app
from tracekit.cli.help import MAIN_OPTIONS
from tracekit.messages.catalogue import CATALOGUE
from tracekit.packaged import list_pages
from tracekit.request import Panel


def test_the_bare_command_prints_help(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert all(panel in out for panel in COMMANDS)


@pytest.mark.parametrize(
    ("options", "command"), [((), "report"), (("--gpu", "t4"), "predict"), (("--cluster=2xh100-sxm",), "predict")]
)
def test_a_bare_file_is_reported_or_predicted(run, trace, options, command):
    code, out, err = run(trace, *options, "--json")
    assert code == 0
    assert err == f"tracekit {command} {trace}\n"
    assert ("targets" in json.loads(out)) is (command == "predict")


def test_misspelt_commands_and_files_are_told_apart(run, trace):
    code, _, err = run("predcit", trace)
    assert code == 2
    assert "'predict'" in err
    code, _, err = run(trace.with_name("trase.json.gz"))
    assert code == 1
    assert "[file-name-mistyped]" in err


def test_options_stand_in_the_panels_of_their_declarations(run):
    out = run("predict", "--help")[1]
    places = [out.index(f"─ {panel} ─") for panel in Panel]
    assert places == sorted(places)
    target, layout = places[1], places[2]
    assert target < out.index("--power-cap") < layout < out.index("--micro-batches") < places[3]
    for name, command in typer.main.get_command(app).commands.items():
        if len(command.params) > 10 and name not in ("serve", "record", "calibrate"):
            panels = {parameter.rich_help_panel for parameter in command.params if parameter.opts[0][:2] == "--"}
            assert panels <= {*Panel}, name
            helps = [parameter.help or "" for parameter in command.params]
            assert not [text for text in helps if re.search(r"\[[a-z#/@]", text)], "rich reads it as markup"


def test_examples_in_the_help_are_commands():
    found = 0
    for name, command in typer.main.get_command(app).commands.items():
        for example in re.findall(r"Example: tracekit (.+)", command.help):
            called, *arguments = shlex.split(re.split(r" [|>] ", example)[0])
            assert called == name
            assert command.make_context(name, arguments).params
            found += 1
    assert found > 30


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("predict x --gpu h100-s", ["h100-sxm"]),
        ("predict x --cluster nd-h100", ["nd-h100-v5"]),
        ("predict x --host typ", ["typical"]),
        ("predict x --price t4", ["t4="]),
        ("export x --framework vl", ["vllm"]),
        ("gpus rtx-4090", ["rtx-4090"]),
        ("explain price-m", ["price-missing"]),
    ],
)
def test_names_are_completed(words, expected, monkeypatch, capsys):
    monkeypatch.setenv("_TRACEKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"tracekit {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    with pytest.raises(SystemExit):
        app(prog_name="tracekit")
    found = capsys.readouterr().out.split()
    assert set(expected) <= set(found)
    assert all(name.startswith(words.split()[-1]) for name in found)


def test_bash_completes_in_a_terminal(tmp_path):
    pexpect = pytest.importorskip("pexpect")
    (tmp_path / "tracekit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tracekit "$@"\n')
    (tmp_path / "tracekit").chmod(0o755)
    places = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(Path.cwd()), "TERM": "dumb"}
    environment = os.environ | places
    shell = pexpect.spawn("bash", ["--norc", "--noprofile"], env=environment, encoding="utf-8", timeout=120)
    shell.sendline("bind 'set enable-bracketed-paste off'; PS1='ready> '; eval \"$(tracekit --show-completion bash)\"")
    shell.expect_exact("ready> ")
    shell.expect_exact("ready> ")
    shell.send("tracekit predict trace.json --gpu rtx-pro-6000-wor\t")
    shell.expect_exact("rtx-pro-6000-workstation")
    shell.close(force=True)


def test_the_demo_writes_its_page_here(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("demo")
    assert code == 0
    assert all(gpu in out for gpu in ("h100-sxm", "l40s", "mi300x"))
    assert "Wrote demo.html" in err
    assert [path.name for path in tmp_path.iterdir()] == ["demo.html"]
    code, _, err = run("demo")
    assert code == 1
    assert "[output-exists]" in err


@pytest.mark.parametrize("code", ["price-missing", "launch-bound", "[file-not-found]"])
def test_a_code_is_explained(run, code):
    status, out, _ = run("explain", code)
    assert status == 0
    assert code.strip("[]") in out
    assert json.loads(run("explain", code, "--json")[1])["message"]["code"] == code.strip("[]")


@pytest.mark.heavy
def test_every_code_and_page_is_explained():
    from tracekit.packaged import explain_code
    from tracekit.render.screens import serialize_explanation

    assert {"intervals", "limits", "first-prediction"} <= {page.name for page in list_pages()}
    for subject in (*CATALOGUE, *(page.name for page in list_pages())):
        assert json.loads(serialize_explanation(explain_code(subject)))
    assert dict(explain_code("launch-bound").mentions)["Findings"].startswith("fires when: the CPU alone")


def test_pages_are_listed_and_printed_and_others_refused(run):
    assert "intervals" in run("explain")[1]
    assert "Intervals" in run("explain", "intervals")[1]
    assert "<!--" not in run("explain", "accuracy")[1]
    for subject, code in (("price-mising", "subject-mistyped"), ("zzzz", "subject-unknown")):
        status, out, err = run("explain", subject)
        assert (status, out) == (1, "")
        assert err.endswith(f"[{code}]\n")


def test_the_wheel_brings_the_pages():
    included = Path("pyproject.toml").read_text()
    for folder in ("tutorial", "how-to", "reference", "explanation"):
        assert f'"docs/{folder}" = "tracekit/pages/{folder}"' in included


@pytest.mark.parametrize("name", MAIN_OPTIONS)
def test_short_help_is_one_screen_with_the_options_that_matter(run, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(name, "-h")
    command = typer.main.get_command(app).commands[name]
    flags = {parameter.name: parameter.opts[0] for parameter in command.params}
    shown = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", out, re.MULTILINE))
    assert code == 0
    assert shown == {flags[option] for option in MAIN_OPTIONS[name]}
    assert out.count("\n") <= 24
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"`--help` has all \d+ options", " ".join(out.split()))


def test_short_help_of_the_command_is_one_screen(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("-h")
    assert code == 0
    assert out.count("\n") <= 24
    assert {"predict", "report", "demo"} <= set(re.findall(r"^  (\w+)", out, re.MULTILINE))


def test_help_of_a_group_shows_that_group_alone(run):
    out = run("predict", "trace.json", "--help", "what-if")[1]
    assert "--host-speed" in out
    assert "--gpu " not in out.partition("╭")[2]
    whole = run("predict", "--help")[1]
    assert {"--gpu", "--host-speed", "--micro-batches"} <= set(re.findall(r"--[\w-]+", whole))


def test_what_follows_help_and_is_no_group_is_an_input(run):
    assert "--gpu" in run("predict", "--help", "trace.json")[1]
