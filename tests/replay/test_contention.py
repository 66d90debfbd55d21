"""Kernels that share a GPU; microseconds, on an A100 of 108 multiprocessors and 2039 GB/s."""

import numpy as np
import pytest

import tracekit as tk
from tests.codes import list_codes
from tracekit.analysis.contention import Contention, ContentionModel
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

FULL, HALF = 108, 54


def side_by_side(first: int, second: int, dur: float = 300) -> MeasuredRun:
    """Two kernels on two streams that start together, with some blocks."""
    builder = TraceBuilder()
    for stream, blocks, launch in ((7, first, 0), (9, second, 0.001)):
        builder.kernel(f"k{stream}", 20, dur, launch=launch, stream=stream, grid=[blocks, 1, 1], block=[128, 1, 1])
    return prepare_run(builder.load())


def estimate_contention(run: MeasuredRun, kernel_us: np.ndarray | None = None) -> Contention:
    return ContentionModel(run.program, run.gpu).estimate(kernel_us)


def test_what_was_measured_comes_back():
    found = estimate_contention(side_by_side(FULL, FULL))
    assert found.overlap_pct == pytest.approx(100)
    assert found.contended.step_time_us == pytest.approx(found.uncontended.step_time_us, rel=0.01)


def test_one_that_gets_shorter_leaves_the_rest_to_the_other():
    """Alone each takes 150. With 75 and 150 of work: both to 150 at half speed, then the other's last 75."""
    run = side_by_side(FULL, FULL)
    found = estimate_contention(run, np.array([150.0, 300.0]))
    assert found.uncontended.kernel_time_us == pytest.approx(300, rel=0.01)
    assert found.contended.kernel_time_us == pytest.approx(225, rel=0.01)


def test_kernels_that_fit_side_by_side_don_t_slow_each_other():
    found = estimate_contention(side_by_side(HALF, HALF), np.array([150.0, 300.0]))
    assert found.contended.kernel_time_us == pytest.approx(found.uncontended.kernel_time_us)


def test_a_collective_takes_its_blocks_and_is_not_slowed():
    """All blocks and a quarter more: 5/4. Once the collective is gone the product takes 240 of its 300."""
    builder = TraceBuilder()
    builder.kernel("gemm", 20, 300, launch=0, grid=[FULL, 1, 1], block=[128, 1, 1])
    builder.kernel("ncclDevKernel_AllReduce", 20, 300, launch=0.001, stream=9, grid=[27, 1, 1], block=[512, 1, 1])
    found = estimate_contention(prepare_run(builder.load()), np.array([300.0, 0.0]))
    assert found.contended.kernel_time_us == pytest.approx(240, rel=0.01)


def test_a_kernel_that_moves_nothing_in_no_time_takes_nothing():
    """An empty tensor's, in a trace of whole microseconds."""
    name = "void at::native::vectorized_elementwise_kernel"
    builder = TraceBuilder().op("aten::add", 0, 5, dims=[[0]], types=["float"]).kernel(name, 10, 0, launch=2)
    for stream in (7, 9):
        builder.kernel("k", 20, 300, launch=15, stream=stream, grid=[FULL, 1, 1], block=[128, 1, 1])
    found = estimate_contention(prepare_run(builder.load()))
    assert found.contended.step_time_us == pytest.approx(found.uncontended.step_time_us, rel=0.01)


def test_too_little_overlap_is_left_alone():
    builder = TraceBuilder()
    for i in range(60):
        builder.kernel("k", 20 + 320 * i, 300, launch=i, grid=[FULL, 1, 1], block=[128, 1, 1])
    builder.kernel("other", 20, 300, launch=0.5, stream=9, grid=[FULL, 1, 1], block=[128, 1, 1])
    found = estimate_contention(prepare_run(builder.load()))
    assert 0 < found.overlap_pct < 5
    assert found.contended == found.uncontended


def test_copies_alone_share_nothing():
    found = estimate_contention(prepare_run(TraceBuilder(None).kernel("Memcpy HtoD", 0, 5, kind="gpu_memcpy").load()))
    assert (found.overlap_pct, found.contended) == (0, found.uncontended)


def test_a_prediction_says_what_sharing_would_change():
    """A kernel of which nothing is known keeps its time, the one beside it gets shorter and leaves it the GPU."""
    builder = TraceBuilder()
    for i in range(2):
        builder.kernel("mystery", 60 + 9000 * i, 9000, launch=20 * i, grid=[FULL, 1, 1], block=[128, 1, 1])
        builder.op("aten::add", 20 * i + 9, 6, dims=[[4096, 4096]] * 2, types=["float"] * 2)
        builder.kernel(
            "vectorized_elementwise_kernel", 60 + 9000 * i, 9000,
            launch=20 * i + 10, stream=9, grid=[FULL, 1, 1], block=[128, 1, 1],
        )  # fmt: skip
    predicted = tk.predict(builder.load(), gpu="h100-sxm")["h100-sxm"]
    assert predicted.contention is not None
    assert predicted.contention.apart_us == pytest.approx(predicted.step.step_time_us)
    assert predicted.contention.step_time_us < 0.99 * predicted.contention.apart_us
    assert "kernels-contend" in list_codes(predicted.notes)


def test_neither_where_too_little_overlaps_nor_on_the_gpu_itself():
    alone = TraceBuilder().kernel("ampere_sgemm_128x64_nn", 20, 300, launch=0, grid=[FULL, 1, 1], block=[128, 1, 1])
    assert tk.predict(alone.load(), gpu="h100-sxm")["h100-sxm"].contention is None
    both = Trace((side_by_side(FULL, FULL).trace,))
    assert tk.predict(both, gpu="a100-sxm-80gb")["a100-sxm-80gb"].contention is None


def test_a_collective_whose_blocks_are_unknown_takes_nothing():
    builder = TraceBuilder()
    builder.kernel("gemm", 20, 300, launch=0, grid=[FULL, 1, 1], block=[128, 1, 1])
    builder.kernel("ncclDevKernel_AllReduce", 20, 300, launch=0.001, stream=9, grid=None, block=None)
    found = estimate_contention(prepare_run(builder.load()), np.array([300.0, 0.0]))
    assert found.overlap_pct == pytest.approx(100)
    assert found.contended.kernel_time_us == pytest.approx(300, rel=0.01)
