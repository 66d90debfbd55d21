"""The tables that a session on a GPU gives, on traces made by hand."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.validation.studies import recorded_samples
from tracekit.testing import A100, TraceBuilder

H100 = A100 | {"name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "numSms": 132}


def sample(path: Path, dur: float, *, gpu: dict[str, Any] = A100, tokens: int = 512) -> None:
    """A product that the host waits for."""
    dims = [[tokens, 1024], [1024, 4096]]
    builder = TraceBuilder(gpu).op("aten::mm", 0, 10, dims=dims, types=["c10::BFloat16"] * 2)
    builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", 20, dur, launch=2)
    path.parent.mkdir(exist_ok=True)
    builder.call("cudaDeviceSynchronize", 12, dur + 10).save(path)


@pytest.fixture
def runs(tmp_path: Path) -> recorded_samples.Runs:
    sample(tmp_path / "a100_gpt2_train.json.gz", 100)
    sample(tmp_path / "a100_gpt2_train_batch16.json.gz", 190, tokens=1024)
    return recorded_samples.read_samples(tmp_path)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_change_is_held_against_the_sample_recorded_with_it(runs: recorded_samples.Runs, tmp_path: Path) -> None:
    sample(tmp_path / "slow" / "a100_gpt2_train.json.gz", 100)
    slow, batch = recorded_samples.list_edits(runs, recorded_samples.read_samples(tmp_path / "slow"))
    assert slow[:2] == ("gpt2_train", "`host-speed(0.5)`")
    assert batch[:3] == ("gpt2_train", "`--batch 2`", "0.122 ms")
    assert batch[4] == "0.212 ms"
    assert float(batch[3].split()[0]) > 0.18


def test_a_public_trace_is_predicted_for_this_gpu(runs: recorded_samples.Runs, tmp_path: Path) -> None:
    sample(tmp_path / "public" / "gpt2_train.json.gz", 40, gpu=H100)
    (row,) = recorded_samples.list_public(runs, tmp_path / "public")
    name, step, measured, busy, measured_busy, _ = row
    assert (name, measured, measured_busy) == ("gpt2_train", "0.122 ms", "0.1 ms")
    assert float(busy.split()[0]) > 0.04
    assert "–" in step
