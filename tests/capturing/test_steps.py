"""What is predicted of captured programs: time, memory and the largest batch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from predictors import load_gpu  # noqa: E402
from tests.capturing.blocks import build  # noqa: E402
from tracekit.capturing.program import capture  # noqa: E402
from tracekit.capturing.steps import (  # noqa: E402
    MAX_BATCH,
    find_largest_batch,
    predict_program,
)
from tracekit.capturing.timed_trace import load_captured  # noqa: E402
from tracekit.comm.cluster import USABLE_MEMORY_FRACTION  # noqa: E402

H100 = load_gpu("h100-sxm")


@pytest.mark.heavy
def test_a_large_step_is_the_gpus_and_a_small_one_the_hosts() -> None:
    with torch.device("meta"):
        large = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(4))).bfloat16()
        x = torch.empty(16384, 8192, dtype=torch.bfloat16)
    (found,) = predict_program(capture(large, x), [H100])
    predicted, step = found.prediction, found.prediction.step
    assert predicted.low_us < step.step_time_us < predicted.high_us
    assert step.kernel_time_us == pytest.approx(step.step_time_us, rel=0.02)
    assert found.list_families()[0][0] == "gemm"
    assert "clock-lowered" in {note.code for note in predicted.notes}
    assert not found.is_host_bound
    assert 500 < predicted.energy.power_w <= 700
    (eager,) = predict_program(capture(*build()), [H100])
    (graphed,) = predict_program(capture(*build()), [H100], cuda_graph=True)
    assert eager.is_host_bound
    assert graphed.prediction.step.step_time_us < eager.prediction.step.step_time_us / 3


def test_memory_worked_out_by_hand() -> None:
    """Two layers of 4 MiB with biases of 4 KiB; an input and three results of 16 MiB, two of them there at once."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
        x = torch.empty(4096, 1024)
    weights, rows = 2 * (4 * 1024 * 1024 + 4096), 16 * 2**20
    assert capture(model, x).facts.held_bytes == weights + rows
    assert capture(model, x).facts.peak_bytes == weights + rows + 2 * rows
    trained = capture(model, x, training=True, optimizer="sgd")
    assert trained.facts.peak_bytes - capture(model, x, training=True).facts.peak_bytes >= weights


@pytest.mark.heavy
def test_a_job_fits_where_its_tensors_do() -> None:
    program = capture(*build(), training=True)
    held, usable = program.facts.held_bytes, USABLE_MEMORY_FRACTION * load_gpu("l4").memory_bytes
    for peak_bytes, batch, fits in (
        (held + 2**20, 1, True),
        (2**35, 1, False),
        (int(usable) - 1, 1, True),
        (int(usable) - 1, 4, False),
    ):
        facts = replace(program.facts, peak_bytes=peak_bytes, peaks=((0, peak_bytes - held, 0),))
        (found,) = tk.predict(load_captured(replace(program, facts=facts), "l4"), gpu="l4", batch=batch).targets
        assert found.memory.fits is fits


def test_more_gpus_are_predicted_in_order() -> None:
    found = tk.predict(tk.capture(*build()), gpu=["l40s", "b200"])
    assert [one.gpu for one in found.targets] == ["l40s", "b200"]


@given(
    first=st.integers(1, 30 * 2**30),
    each=st.integers(1, 2**33),
    bend=st.floats(0, 1),
    most=st.one_of(st.just(MAX_BATCH), st.integers(1, 50)),
)
def test_the_largest_batch_is_the_last_that_fits(first: int, each: int, bend: float, most: int) -> None:
    gpu = load_gpu("l4")
    usable = USABLE_MEMORY_FRACTION * gpu.memory_bytes

    def measure_bytes(batch: int) -> int:
        return first + int((batch - 1) * each * (1 + bend * batch))

    largest = find_largest_batch(measure_bytes, gpu, most)
    if largest is None:
        assert first > usable
    else:
        assert measure_bytes(largest) <= usable
        assert largest <= most
        assert largest == most or measure_bytes(largest + 1) > usable
