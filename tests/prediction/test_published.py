"""What the published throughputs that were carried to a GPU say of predictions for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tracekit as tk
from predictors import list_gpus, load_gpu
from predictors.weights_file import shipped_sha256
from tracekit.messages import Message
from tracekit.prediction import track_record
from tracekit.prediction.changed_step import ChangedStep
from tracekit.prediction.job import JobReplays, WholeJob
from tracekit.prediction.part import PartOnTarget, PartTarget
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

A100 = load_gpu("a100-sxm-80gb")

TABLE = """
weights = "{weights}"

[jobs.h100-sxm]
pairs = 40
median = 27.0
worst = -50.4

[jobs.l40s]
pairs = 40
median = -9.9
worst = -50.4

[jobs.rtx-4090]
pairs = 19
median = -27.0
worst = -50.4
"""


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    track_record._load_track_record.cache_clear()
    yield
    track_record._load_track_record.cache_clear()


def build_product() -> TraceBuilder:
    """One product of 4500 on an A100, for which the CPU waits."""
    dims = [[8192, 8192], [8192, 8192]]
    builder = TraceBuilder().op("aten::mm", 0, 20, dims=dims, types=["c10::BFloat16"] * 2)
    builder.kernel("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", 15, 4500, launch=5)
    return builder.call("cudaDeviceSynchronize", 20, 4600)


def notes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str | None, target: str, weights: str
) -> list[Message]:
    """The notes by a table that is known."""
    table = tmp_path / "jobs.toml"
    table.write_text(TABLE.format(weights=weights))
    monkeypatch.setattr(track_record, "TRACK_RECORD_FILE", table)
    run = prepare_run(build_product().load())
    job, gpu = WholeJob(run, run.program, None, None), load_gpu("a100-sxm-80gb")
    as_measured = PartOnTarget(job.places[0], PartTarget(gpu, gpu, {}))
    changed = ChangedStep(JobReplays(job, [as_measured]), 1.0, run.measured_step.step_time_us)
    return list(track_record.note_track_record(load_gpu(source) if source else None, load_gpu(target), changed))


def test_a_gpu_that_published_jobs_missed_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (note,) = notes(monkeypatch, tmp_path, "a100-sxm-80gb", "h100-sxm", shipped_sha256())
    assert note.code == "target-predicted-too-fast"
    step_us = note.values["step_us"]
    assert note.values == {"pairs": 40, "gpu": "h100-sxm", "bias_pct": 27, "worst_pct": -50.4, "step_us": step_us}
    assert step_us == pytest.approx(4620 + 0.27 * 4500, rel=0.01)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param("h200-sxm", "h100-sxm", id="sibling"),
        pytest.param(None, "h100-sxm", id="source unknown"),
        pytest.param("a100-sxm-80gb", "l40s", id="near enough"),
        pytest.param("a100-sxm-80gb", "rtx-4090", id="too few"),
        pytest.param("a100-sxm-80gb", "b200", id="none published"),
    ],
)
def test_nothing_is_told_where_they_say_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str | None, target: str
) -> None:
    assert notes(monkeypatch, tmp_path, source, target, shipped_sha256()) == []


def test_errors_of_other_weights_are_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert notes(monkeypatch, tmp_path, "a100-sxm-80gb", "h100-sxm", "0" * 64) == []


def test_the_shipped_table_is_of_the_shipped_weights() -> None:
    assert track_record.find_known_bias(load_gpu("a100-sxm-80gb"), load_gpu("h100-sxm")) != 1


@pytest.mark.parametrize(
    "target", [slug for slug in list_gpus() if track_record.find_known_bias(A100, load_gpu(slug)) != 1]
)
def test_no_note_states_an_error_that_the_interval_excludes(target: str) -> None:
    """Of a step that is one product, by the shipped table."""
    [found] = tk.predict(build_product().load(), gpu=target).targets
    (note,) = (one for one in found.notes if one.code.startswith("target-predicted-too-"))
    sign = 1 if note.code == "target-predicted-too-fast" else -1
    stated_us = found.step.kernel_time_us * (1 + sign * note.values["bias_pct"] / 100)
    rest_us = found.step.step_time_us - found.step.kernel_time_us
    assert note.values["step_us"] == pytest.approx(stated_us + rest_us, rel=1e-3)
    assert found.low_us <= stated_us + rest_us <= found.high_us


def test_errors_of_kernels_are_not_told_of_a_step_that_the_cpu_paces() -> None:
    builder = TraceBuilder()
    for start in range(0, 1000, 100):
        builder.op("aten::mm", start, 90, dims=[[64, 64]] * 2, types=["c10::BFloat16"] * 2)
        builder.kernel("ampere_bf16_s16816gemm_bf16_64x64", start + 85, 5, launch=start + 80)
    [found] = tk.predict(builder.load(), gpu="h100-sxm").targets
    assert not any(note.code.startswith("target-predicted-too-") for note in found.notes)
