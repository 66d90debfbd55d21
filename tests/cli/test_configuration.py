"""Defaults from the user's file and the working directory's."""

import json
from pathlib import Path

import pytest

from tracekit.testing import TraceBuilder


@pytest.fixture
def configure(tmp_path, monkeypatch):
    """Writes the configuration, in the user's folder or the working directory."""
    monkeypatch.delenv("TRACEKIT_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def write(local="", user=""):
        (tmp_path / "home/tracekit").mkdir(parents=True, exist_ok=True)
        for path, text in ((Path("tracekit.toml"), local), (tmp_path / "home/tracekit/config.toml", user)):
            if text:
                path.write_text(text)

    return write


def predict_targets(run, *args):
    code, out, err = run("predict", *args, "--json")
    assert code == 0, err
    return [(target["gpu"], target["dollars_per_1000_steps"]) for target in json.loads(out)["targets"]], err


def test_targets_and_prices_come_from_the_file_and_that_is_said(run, trace, configure):
    configure('gpu = ["t4", "l4"]\nprice = { t4 = 3.6, "l4" = 7 }')
    targets, err = predict_targets(run, trace)
    assert {gpu for gpu, _ in targets} == {"t4", "l4"}
    assert all(dollars for _, dollars in targets)
    assert err == "From tracekit.toml: --gpu t4 --gpu l4 --price t4=3.6 --price l4=7\n"


def test_the_command_line_wins(run, trace, configure):
    configure('gpu = "t4"\nprice = { l4 = 7 }')
    assert predict_targets(run, trace, "--gpu", "l4", "--no-calibration")[0][0][0] == "l4"
    assert predict_targets(run, trace, "--gpu", "l4", "--price", "t4=1")[0] == [("l4", None)]
    (target,) = json.loads(run("predict", trace, "--cluster", "2xh100-sxm", "--json")[1])["targets"]
    assert target["cluster"] == "2xh100-sxm"


def test_the_working_directory_goes_before_the_users_file(run, trace, configure):
    configure(local='cluster = "2xh100-sxm"', user='gpu = "t4"\nprice = { h100-sxm = 2 }')
    targets, err = predict_targets(run, trace)
    assert [gpu for gpu, _ in targets] == ["h100-sxm"]
    assert err.count("From ") == 2
    assert "--price h100-sxm=2" in err


def test_a_source_gpu_is_for_traces_that_do_not_tell_theirs(run, trace, tmp_path, configure):
    configure('source_gpu = "l4"')
    assert json.loads(run("report", trace, "--json")[1])["source"]["gpu"] == "a100-sxm-80gb"
    unnamed = TraceBuilder(device=None).kernel("ampere_sgemm", 20, 100, launch=10).save(tmp_path / "unnamed.json")
    for verb in ("report", "info"):
        code, out, err = run(verb, unnamed, "--json")
        assert (code, json.loads(out)["source"]["gpu"]) == (0, "l4")
        assert "--source-gpu l4" in err


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("gpu = 3", "configuration-value"),
        ("gpu = [3]", "configuration-value"),
        ('price = { h100-sxm = "a" }', "configuration-value"),
        ("price = { h100-sxm = true }", "configuration-value"),
        ('gpus = "t4"', "configuration-key-unknown"),
        ("gpu = ", "configuration-unreadable"),
        ("\udcff", "configuration-unreadable"),
        ('gpu = "no-such-gpu"', "gpu-unknown"),
    ],
)
def test_a_wrong_file_is_one_line(run, trace, configure, content, code):
    configure("x")
    Path("tracekit.toml").write_bytes(content.encode(errors="surrogateescape"))
    status, out, err = run("predict", trace)
    assert (status in (1, 2), out) == (True, "")
    assert err.splitlines()[-1].endswith(f"[{code}]")


def test_config_shows_where_defaults_come_from(run, configure, monkeypatch, tmp_path):
    configure(local='gpu = ["t4", "l4"]', user='host = "typical"')
    out = run("config")[1]
    assert "t4, l4  (from tracekit.toml)" in out
    assert str(tmp_path / "home/tracekit/config.toml") in out
    values = json.loads(run("config", "--json")[1])
    assert values["values"] == {"gpu": ["t4", "l4"], "host": "typical"}
    assert [file["exists"] for file in values["files"]] == [True, True]
    monkeypatch.setenv("TRACEKIT_CONFIG", "")
    assert json.loads(run("config", "--json")[1]) == {"files": [], "values": {}, "origins": {}} | {"schema_version": 1}
