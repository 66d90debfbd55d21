"""Predicting a few kernels asks polars little: one query costs more than all arithmetic on so few rows."""

from collections.abc import Callable

import polars as pl
import pytest

from tests.asking import predict
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

MAX_QUERIES = 60
"""Of a first target; 41 on the day that this was written."""
MAX_QUERIES_OF_ANOTHER_GPU = 20


@pytest.fixture
def count_queries(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """A function that counts the queries of a call."""
    asked: list[None] = []
    collect = pl.LazyFrame._collect_eager

    def collect_and_count(*args, **options):
        asked.append(None)
        return collect(*args, **options)

    def count(call: Callable[[], object]) -> int:
        asked.clear()
        call()
        return len(asked)

    monkeypatch.setattr(pl.LazyFrame, "_collect_eager", collect_and_count)
    return count


def build_run() -> MeasuredRun:
    """Three steps of two equal kernels."""
    builder = TraceBuilder()
    for step, at in enumerate((0.0, 1000.0, 2000.0)):
        builder.step(step, at, 950)
        for first in (at, at + 100):
            builder.op("aten::mm", first, 30, dims=[[256, 512], [512, 128]], types=["float", "float"])
            builder.kernel("sgemm", first + 20, 60, launch=first + 10)
        builder.call("cudaDeviceSynchronize", at + 300, 300)
    return prepare_run(builder.load())


def test_a_first_gpu(count_queries):
    run = build_run()
    predict(run, ["h100-sxm"])
    run = build_run()
    assert count_queries(lambda: predict(run, ["h100-sxm"])) <= MAX_QUERIES


def test_another_gpu(count_queries):
    run = build_run()
    gpus = ["a100-sxm-80gb", "h100-sxm", "b200", "l40s", "v100-sxm-32gb", "t4", "h200-sxm", "rtx-4090"]
    predict(run, gpus)
    run = build_run()
    one = count_queries(lambda: predict(run, gpus[:1]))
    run = build_run()
    more = count_queries(lambda: predict(run, gpus)) - one
    assert more <= (len(gpus) - 1) * MAX_QUERIES_OF_ANOTHER_GPU
