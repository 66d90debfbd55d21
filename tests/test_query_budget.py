"""How many queries polars runs, and how often a graph is replayed, for a trace of six kernels.

A query costs more than all else that is done with six kernels; a pass over the graph's edges does with a million.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tracekit as tk
from tests.asking import predict
from tracekit.replay import engine
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

MAX_LOAD_QUERIES = 12
"""Measured: 10, of which four are about names and shapes."""
MAX_MEASURE_QUERIES = 35
"""Measured: 30."""
MAX_PREDICT_QUERIES = 30
"""Measured: 23."""
MAX_QUERIES_OF_ANOTHER_GPU = 6
"""Measured: 4 or 5."""
MAX_REPORT_QUERIES = 112
"""Measured: 108, 14 of which predict the kernels alone on the trace's GPU."""

MAX_PASSES = 36
"""Of a prediction and its report, over the edges of the graph. Measured: 36, of which ten replay at other
speeds, six beside the fastest and the slowest usual host, and three with an edit that takes lost MFU away."""

RUN = "_collect_eager" if hasattr(pl.LazyFrame, "_collect_eager") else "collect"
"""What methods of frames and columns run their query with, by the version of polars."""


class Queries:
    """Counts the queries that polars runs."""

    def __init__(self) -> None:
        self.count = 0

    def measure(self, work: Callable[[], Any]) -> int:
        """Return how many queries some work takes."""
        before = self.count
        work()
        return self.count - before


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Queries:
    found = Queries()

    def count(run: Callable[..., Any]) -> Callable[..., Any]:
        def run_and_count(frame: pl.LazyFrame, *args: Any, **options: Any) -> Any:
            found.count += 1
            return run(frame, *args, **options)

        return run_and_count

    for name in {RUN, "collect"}:
        monkeypatch.setattr(pl.LazyFrame, name, count(getattr(pl.LazyFrame, name)))
    return found


@pytest.fixture
def tiny_trace(tmp_path: Path) -> Path:
    """A trace of three steps, in each of which an op launches a kernel twice."""
    builder, path = TraceBuilder(), tmp_path / "trace.json"
    for step in range(3):
        start_us = 1000.0 * step
        builder.step(step, start_us, 950)
        for place in range(2):
            at_us = start_us + 100 * place
            builder.op("aten::mm", at_us, 30, dims=[[256, 512], [512, 128]], types=["float", "float"])
            builder.kernel("sgemm", at_us + 20, 60, launch=at_us + 10)
        builder.call("cudaDeviceSynchronize", start_us + 300, 300)
    builder.save(path)
    return path


def test_queries_of_a_tiny_trace(queries: Queries, tiny_trace: Path) -> None:
    assert 0 < queries.measure(lambda: tk.load(tiny_trace, cache=False)) <= MAX_LOAD_QUERIES
    trace = tk.load(tiny_trace, cache=False)
    prepare_run(trace)  # what is made once a process
    assert 0 < queries.measure(lambda: prepare_run(trace)) <= MAX_MEASURE_QUERIES


def test_queries_of_a_tiny_prediction(queries: Queries, tiny_trace: Path) -> None:
    trace, gpus = tk.load(tiny_trace, cache=False), ["a100-sxm-80gb", "h100-sxm", "b200", "l40s", "t4", "h200-sxm"]
    predict(prepare_run(trace), gpus)  # what is made once a process
    one, all_of_them = (
        queries.measure(partial(predict, prepare_run(trace), targets)) for targets in (["h100-sxm"], gpus)
    )
    assert 0 < one <= MAX_PREDICT_QUERIES
    assert 0 < all_of_them - one <= (len(gpus) - 1) * MAX_QUERIES_OF_ANOTHER_GPU


def test_queries_of_a_tiny_report(queries: Queries, tiny_trace: Path) -> None:
    trace = tk.load(tiny_trace, cache=False)
    for _ in range(2):  # the first time includes what is made once a process
        run = prepare_run(trace)
        targets = predict(run, ["h100-sxm"]).targets
        count = queries.measure(partial(build_report, run, targets))
    assert 0 < count <= MAX_REPORT_QUERIES


def test_passes_of_a_tiny_answer(monkeypatch: pytest.MonkeyPatch, tiny_trace: Path) -> None:
    passes = list[str]()
    for name in ("_delay_by_edges", "_delay_together"):
        run = getattr(engine, name)
        monkeypatch.setattr(engine, name, lambda *args, name=name, run=run: passes.append(name) or run(*args))
    run = prepare_run(tk.load(tiny_trace, cache=False))
    passes.clear()
    build_report(run, predict(run, ["h100-sxm"]).targets)
    assert 0 < len(passes) <= MAX_PASSES
