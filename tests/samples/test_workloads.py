"""The models that the samples are recorded from: small ones, on the CPU."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from sample_traces import record as record_samples
from sample_traces.workloads import REBUILT, WORKLOADS

PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::convolution", "aten::_embedding_bag"}


def list_products(step: Callable[[], object]) -> list[str]:
    """Run a step, and return the ops of it that take a network's time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        step()
    return sorted(event.name for event in profiled.events() if event.name in PRODUCTS)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_can_be_stepped_again_and_again(workload: str) -> None:
    step = WORKLOADS[workload]("cpu", True)
    first = list_products(step)
    assert first
    assert list_products(step) == first


@pytest.mark.parametrize("workload", REBUILT)
def test_jobs_of_public_traces_step_too(workload: str) -> None:
    if "train" not in workload:
        pytest.importorskip("transformers")
    assert list_products(REBUILT[workload]("cpu", True))


def test_what_to_record_is_checked_before_anything_is() -> None:
    assert record_samples.parse_workloads([]) == list(WORKLOADS)
    assert record_samples.parse_workloads(["rebuilt", "gpt2_train"]) == [*REBUILT, "gpt2_train"]
    with pytest.raises(SystemExit, match="no workload 'gpt3'; there are resnet50_train, "):
        record_samples.parse_workloads(["gpt2_train", "gpt3"])


def test_a_sample_names_no_host(tmp_path: Path) -> None:
    path = record_samples.record("llama_prefill", tmp_path, "sample", "cpu", small=True)
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert not set(record_samples.PRIVATE_KEYS) & set(trace)
    assert trace["traceName"] == "sample.json"
    assert len(trace["tracekit"]["unprofiled_step_us"]) == record_samples.STEPS["timed"]
