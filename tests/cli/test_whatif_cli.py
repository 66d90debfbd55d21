"""What-if edits, the host's speed and the un-profiled step, as a user gives them."""

import json

import pytest

import tracekit as tk
from tests.replay.test_whatif import launch_bound


@pytest.fixture
def trace(tmp_path):
    return launch_bound().save(tmp_path / "trace.json.gz")


def test_savings_are_shown(run, trace):
    code, out, err = run("report", trace, "--what-if", "no-sync", "-q")
    assert (code, out) == (1, "")
    assert err.startswith("tracekit: --what-if 'no-sync': ")
    assert err.endswith(" [edit-refused]\n")
    code, out, _ = run("report", trace, "--what-if", "compile(0.1)", "--what-if", "scale(0.5)")
    assert code == 0
    for expected in ("compile(0.1): the CPU's work before 3 launches", "scale(0.5): 3 kernels", "all together"):
        assert expected in " ".join(out.split())


def test_edits_in_json(run, trace):
    data = json.loads(run("report", trace, "--what-if", "compile(0.1)", "--host-speed", 2, "--json")[1])
    assert [row["text"] for row in data["what_if"]] == ["host-speed(2)", "compile(0.1)"]
    assert [row["description"]["code"] for row in data["what_if"]] == ["host-speed-changed", "host-work-compiled"]
    assert data["what_if"][0]["saving_us"] == pytest.approx(230 - 123)
    assert data["what_if"][0]["step_time_us"] == pytest.approx(123)


def test_predictions_have_the_edits_in_them(run, trace):
    data = json.loads(run("predict", trace, "-g", "t4", "--host-speed", "op=1.5", "--json")[1])
    (target,) = data["targets"]
    assert data["what_if"][0]["predicted_us"] == [pytest.approx(target["step_time_us"])]
    notes = {note["code"]: note["values"] for note in target["notes"]}
    assert notes["edits-applied"] == {"edits": ["host-speed(op=1.5)"]}
    assert "host-not-given" not in notes
    plain = json.loads(run("predict", trace, "-g", "t4", "--json")[1])
    assert plain["what_if"] == []
    assert "host-not-given" in [note["code"] for note in plain["targets"][0]["notes"]]


def test_the_unprofiled_step_becomes_the_measured_one(run, trace):
    data = json.loads(run("report", trace, "--unprofiled-step", "0.123ms", "--json")[1])
    assert data["source"]["step_time_us"] == pytest.approx(123)
    assert "profiler-overhead-removed" in [warning["code"] for warning in data["warnings"]]
    assert run("report", trace, "--unprofiled-step", "123")[0] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--what-if", "speed-up(2)"], "[edit-unknown]"),
        (["--what-if", "scale(family=gemm"], "Write scale(KERNELS, FACTOR). [edit-malformed]"),
        (["--what-if", "scale(family=nothing, 2)"], "[edit-refused]"),
        (["--host-speed", "fast"], "[host-speed-malformed]"),
        (["--host-speed", "0"], "[host-speed-malformed]"),
        (["--unprofiled-step", "9s"], "[unprofiled-step-too-long]"),
    ],
)
def test_what_can_not_be_meant_is_one_line(run, trace, options, message):
    code, out, err = run("report", trace, *options)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_from_python(trace):
    loaded = tk.load(trace)
    assert tk.report(loaded, host_speed=2).what_if[0].saving_us == pytest.approx(230 - 123)
    faster = tk.predict(loaded, gpu="a100-sxm-80gb", host_speed=2)["a100-sxm-80gb"]
    assert faster.step.step_time_us == pytest.approx(123)
