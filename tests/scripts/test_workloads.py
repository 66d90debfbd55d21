"""The models that the samples are recorded from: small ones, on the CPU."""

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import record_samples
from workloads import WORKLOADS


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_can_be_stepped_again_and_again(workload: str) -> None:
    step = WORKLOADS[workload]("cpu", True)
    step()
    step()


def test_a_sample_names_no_host(tmp_path: Path) -> None:
    path = record_samples.record("llama_prefill", tmp_path, "sample", "cpu", small=True)
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert not set(record_samples.PRIVATE_KEYS) & set(trace)
    assert trace["traceName"] == "sample.json"
    assert len(trace["tracekit"]["unprofiled_step_us"]) == record_samples.STEPS["timed"]
