"""Kernels carried from one trace beside those of equal ops in another."""

import pytest

from tests.validation.studies.whole_jobs.trace_pairs import compare_equal_ops
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import A100, TraceBuilder

H100 = {**A100, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "numSms": 132}
NAME = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>"


def recorded(device: dict[str, object], **durations_us: list[float]) -> MeasuredRun:
    """A trace of additions, for each number of rows as many as there are times."""
    trace, start = TraceBuilder(device), 100.0
    for rows, times_us in durations_us.items():
        dims = [[int(rows[1:]), 8192], [int(rows[1:]), 8192], []]
        for us in times_us:
            trace.op("aten::add", start - 20, 10, dims=dims, types=["float", "float", "Scalar"])
            trace.kernel(NAME, start, us, launch=start - 15)
            start += us + 50
    return prepare_run(trace.load())


def test_equal_ops_are_told_by_their_shapes_and_summed_over_the_calls_there() -> None:
    here = recorded(A100, x8192=[400.0, 400.0], x4096=[200.0], x100=[10.0])
    there = recorded(H100, x8192=[240.0, 240.0, 240.0], x2048=[60.0])
    family, total = compare_equal_ops(here, there)
    assert family[:4] == ("a100-sxm-80gb → h100-sxm", "elementwise", "1", "0.72 ms")
    assert total[1:4] == ("all", "1", "0.72 ms")
    predicted_ms = float(total[4].removesuffix(" ms"))
    assert total[5:7] == (f"{100 * (predicted_ms / 0.72 - 1):+.0f} %", "1")


def test_traces_without_equal_ops_have_no_rows() -> None:
    assert not list(compare_equal_ops(recorded(A100, x8192=[400.0]), recorded(H100, x2048=[60.0])))


def test_a_trace_that_names_no_gpu_is_refused() -> None:
    with pytest.raises(SystemExit, match="name its GPU"):
        list(compare_equal_ops(recorded({}, x8192=[400.0]), recorded(H100, x8192=[240.0])))
