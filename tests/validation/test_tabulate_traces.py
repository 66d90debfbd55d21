"""Kernels of a trace as rows to learn from: distinct, alone on the GPU, no quicker than their bound."""

from pathlib import Path
from typing import Any

import pytest

from tests.validation.tabulate_traces import tabulate_trace
from tracekit.testing import TraceBuilder

ADD: dict[str, Any] = {"dims": [[1024, 1024], [1024, 1024], []], "types": ["float", "float", "Scalar"]}
NAME = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>"


def adds(*spans: tuple[float, float]) -> TraceBuilder:
    """Additions that start and last so many microseconds, in turn on two streams."""
    trace = TraceBuilder()
    for number, (start, dur) in enumerate(spans):
        trace.op("aten::add", start - 20, 10, **ADD)
        trace.kernel(NAME, start, dur, launch=start - 15, stream=7 + number % 2)
    return trace


def test_a_kernel_that_repeats_is_one_row_with_its_median(tmp_path: Path) -> None:
    path = adds((100, 10.5), (200, 12.25), (300, 30.5)).save(tmp_path / "job.json")
    rows = tabulate_trace(path, None)
    assert rows.select("gpu", "trace", "family", "dtype", "rows", "cols", "bytes", "count").rows() == [
        ("a100-sxm-80gb", "job", "elementwise", "fp32", 1024, 1024, 3 * 4 * 1024**2, 3)
    ]
    assert rows["measured_us"][0] == pytest.approx(12.25)


def test_whole_microseconds_are_averaged(tmp_path: Path) -> None:
    path = adds((100, 10), (200, 11), (300, 12), (400, 14)).save(tmp_path / "job.json")
    assert tabulate_trace(path, None)["measured_us"][0] == pytest.approx(11.75)


def test_what_overlaps_or_beats_its_bound_is_left_out(tmp_path: Path) -> None:
    path = adds((100, 40.5), (130, 40.25), (300, 1.5)).save(tmp_path / "job.json")
    assert tabulate_trace(path, None).is_empty()


def test_an_unnamed_gpu_is_the_one_that_is_given(tmp_path: Path) -> None:
    builder = TraceBuilder(device=None)
    builder.op("aten::add", 80, 10, **ADD).kernel(NAME, 100, 10.5, launch=85).save(tmp_path / "job.json")
    assert tabulate_trace(tmp_path / "job.json", "mi300x")["gpu"].to_list() == ["mi300x"]
