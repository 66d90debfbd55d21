"""Joining kernels to launches where correlation ids are missing or wrong; times in microseconds."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.codes import list_codes
from tracekit.errors import NotATraceError
from tracekit.ingest import load_bytes
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

Events = list[dict[str, Any]]


def build(change: Callable[[Events, Events], None], streams: tuple[int, ...] = (7,)) -> Trace:
    """Build six ops that launch a kernel each, 100 apart; ``change`` changes the events of launches and kernels."""
    builder = TraceBuilder()
    for number in range(6):
        at, stream = 100.0 * number, streams[number % len(streams)]
        builder.op(f"mylib::op{number}", at, 30).kernel(f"k{number}", at + 20, 50, launch=at + 10, stream=stream)
    document = json.loads(builder.to_json())
    events = document["traceEvents"]
    change(*([event for event in events if event.get("cat") == cat] for cat in ("cuda_runtime", "kernel")))
    return load_bytes(json.dumps(document).encode(), "trace.json")


def list_ops(trace: Trace) -> list[str | None]:
    ops: list[str | None] = prepare_run(trace).kernels["op"].to_list()
    return ops


OPS = [f"mylib::op{number}" for number in range(6)]


def test_external_ids_serve_where_no_event_has_a_correlation() -> None:
    def change(launches: Events, kernels: Events) -> None:
        for launch, kernel in zip(launches, kernels, strict=True):
            number = launch["args"].pop("correlation")
            kernel["args"].pop("correlation")
            launch["args"]["External id"] = kernel["args"]["External id"] = number

    trace = build(change)
    assert list_ops(trace) == OPS
    assert "ids-external" in list_codes(trace.rank().warnings)


def test_a_kernel_with_the_id_of_the_one_before_is_of_the_launch_without_kernel() -> None:
    def change(launches: Events, kernels: Events) -> None:
        kernels[2]["args"]["correlation"] = kernels[1]["args"]["correlation"]

    trace = build(change)
    assert list_ops(trace) == OPS
    assert "ids-by-order" in list_codes(trace.rank().warnings)


def test_several_streams_keep_the_order_of_their_launches() -> None:
    def change(launches: Events, kernels: Events) -> None:
        kernels[2]["args"]["correlation"] = kernels[0]["args"]["correlation"]

    assert list_ops(build(change, streams=(7, 9))) == OPS


def test_nothing_is_paired_where_a_launch_is_missing() -> None:
    def change(launches: Events, kernels: Events) -> None:
        kernels[2]["args"]["correlation"] = kernels[1]["args"]["correlation"]
        launches[2]["name"] = "cudaEventRecord"

    trace = build(change)
    assert list_ops(trace) == [OPS[0], None, None, *OPS[3:]]
    assert "ids-ambiguous" in list_codes(trace.rank().warnings)


def test_ranks_merged_under_one_process_are_refused() -> None:
    builder = TraceBuilder()
    for rank in range(2):
        for number in range(4):
            at = 100.0 * number + rank
            builder.kernel(f"k{number}", at + 20, 50, launch=at + 10, stream=7 + rank)
    document = json.loads(builder.to_json())
    for cat in ("cuda_runtime", "kernel"):
        for place, event in enumerate(event for event in document["traceEvents"] if event.get("cat") == cat):
            event["args"]["correlation"] = 1 + place % 4
    with pytest.raises(NotATraceError):
        load_bytes(json.dumps(document).encode(), "trace.json")
