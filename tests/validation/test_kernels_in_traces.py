"""Kernels of a trace beside what their shapes say."""

from pathlib import Path
from typing import Any

import polars as pl

from predictors import predict
from tests.validation.studies.kernels.in_traces import predict_from_shapes, summarize_kernels, summarize_trace
from tracekit.testing import TraceBuilder

SIDE = 8192
ADD: dict[str, Any] = {"dims": [[SIDE, SIDE], [SIDE, SIDE], []], "types": ["float", "float", "Scalar"]}
NAME = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>"
SHAPE = {
    "family": "elementwise",
    "dtype": "fp32",
    "rows": SIDE,
    "cols": SIDE,
    "bytes": 12.0 * SIDE**2,
    "flops": SIDE**2,
}


def record(path: Path, *durations_us: float) -> Path:
    """A trace of additions that took so long, and of a kernel that nobody knows."""
    trace, start = TraceBuilder(), 100.0
    for duration_us in durations_us:
        trace.op("aten::add", start - 20, 10, **ADD).kernel(NAME, start, duration_us, launch=start - 15)
        start += duration_us + 50
    trace.kernel("someones_kernel", start, 100, launch=start - 5)
    return trace.save(path / "job.json")


def test_families_are_held_against_what_their_shapes_say(tmp_path: Path) -> None:
    us = predict(pl.DataFrame([SHAPE]), "a100-sxm-80gb")["time_us"][0]
    kernels = predict_from_shapes(record(tmp_path, us / 1.05, us / 1.05))
    assert kernels is not None
    total, *families = summarize_trace("job", kernels)
    known = 100 * 2 * us / 1.05 / (2 * us / 1.05 + 100)
    assert total == ("job", "all", "100 %", f"{known:.0f} %", "+5 %", "1", "5 %", "1")
    assert [row[1] for row in families] == ["elementwise", "other"]


def test_a_kernel_that_beats_its_bound_does_not_do_what_its_tensors_tell(tmp_path: Path) -> None:
    kernels = predict_from_shapes(record(tmp_path, 10.0))
    assert kernels is not None
    assert summarize_kernels(kernels, 110.0)[1:4] == ("0 %", "–", "0")


def test_a_trace_that_does_not_name_its_gpu_has_no_prediction(tmp_path: Path) -> None:
    assert predict_from_shapes(TraceBuilder(None).kernel("k", 10, 5, launch=0).save(tmp_path / "job.json")) is None
