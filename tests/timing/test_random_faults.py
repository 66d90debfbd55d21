"""Faults at random in whole traces: the answer stays within 5 %, or tracekit says that something is wrong."""

import copy
import gzip
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.asking import predict
from tests.conftest import SAMPLES
from tracekit.doctor import examine
from tracekit.errors import TracekitError
from tracekit.ingest import load_bytes
from tracekit.reporting import build_report
from tracekit.run import prepare_run

pytestmark = pytest.mark.heavy

FOLDER = Path(os.environ.get("TRACEKIT_REAL_TRACES", ""))
REAL = ("h100_vit_inference", "v100_dlrm_train_rank0_of_8", "mi300x_bert_small_inference", "hta_critical_path_alexnet")
PATHS = [
    *sorted(SAMPLES.glob("synthetic*.json.gz")),
    *(FOLDER / f"{name}.json.gz" for name in REAL if FOLDER.name and (FOLDER / f"{name}.json.gz").exists()),
]
TOLERANCE = 0.05
IS_SEARCH = "TRACEKIT_FAULT_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("TRACEKIT_FAULT_EXAMPLES", "6"))
"""Faults tried on each trace: the same ones in every build, others each time where the variable asks for a number."""
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    step_us: float
    said: frozenset[str]


def answer(document: dict[str, Any]) -> Answer:
    """Return the step on an H100, and the codes of all that is said of it."""
    trace = load_bytes(json.dumps(document).encode(), "test")
    run = prepare_run(trace)
    predicted = predict(run, ["h100-sxm"])
    warnings = {warning.code for warning in build_report(run).warnings}
    checks = {f"doctor {check.name} {check.status}" for check in examine(trace, run).checks if check.status != "ok"}
    return Answer(predicted.targets[0].step.step_time_us, frozenset(warnings | checks))


@cache
def load_document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), strict=False)
    return document


@cache
def answer_clean(path: Path) -> Answer:
    return answer(load_document(path))


def add_time(events: Events, size: float) -> None:
    for event in events:
        event["ts"] = float(event["ts"]) + size


def lengthen(events: Events, size: float) -> None:
    for event in events:
        event["dur"] = max(float(event["dur"]) + size, 0)


def set_fields(**fields: Any) -> Any:
    return lambda events, size: [event.update(fields) for event in events] and None


def drop_ids(events: Events, size: float) -> None:
    for event in events:
        event.get("args", {}).pop("correlation", None)


FAULTS = {
    "moved": add_time,
    "lengthened": lengthen,
    "of no duration": set_fields(dur=0),
    "without a time": set_fields(ts=0, dur=0),
    "of a category that isn't read": set_fields(cat="hpu_op"),
    "of a phase that isn't read": set_fields(ph="C"),
    "without ids": drop_ids,
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.partition(".")[0])
@settings(max_examples=EXAMPLES, derandomize=not IS_SEARCH, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    fault=st.sampled_from(sorted(FAULTS)),
    of=st.sampled_from(["kernels", "all kernels", "waits", "launches", "ops"]),
    first=st.floats(0, 1),
    many=st.integers(1, 20),
    size=st.sampled_from([-1e14, -1e11, -1e6, -3e3, -50.0, 50.0, 3e3, 1e6, 1e11]),
)
def test_faults_are_put_right_or_said(path: Path, fault: str, of: str, first: float, many: int, size: float) -> None:
    clean = answer_clean(path)
    document = copy.deepcopy(load_document(path))
    events = document["traceEvents"]
    if "kernels" in of:
        chosen = [event for event in events if event.get("cat") in GPU_CATEGORIES and event.get("ph") == "X"]
    elif of == "ops":
        chosen = [event for event in events if event.get("cat") == "cpu_op" and event.get("ph") == "X"]
    else:
        word = "Synchronize" if of == "waits" else "Launch"
        chosen = [event for event in events if word in str(event.get("name")) and "runtime" in str(event.get("cat"))]
    if of != "all kernels":
        start = int(first * len(chosen))
        chosen = chosen[start : start + many]
    FAULTS[fault](chosen, size)
    try:
        found = answer(document)
    except TracekitError:
        return
    assert found.step_us == pytest.approx(clean.step_us, rel=TOLERANCE) or found.said - clean.said
