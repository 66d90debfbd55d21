"""Copies by kind, and queues and copies over a step, worked out by hand."""

import numpy as np
import pytest

from tracekit.analysis.over_time import compute_means
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

PAGEABLE, INSIDE = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoD (Device -> Device)"


def build(builder: TraceBuilder):
    return build_report(prepare_run(builder.load()))


def copies() -> TraceBuilder:
    """Two copies of 1 MB from the host, in 100 and 300 us; one of 4 MB inside the memory in 10 us; a memset."""
    builder = TraceBuilder().op("aten::copy_", 0, 1000)
    for start, dur in ((100, 100), (300, 300)):
        builder.kernel(PAGEABLE, start, dur, launch=start - 50, call="cudaMemcpyAsync", kind="gpu_memcpy", bytes=10**6)
    builder.kernel(INSIDE, 700, 10, launch=650, call="cudaMemcpyAsync", kind="gpu_memcpy", bytes=4 * 10**6)
    builder.kernel("Memset (Device)", 800, 2, launch=790, call="cudaMemsetAsync", kind="gpu_memset", bytes=10**6)
    return builder.kernel("work", 900, 100, launch=880)


def test_copies_by_direction_and_memory():
    found = {(row.kind, row.memories): row for row in build(copies()).copies}
    assert list(found) == [("HtoD", "Pageable -> Device"), ("DtoD", "Device -> Device"), ("memset", None)]
    host, inside, cleared = found.values()
    assert (host.count, host.time_us, host.bytes) == (2, 400, 2e6)
    assert (host.gbps, host.low_gbps, host.high_gbps) == (5, pytest.approx(10 / 3), 10)
    assert host.limit_gbps == pytest.approx(31.5, rel=0.01)  # PCI Express 4.0 with 16 lanes
    # 400 GB/s copied; the memory's 2,039 are for reading and for writing.
    assert (inside.gbps, inside.limit_gbps) == (400, pytest.approx(2039 / 2, rel=0.01))
    assert (cleared.gbps, cleared.limit_gbps) == (500, pytest.approx(2039, rel=0.01))


def test_queues_and_copies_over_a_step():
    course = build(copies()).course
    ((name, queued),) = [(each.name, each.values) for each in course.queues]
    assert name == "GPU 0 stream 7"
    # Queued for 50, 50, 50, 10 and 20 us; 2 MB from the host.
    assert sum(queued) * course.part_us == pytest.approx(180, rel=0.01)
    assert max(queued) == 1
    rates = {each.name: each.values for each in course.copies_gbps}
    assert {name: round(sum(values) * course.part_us) for name, values in rates.items()} == {
        "HtoD": 2_000,  # GB/s times us: KB
        "DtoD": 4_000,
        "memset": pytest.approx(1_000, rel=0.1),  # its end lies within a part of 5 us
    }


def test_means_over_parts():
    """A queue from 1 to 3 and one from 2 to 6 with twice the weight, over [0, 2], [2, 4], [4, 8]."""
    means = compute_means(np.array([1, 2]), np.array([3, 6]), np.array([1.0, 2.0]), np.array([0.0, 2.0, 4.0, 8.0]))
    assert means.tolist() == [0.5, 2.5, 1.0]


def test_work_from_before_the_step_is_in_its_queue():
    means = compute_means(np.array([0]), np.array([100]), np.array([1.0]), np.array([10.0, 20.0, 30.0]))
    assert means.tolist() == [1.0, 1.0]
