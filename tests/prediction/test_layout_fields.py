"""Each field of a requested layout changes a prediction, or is refused: none is accepted and then not read."""

from dataclasses import fields
from functools import cache

import pytest

import tracekit as tk
from tests.asking import predict
from tests.codes import has_code
from tests.conftest import SAMPLES
from tracekit.parallelism.layout import LayoutError, LayoutRequest
from tracekit.request import PredictRequest
from tracekit.request.options.layout import LayoutOptions, ScheduleOptions
from tracekit.run import prepare_run

CLUSTER = "8xh100-sxm"
TRAINING, DECODING = "synthetic_transformer_train.json.gz", "recorded/h100-sxm_llama_decode.json.gz"
STAGES = {"pp": 2, "micro_batches": 8}
CHANGES = {
    "world_size": (TRAINING, {}, 8),
    "dp": (TRAINING, {}, 8),
    "tp": (TRAINING, {}, 2),
    "pp": (TRAINING, {}, 2),
    "micro_batches": (TRAINING, STAGES, 16),
    "chunks": (TRAINING, STAGES, 2),
    "zero_bubble": (TRAINING, STAGES, True),
    "batch": (TRAINING, {}, 2.0),
    "fsdp": (TRAINING, {"dp": 8}, True),
    "zero": (TRAINING, {"dp": 8}, 1),
    "sequence_parallel": (TRAINING, {"tp": 2}, True),
    "cp": (TRAINING, {}, 2),
    "cp_ring": (TRAINING, {"cp": 2}, True),
    "context": (DECODING, {}, 4096),
    "sync_every": (TRAINING, {"dp": 8}, 10),
    "sync_within": (TRAINING, {"dp": 8, "sync_every": 10}, 2),
    "balance": (TRAINING, {"dp": 8, "cluster": "4xh100-sxm + 4xa100-sxm-80gb@eth100", "samples": 64}, True),
}
"""Trace, what else is asked for, and the field's value."""
SCHEDULES = {"chunks": "interleaved:2", "zero_bubble": "zero-bubble"}
"""Fields that one option of a request sets."""
REFUSED = {
    "ep": (TRAINING, {}, 8, "no-grouped-experts"),
    "plan": (TRAINING, {}, "plan.json", "plan-without-tables"),
    "gradient_compression": (TRAINING, {"dp": 8}, "fp16", "gradients-narrow"),
}


@cache
def compute_step_us(sample: str, **asked: object) -> float:
    others = {name: value for name, value in asked.items() if name not in SCHEDULES}
    schedule = next((SCHEDULES[name] for name in asked if name in SCHEDULES), None)
    predicted = predict(load(sample), (), **{"cluster": CLUSTER, **others}, pp_schedule=schedule, host="same")
    return predicted.targets[0].step.step_time_us


@cache
def load(sample: str):
    return prepare_run(tk.load(SAMPLES / sample))


def test_every_field_is_tried():
    assert {field.name for field in fields(LayoutRequest)} == {*CHANGES, *REFUSED}


@pytest.mark.parametrize("field", CHANGES)
def test_a_field_changes_the_step(field):
    sample, others, value = CHANGES[field]
    assert compute_step_us(sample, **{**others, field: value}) != compute_step_us(sample, **others)


@pytest.mark.parametrize("field", REFUSED)
def test_a_field_is_refused_where_nothing_would_change(field):
    sample, others, value, code = REFUSED[field]
    with pytest.raises(LayoutError, check=has_code(code)):
        compute_step_us(sample, **{**others, field: value})


OPTIONS = {
    "pp_schedule": "zero-bubble",
    "fsdp": True,
    "shard_optimizer": True,
    "sequence_parallel": True,
    "cp_ring": True,
    "balance": True,
    "plan": "plan.json",
    "gradient_compression": "fp16",
}
"""Options whose value is no number."""


@pytest.mark.parametrize("option", [field.name for kind in (LayoutOptions, ScheduleOptions) for field in fields(kind)])
def test_every_option_of_a_layout_is_asked_for(option):
    asked = PredictRequest(gpu="h100-sxm", **{option: OPTIONS.get(option, 2)})
    assert asked.layout != PredictRequest(gpu="h100-sxm").layout
