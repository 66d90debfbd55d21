"""The recorder, on the CPU: which steps it records, what it notes, and what it refuses."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.errors import TracekitError
from tracekit.recording import RecordingError, facts

torch = pytest.importorskip("torch")

QUICK = {"wait": 1, "timed": 2, "warmup": 1, "active": 2, "quiet": True}
NEEDED = 6


def steps(path: Path) -> list[str]:
    return sorted(event["name"] for event in document(path)["traceEvents"] if event["name"].startswith("ProfilerStep"))


def document(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


def work() -> None:
    torch.ones(8, 8) @ torch.ones(8, 8)


def test_the_active_steps_are_recorded_and_only_they(tmp_path: Path) -> None:
    with tk.record(tmp_path, **QUICK) as recording:
        for _ in range(NEEDED):
            work()
            recording.step()
    assert recording.path == tmp_path / "trace.json.gz"
    assert steps(recording.path) == ["ProfilerStep#1", "ProfilerStep#2"]
    products = [event for event in document(recording.path)["traceEvents"] if event["name"] == "aten::mm"]
    assert len(products) == 2


def test_steps_after_the_last_recorded_one_leave_the_trace_as_it_is(tmp_path: Path) -> None:
    with tk.record(tmp_path, **QUICK) as recording:
        for step in range(NEEDED + 4):
            work()
            recording.step()
            if step == NEEDED - 1:
                first = recording.path.read_bytes()
    assert recording.is_complete
    assert recording.path.read_bytes() == first


def test_it_notes_the_steps_without_profiler_and_how_pytorch_was_set(tmp_path: Path) -> None:
    with tk.record(tmp_path, **QUICK) as recording:
        for _ in range(NEEDED):
            work()
            recording.step()
    noted = document(recording.path)["tracekit"]
    assert len(noted["unprofiled_step_us"]) == QUICK["timed"]
    assert min(noted["unprofiled_step_us"]) > 0
    assert noted["software"]["torch"] == torch.__version__
    assert document(recording.path)["record_shapes"] == 1


def test_what_it_notes_names_no_host_and_no_variable_that_may_hold_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_COMM_ID", "10.0.0.7:4242")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("WANDB_API_KEY", "s3cr3t")
    with tk.record(tmp_path, **QUICK) as recording:
        for _ in range(NEEDED):
            recording.step()
    noted = document(recording.path)["tracekit"]
    assert noted["software"]["variables"].get("NCCL_ALGO") == "Ring"
    assert "10.0.0.7" not in json.dumps(noted)
    assert "s3cr3t" not in json.dumps(noted)


def test_a_decorated_function_is_a_step_and_gives_its_result_back(tmp_path: Path) -> None:
    recording = tk.record(tmp_path, **QUICK)

    @recording
    def double(value: int) -> int:
        """Twice."""
        return 2 * value

    assert [double(value) for value in range(NEEDED + 2)] == [2 * value for value in range(NEEDED + 2)]
    assert double.__doc__ == "Twice."
    assert len(steps(recording.path)) == 2


def test_a_loop_that_ends_early_leaves_what_was_recorded(tmp_path: Path) -> None:
    with tk.record(tmp_path, **QUICK) as recording:
        for _ in range(NEEDED - 1):
            work()
            recording.step()
    assert "ProfilerStep#1" in steps(recording.path)


DECORATED = "@recording\ndef step(): work()\n"
BY_HAND = "recording.__enter__()\ndef step(): work(); recording.step()\n"


@pytest.mark.parametrize(
    ("begin", "calls", "recorded", "said"), [(DECORATED, 5, True, "wrote "), (BY_HAND, 3, False, "took 3 steps")]
)
def test_a_program_that_ends_without_an_end_of_the_recording_ends_well(
    begin: str, calls: int, recorded: bool, said: str, tmp_path: Path
) -> None:
    """A profiler that was left running crashed the process as it ended."""
    program = (
        "import torch, tracekit as tk\n"
        "recording = tk.record('traces', wait=1, timed=2, warmup=1, active=2)\n"
        "def work(): torch.ones(8, 8) @ torch.ones(8, 8)\n"
        f"{begin}for _ in range({calls}): step()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert said in done.stderr
    assert (tmp_path / "traces" / "trace.json.gz").exists() is recorded


def test_a_program_that_fails_leaves_what_was_recorded_and_its_own_error(tmp_path: Path) -> None:
    recording = tk.record(tmp_path, **QUICK)

    def program() -> None:
        with recording:
            for _ in range(NEEDED - 1):
                recording.step()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert recording.path is not None


def test_too_few_steps_are_said(tmp_path: Path) -> None:
    def program() -> None:
        with tk.record(tmp_path, **QUICK) as recording:
            recording.step()
            recording.step()

    with pytest.raises(RecordingError, check=has_code("steps-too-few")):
        program()
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_trace_is_kept(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_text("mine")
    with pytest.raises(RecordingError, match="overwrite=True", check=has_code("recording-exists")):
        tk.record(tmp_path, **QUICK).__enter__()
    assert (tmp_path / "trace.json.gz").read_text() == "mine"


def test_facts_that_this_pytorch_doesn_t_know_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.4 tells no UUID of a GPU, and PyTorch for Windows has no NCCL."""
    gpu = SimpleNamespace(name="a GPU", multi_processor_count=4, total_memory=2**30, major=8, minor=6)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    found = facts.collect_facts()
    assert found["gpu"] == {"name": "a GPU", "sms": 4, "memory_bytes": 2**30, "compute_capability": "8.6"}
    assert found["software"]["nccl"] is None


def test_each_rank_writes_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    with tk.record(tmp_path, **QUICK) as recording:
        for _ in range(NEEDED):
            recording.step()
    assert recording.path == tmp_path / "trace_rank3.json.gz"


@pytest.mark.parametrize("counts", [{"active": 0}, {"wait": -1}, {"timed": -1}])
def test_counts_that_record_nothing_are_refused(counts: dict[str, int]) -> None:
    with pytest.raises(TracekitError, check=has_code("plan-empty")):
        tk.record(**counts)


def test_it_needs_nothing_but_pytorch() -> None:
    """What tracekit needs otherwise is missing where a training runs."""
    program = (
        "import sys\n"
        "for name in ('numba', 'polars', 'msgspec', 'typer', 'rich', 'isal', 'pandas'): sys.modules[name] = None\n"
        "import tracekit as tk\n"
        "tk.record(quiet=True)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_pytorch_it_says_so() -> None:
    program = "import sys; sys.modules['torch'] = None; sys.argv = ['tracekit', 'record', 'train.py']\n"
    program += "from tracekit.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install torch" in done.stderr
