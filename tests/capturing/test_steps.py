"""What is predicted of captured programs: time, memory and the largest batch."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from predictors import load_gpu  # noqa: E402
from tests.capturing.blocks import build  # noqa: E402
from tracekit.capturing import CapturedProgram  # noqa: E402
from tracekit.capturing.largest_batch import MAX_BATCH, find_largest_batch  # noqa: E402
from tracekit.capturing.predict import LAUNCH_US, run_in_order  # noqa: E402
from tracekit.prediction.memory import USABLE_MEMORY_FRACTION  # noqa: E402


def test_kernels_start_when_launched_and_when_the_one_before_has_ended() -> None:
    """Launches at 15, 25 and 35 us; the second kernel waits for the first, the third for neither."""
    assert run_in_order(np.array([1.0, 1.0, 1.0]), 10.0) == LAUNCH_US + 30 + 1
    assert run_in_order(np.array([50.0, 5.0, 5.0]), 10.0) == LAUNCH_US + 10 + 60
    assert run_in_order(np.array([1.0, 40.0, 5.0]), 10.0) == LAUNCH_US + 20 + 45
    assert run_in_order(np.array([3.0, 4.0]), 0.0) == LAUNCH_US + 7


@given(times=st.lists(st.floats(0, 1e4), min_size=1, max_size=30), launch_us=st.floats(0, 100))
def test_a_stream_runs_in_order_as_a_loop_would(times: list[float], launch_us: float) -> None:
    end = 0.0
    for number, us in enumerate(times, 1):
        end = max(end, number * launch_us + LAUNCH_US) + us
    assert run_in_order(np.array(times), launch_us) == pytest.approx(end)


def test_a_large_step_is_the_gpus_and_a_small_one_the_hosts() -> None:
    with torch.device("meta"):
        large = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(4))).bfloat16()
        x = torch.empty(16384, 8192, dtype=torch.bfloat16)
    (found,) = tk.predict_captured(tk.capture(large, x), gpu="h100-sxm")
    assert found.low_us < found.step_us < found.high_us
    assert found.kernels_us == pytest.approx(found.step_us, rel=0.02)
    assert found.families[0][0] == "gemm"
    assert found.clock_pct < 95
    assert not found.is_host_bound
    assert 500 < found.power_w <= 700
    assert found.joules == pytest.approx(found.power_w * found.step_us / 1e6)
    small = tk.capture(*build())
    (eager,) = tk.predict_captured(small, gpu="h100-sxm")
    (graphed,) = tk.predict_captured(small, gpu="h100-sxm", cuda_graph=True)
    assert eager.is_host_bound
    assert graphed.step_us < eager.step_us / 3
    assert graphed.clock_pct == 100


def test_memory_worked_out_by_hand() -> None:
    """Two layers of 4 MiB with biases of 4 KiB; an input and three results of 16 MiB, two of them there at once."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
        x = torch.empty(4096, 1024)
    weights, rows = 2 * (4 * 1024 * 1024 + 4096), 16 * 2**20
    assert tk.capture(model, x).peak_bytes == weights + rows + 2 * rows
    trained = tk.capture(model, x, training=True, optimizer="sgd")
    assert trained.peak_bytes - tk.capture(model, x, training=True).peak_bytes >= weights
    (small,) = tk.predict_captured(replace(trained, peak_bytes=20 * 2**30), gpu="rtx-3080-10gb")
    (large,) = tk.predict_captured(replace(trained, peak_bytes=20 * 2**30), gpu="l4")
    assert (small.has_room, large.has_room) == (False, True)


def test_more_gpus_are_predicted_in_order() -> None:
    found = tk.predict_captured(tk.capture(*build()), gpu=["l40s", "b200"])
    assert [one.gpu for one in found] == ["l40s", "b200"]


@given(first=st.integers(1, 30 * 2**30), each=st.integers(1, 2**33))
def test_the_largest_batch_is_the_last_that_fits(first: int, each: int) -> None:
    gpu = load_gpu("l4")
    usable = USABLE_MEMORY_FRACTION * gpu.memory_bytes
    empty = CapturedProgram("", pl.DataFrame(), 0, 0, 0, trains=False)

    def capture_batch(batch: int) -> CapturedProgram:
        return replace(empty, peak_bytes=first + (batch - 1) * each)

    largest = find_largest_batch(capture_batch, gpu)
    if largest is None:
        assert first > usable
    else:
        assert capture_batch(largest).peak_bytes <= usable
        assert largest == MAX_BATCH or capture_batch(largest + 1).peak_bytes > usable
