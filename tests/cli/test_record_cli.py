"""``tracekit record SCRIPT``: a script that knows nothing of profilers."""

import gzip
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

TRAIN = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
print(sys.argv[1:], __name__)
for step in range(40):
    with torch.no_grad():
        model(torch.ones(2, 4))
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("went on to the end")
"""
INFER = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
with torch.inference_mode():
    for step in range(40):
        model(torch.ones(2, 4))
"""
COUNTS = ("--wait", 1, "--timed", 1, "--warmup", 1, "--active", 2)


@pytest.fixture
def script(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


def counted(path: Path, name: str) -> int:
    return sum(event["name"] == name for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])


def test_a_training_script_is_recorded_by_its_optimizer_and_ended(run, script, tmp_path: Path) -> None:
    code, out, err = run("record", "-o", tmp_path / "t", *COUNTS, script(TRAIN), "--lr", "0.1")
    assert code == 0
    assert out == "['--lr', '0.1'] __main__\n"
    assert counted(tmp_path / "t" / "trace.json.gz", "Optimizer.step#SGD.step") == 2
    assert "no GPU activity" in err


def test_it_goes_on_where_that_is_wanted(run, script, tmp_path: Path) -> None:
    code, out, _ = run("record", "-o", tmp_path / "t", *COUNTS, "--keep-running", script(TRAIN))
    assert code == 0
    assert out.endswith("went on to the end\n")


def test_an_inference_script_is_recorded_by_its_model(run, script, tmp_path: Path) -> None:
    code, _, _ = run("record", "-o", tmp_path / "t", *COUNTS, script(INFER))
    assert code == 0
    assert counted(tmp_path / "t" / "trace.json.gz", "aten::linear") == 2


def test_a_module_is_found_in_the_working_directory(run, script, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(script(INFER).parent)
    code, _, _ = run("record", "-o", tmp_path / "t", *COUNTS, "-m", "script")
    assert code == 0
    assert (tmp_path / "t" / "trace.json.gz").exists()


def test_hooks_are_gone_afterwards(run, script, tmp_path: Path) -> None:
    run("record", "-q", "-o", tmp_path / "t", *COUNTS, script(TRAIN))
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pass", "[steps-too-few]"),
        ("raise SystemExit(0)", "[steps-too-few]"),
        (INFER.replace("inference_mode", "enable_grad"), "[steps-not-ended]"),
    ],
)
def test_a_script_without_steps_is_said(run, script, tmp_path: Path, text: str, message: str) -> None:
    code, _, err = run("record", "-o", tmp_path / "t", script(text))
    assert code == 1
    assert message in err


def test_a_script_that_fails_shows_its_own_error(run, script, tmp_path: Path) -> None:
    code, _, err = run("record", "-o", tmp_path / "t", script("import sys; sys.exit(7)"))
    assert code == 7
    assert "Traceback" not in err


@pytest.mark.parametrize(("text", "said"), [("1 / 0", 'script.py", line 1, in <module>'), ("1 +", "SyntaxError")])
def test_a_script_that_raises_ends_as_python_ends_it(run, script, tmp_path: Path, text: str, said: str) -> None:
    code, _, err = run("record", "-q", "-o", tmp_path / "t", script(text))
    assert (code, said in err, "runpy" in err, "bug in tracekit" in err) == (1, True, False, False)


def test_no_script_and_no_such_way_to_end_a_step(run, script, tmp_path: Path) -> None:
    code, _, err = run("record", "-o", tmp_path / "t", tmp_path / "nowhere.py")
    assert (code, "[script-not-found]" in err) == (1, True)
    code, _, err = run("record", "--step-end", "lunch", script(TRAIN))
    assert code == 2
