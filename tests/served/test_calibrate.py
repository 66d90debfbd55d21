"""Steps of a trace calibrate those predicted."""

import json

import numpy as np
import pytest

from tests.jobs import served
from tracekit.comm import load_cluster
from tracekit.models.llm import parse_model_config
from tracekit.run import prepare_run
from tracekit.served.calibrate import MeasuredEngineStep, calibrate_steps, measure_engine_steps
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
    measured = [
        MeasuredEngineStep("decode", 2 * decode, 2 * decode, 0, 0, 16),
        MeasuredEngineStep("prefill", 1.5 * prefill, 1.5 * prefill, 2048, 1, 0),
    ]
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
    measured = [MeasuredEngineStep("prefill", 3 * prefill, 3 * prefill, 2048, 1, 0)]
    found = calibrate_steps(measured, MODEL, ENGINE, NODE, 1000)
    here = found.apply(times, STEPS.new_tokens, "h100-sxm")
    assert here.gpu_us[:, 0] == pytest.approx(times.gpu_us[:, 0])
    assert here.gpu_us[1][1] == pytest.approx(3 * prefill)


def test_an_idle_gpu_tells_the_pace_of_the_engine() -> None:
    times = predict_engine_steps(MODEL, ENGINE, NODE, STEPS)
    decode = times.gpu_us[1][0]
    found = calibrate_steps([MeasuredEngineStep("decode", 30_000, decode, 0, 0, 16)], MODEL, ENGINE, NODE, 1000)
    assert found.host_us == 30_000
    assert found.apply(times, STEPS.new_tokens, "b200").step_us[1].min() >= 30_000 * 0.999


def test_gaps_between_steps_are_kept() -> None:
    """The GPU idles for 0.1 ms of a step: each step of any kind and GPU takes as much longer."""
    times = predict_engine_steps(MODEL, ENGINE, NODE, STEPS)
    decode = times.gpu_us[1][0]
    found = calibrate_steps([MeasuredEngineStep("decode", decode + 100, decode, 0, 0, 16)], MODEL, ENGINE, NODE, 1000)
    assert (found.host_us, found.gap_us) == (None, pytest.approx(100))
    assert found.apply(times, STEPS.new_tokens, "b200").gpu_us[1] == pytest.approx(times.gpu_us[1] + 100)


def test_where_the_cpu_sets_the_pace_of_decoding_no_gap_is_added() -> None:
    """Steps of prompts have a gap of 0.1 ms, but 30 ms of a decode step are the engine's own already."""
    decode, prefill = predict_engine_steps(MODEL, ENGINE, NODE, STEPS).gpu_us[1]
    measured = [
        MeasuredEngineStep("decode", 30_000, decode, 0, 0, 16),
        MeasuredEngineStep("prefill", prefill + 100, prefill, 2048, 1, 0),
    ]
    found = calibrate_steps(measured, MODEL, ENGINE, NODE, 1000)
    assert (found.host_us, found.gap_us) == (30_000, 0)


def test_marks_tell_what_steps_work_on() -> None:
    """Eight sequences with 1000 tokens each in the cache; two prompts of 256 beside them in mixed steps."""
    decode = "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk8000sqsq8sqsk8000)"
    mixed = "execute_520_context_2(512)_generation_8(8)"
    runs = [prepare_run(served(*[mark] * 4, kernel=95).load()) for mark in (decode, mixed)]
    measured = measure_engine_steps(runs)
    assert measured == [
        MeasuredEngineStep("decode", 100, 95, 0, 0, 8, 1000),
        MeasuredEngineStep("mixed", 100, 95, 512, 2, 8, None),
    ]
    found = calibrate_steps(measured, MODEL, ENGINE, NODE, 700)
    assert found.assumed_context == 700
    shapes = StepShapes(*(np.array(one) for one in ([0.0, 512], [0.0, 2], [8.0, 8], [1000.0, 700])))
    alone, beside = predict_engine_steps(MODEL, ENGINE, NODE, shapes).gpu_us[1]
    assert found.factors == pytest.approx({"decode": 95 / alone, "prefill": 95 / beside})
