"""Steps of a trace calibrate those predicted."""

import json

import numpy as np
import pytest

from tracekit.comm import load_cluster
from tracekit.models.llm import parse_model_config
from tracekit.served.calibrate import MeasuredEngineStep, calibrate_steps
from tracekit.served.model import ServedModel, ServingEngine
from tracekit.served.steps import StepShapes, predict_engine_steps

SIZES = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
MODEL = ServedModel(parse_model_config(json.dumps(SIZES).encode(), "config.json"))
ENGINE, NODE = ServingEngine("vllm"), load_cluster("1xh100-sxm")
STEPS = StepShapes(np.array([0.0, 2048]), np.array([0.0, 1]), np.array([16.0, 0]), np.array([1000.0, 0]))


def test_measured_steps_scale_those_of_their_kind() -> None:
    """Decode steps took twice what is predicted, with the GPU always busy; prefill one and a half times."""
    times = predict_engine_steps(MODEL, ENGINE, NODE, STEPS)
    decode, prefill = times.gpu_us[1]
    measured = {
        "decode": MeasuredEngineStep(2 * decode, 2 * decode, 0, 0, 16),
        "prefill": MeasuredEngineStep(1.5 * prefill, 1.5 * prefill, 2048, 1, 0),
    }
    found = calibrate_steps(measured, MODEL, ENGINE, NODE, 1000)
    assert found.factors == pytest.approx({"decode": 2.0, "prefill": 1.5})
    assert found.host_us is None
    here, there = (found.apply(times, STEPS.new_tokens, gpu) for gpu in ("h100-sxm", "l40s"))
    assert here.gpu_us[1] == pytest.approx([2 * decode, 1.5 * prefill])
    assert there.gpu_us == pytest.approx(times.gpu_us * [2, 1.5])
    assert here.gpu_us[2] / here.gpu_us[1] == pytest.approx(np.sqrt(times.gpu_us[2] / times.gpu_us[1]))


def test_steps_of_a_kind_that_was_not_measured_stay() -> None:
    times = predict_engine_steps(MODEL, ENGINE, NODE, STEPS)
    prefill = times.gpu_us[1][1]
    found = calibrate_steps(
        {"prefill": MeasuredEngineStep(3 * prefill, 3 * prefill, 2048, 1, 0)}, MODEL, ENGINE, NODE, 1000
    )
    here = found.apply(times, STEPS.new_tokens, "h100-sxm")
    assert here.gpu_us[:, 0] == pytest.approx(times.gpu_us[:, 0])
    assert here.gpu_us[1][1] == pytest.approx(3 * prefill)


def test_an_idle_gpu_tells_the_pace_of_the_engine() -> None:
    times = predict_engine_steps(MODEL, ENGINE, NODE, STEPS)
    decode = times.gpu_us[1][0]
    found = calibrate_steps({"decode": MeasuredEngineStep(30_000, decode, 0, 0, 16)}, MODEL, ENGINE, NODE, 1000)
    assert found.host_us == 30_000
    assert found.apply(times, STEPS.new_tokens, "b200").step_us[1].min() >= 30_000 * 0.999
