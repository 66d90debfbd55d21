"""Our own traces of an H100 and an H200, of the same jobs: sample_traces/recorded."""

from functools import cache
from pathlib import Path

import pytest

import tracekit as tk
from predictors import load_gpu
from tests.asking import predict
from tracekit.doctor import examine
from tracekit.doctor.model import Status
from tracekit.hosts import measure_host_speed
from tracekit.run import MeasuredRun, prepare_run

pytestmark = pytest.mark.heavy

FOLDER = Path(__file__).parents[1] / "sample_traces" / "recorded"
TRACES = sorted(path.name for path in FOLDER.glob("*.json.gz"))
JOBS = ("bert_inference", "gpt2_train_compiled", "llama_prefill", "moe_train", "resnet50_train", "vit_train")
REPLAY_ERROR_PCT = 0.5
BUSY_ERROR = 0.12
"""Of the time on the GPU, predicted from the other one: of single jobs up to 9 %."""


@cache
def measured(name: str) -> MeasuredRun:
    """A trace's run, read once for all that is asked of it."""
    return prepare_run(tk.load(FOLDER / name))


@pytest.mark.parametrize("name", TRACES)
def test_each_replays_as_it_was_measured(name: str) -> None:
    run = measured(name)
    assert run.gpu is not None
    assert name.startswith(run.gpu.slug)
    assert abs(run.self_replay.error_pct) <= REPLAY_ERROR_PCT


@pytest.mark.parametrize("job", JOBS)
def test_the_other_gpus_time_is_near_the_measured_one(job: str) -> None:
    for here, there in (("h100-sxm", "h200-sxm"), ("h200-sxm", "h100-sxm")):
        source, target = measured(f"{here}_{job}.json.gz"), measured(f"{there}_{job}.json.gz")
        found = predict(source, [there])[there]
        assert found.step.kernel_time_us == pytest.approx(target.measured_step.kernel_time_us, rel=BUSY_ERROR)


def test_the_other_machines_host_is_told_by_its_ops() -> None:
    """A ViT's training took 1.85 times as long beside the H100, all of it the host's."""
    slow, fast = (measured(f"{gpu}_vit_train.json.gz") for gpu in ("h100-sxm", "h200-sxm"))
    hosts = [measure_host_speed(run.ranks) for run in (slow, fast)]
    assert hosts[0] is not None
    assert hosts[1] is not None
    assert hosts[1].speed / hosts[0].speed == pytest.approx(1.85, rel=0.1)
    found = predict(slow, ["h200-sxm"], host=hosts[1].speed)["h200-sxm"]
    assert found.step.step_time_us == pytest.approx(fast.measured_step.step_time_us, rel=0.15)


def test_an_h200_is_never_slower_than_the_h100_that_was_measured() -> None:
    """It has more memory and bandwidth, and otherwise the same figures."""
    assert load_gpu("h200-sxm").bandwidth_gbps > load_gpu("h100-sxm").bandwidth_gbps
    for job in JOBS:
        found = predict(measured(f"h100-sxm_{job}.json.gz"), ["h200-sxm"])["h200-sxm"]
        times = found.kernels["time_us"] - measured(f"h100-sxm_{job}.json.gz").kernels["dur_ns"] / 1e3
        assert times.max() <= 1e-6


def test_what_the_recorder_notes_is_read() -> None:
    trace = tk.load(FOLDER / "h100-sxm_gpt2_train.json.gz")
    run = prepare_run(trace)
    assert run.trace.unprofiled_step_us is not None
    found = examine(trace, run)
    assert (found.grade, [check.name for check in found.checks if check.status is Status.FAIL]) == ("A", [])
