"""Steps of an engine, many at once, take what `predict` says of each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracekit as tk
from predictors.given_files import read_toml
from tests.served.test_engine_step import DENSE, LATENT, write
from tracekit.comm import load_cluster
from tracekit.request import PredictRequest
from tracekit.request.program_options import ProgramOptions
from tracekit.served.defaults import HOST_FILE, load_host_times
from tracekit.served.engine_kernels import StepSizes
from tracekit.served.engine_step import read_served_model
from tracekit.served.model import ServingEngine
from tracekit.served.steps import EngineStepTimes, StepShapes, count_launches, predict_engine_steps

SHAPES = StepShapes(np.array([0.0, 900]), np.array([0.0, 3]), np.array([8.0, 0]), np.array([999.0, 0]))
"""A decode step of 8 sequences, and three prompts of 300 tokens."""


@pytest.mark.parametrize(
    ("config", "ranks", "precision", "gpu"),
    [
        (DENSE, 1, None, "h100-sxm"),
        (LATENT, 4, "fp8_block", "b200"),
        pytest.param(LATENT, 2, None, "a100-sxm-80gb", marks=pytest.mark.heavy),
    ],
)
def test_steps_take_what_predict_says(
    tmp_path: Path, config: dict[str, Any], ranks: int, precision: str | None, gpu: str
) -> None:
    name = write(tmp_path, config)
    where: dict[str, Any] = {"gpu": gpu} if ranks == 1 else {"cluster": f"{ranks}x{gpu}", "tp": ranks}
    asked = {
        8: ProgramOptions(decode=True, seq=999, precision=precision),
        3: ProgramOptions(prefill=True, seq=300, precision=precision),
    }
    model = read_served_model(name, precision, None)
    found = predict_engine_steps(model, ServingEngine("vllm", None, ranks), load_cluster(f"{ranks}x{gpu}"), SHAPES)
    # 400, 1,800 and 2,900 us for a step, and 5, 15 and 24 for each of 8 sequences or 3 prompts.
    assert found.host_us.T.tolist() == [[440, 1920, 3092], [415, 1845, 2972]]
    for (batch, program), gpu_us in zip(asked.items(), found.gpu_us.T, strict=True):
        trace, left = program.capture_trace(name, PredictRequest(**where, framework="vllm", batch=batch))
        (predicted,) = tk.predict(trace, **where, framework=left.framework, no_calibration=True).values()
        ends = (predicted.low_us, predicted.step.step_time_us, predicted.high_us)
        assert gpu_us == pytest.approx(ends, rel=1e-6)


@pytest.mark.parametrize("seen", read_toml(HOST_FILE)["seen"], ids=lambda seen: f"{seen['engine']} {seen['us']}")
def test_times_of_the_cpu_agree_with_those_seen(seen: dict[str, Any]) -> None:
    """A whole is inside the interval, a part below its high end, and what a step took at most above its low end."""
    low, likely, high = load_host_times()[seen["engine"]].compute_us(np.array([float(seen["sequences"])]))[:, 0]
    assert low < likely < high
    holds = {
        "paces": low <= seen["us"] <= high,
        "part": seen["us"] <= high,
        "at_most": likely <= seen["us"],
        "elsewhere": seen["us"] > high,
    }
    assert holds[seen["kind"]]
    assert seen["source"]


def test_the_longer_of_gpu_and_host_is_the_step() -> None:
    gpu_us, host_us = np.array([[1.0, 9.0], [2.0, 9.0], [3.0, 9.0]]), np.array([[0.5, 8.0], [5.0, 9.5], [6.0, 11.0]])
    found = EngineStepTimes(gpu_us, host_us, power_w=np.array([100.0, 100.0])).step_us
    assert found.tolist() == [[1.0, 9.0], [5.0, 9.5], [6.0, 11.0]]


def test_a_step_of_both_launches_what_either_needs(tmp_path: Path) -> None:
    """With latent attention, prompts read keys and values of each head, sequences the cache itself."""
    model = read_served_model(write(tmp_path, LATENT), None, None)
    calls, launches = count_launches(model, ServingEngine("vllm"), [StepSizes(600, 2, 8, 99)])
    attended = {str(call.dims[:2]): count for call, count in zip(calls, launches[0], strict=True) if "paged" in call.op}
    assert attended == {
        "[[8, 1, 16, 160], [8, 100, 1, 160]]": 2,
        "[[2, 300, 16, 96], [2, 300, 16, 96]]": 2,
    }
    expanded = [call.dims for call in calls if call.op == "aten::mm" and call.dims[0][0] == 600]
    assert expanded == [[[600, 128], [128, 16 * 128]]]
    assert sum(count for call, count in zip(calls, launches[0], strict=True) if call.op == "aten::embedding") == 1


def test_stages_pass_a_batch_on_and_share_the_cpu(tmp_path: Path) -> None:
    """Both stages of a pass take as long as the whole model does, and a send; the CPU prepares a batch for each."""
    model = read_served_model(write(tmp_path, DENSE), None, None)
    one, two = (
        predict_engine_steps(model, ServingEngine("vllm", stages=stages), load_cluster(f"{stages}xh100-sxm"), SHAPES)
        for stages in (1, 2)
    )
    assert (two.host_us == 2 * one.host_us).all()
    assert (two.gpu_us[1] > one.gpu_us[1]).all()
    assert (two.gpu_us[1] < one.gpu_us[1] + 500).all()
