"""Correlation ids that begin again; times in microseconds."""

import json
from typing import Any

import pytest

from tracekit.errors import NotATraceError
from tracekit.ingest import load_bytes
from tracekit.testing import TraceBuilder
from tracekit.trace import RankTrace

STEPS, KERNELS = 3, 4


def build(*, period: float = 1000, first: int = 1, stride: int = 0) -> dict[str, Any]:
    """Steps with ids from ``first`` on, or ``stride`` more than the step before has; a kernel each 100, and a wait."""
    builder = TraceBuilder()
    for step in range(STEPS):
        at = period * step
        builder.step(step, at, 600)
        for place in range(KERNELS):
            builder.op(f"aten::op{place}", at + 10 * place, 9).kernel(
                f"k{place}", at + 20 + 100 * place, 90, launch=at + 10 * place + 1, launch_dur=5
            )
            for event in builder.events[-2:]:
                event["args"]["correlation"] = first + stride * step + place
        builder.call("cudaDeviceSynchronize", at + 60, 400)
        builder.events[-1]["args"]["correlation"] = first + stride * step + KERNELS
    return builder.to_dict()


def read(document: dict[str, Any]) -> RankTrace:
    return load_bytes(json.dumps(document).encode(), "test").rank()


def launched_by(rank: RankTrace) -> list[tuple[str, float]]:
    """Each kernel's name, and how long after its launch it started."""
    joined = rank.activities.join(rank.calls, on="correlation", suffix="_call", maintain_order="left")
    assert joined.height == rank.activities.height == STEPS * KERNELS
    return [(name, (at - called) / 1e3) for name, at, called in joined.select("name", "ts_ns", "ts_ns_call").rows()]


EXPECTED = [(f"k{place}", 19 + 90 * place) for place in range(KERNELS)] * STEPS


@pytest.mark.parametrize("stride", [0, 2, 5])
def test_each_use_of_an_id_joins_its_own_kernel(stride: int) -> None:
    """With stride 2 ids overlap in part, with 5 none does."""
    rank = read(build(stride=stride))
    assert launched_by(rank) == EXPECTED
    assert [warning.code for warning in rank.warnings if "ids" in warning.code] == (
        ["ids-reused"] if stride < 5 else []
    )


def test_a_host_that_runs_ahead_of_the_gpu_makes_no_difference() -> None:
    """The second step's launches come before the first step's last kernels."""
    document = build(period=1000)
    for event in document["traceEvents"]:
        if event["cat"] != "kernel" and event["ts"] >= 1000:
            event["ts"] -= 700 * (event["ts"] // 1000)
        if event["name"] == "cudaDeviceSynchronize":
            event["dur"] = 10
    joined = read(document)
    assert [name for name, _ in launched_by(joined)] == [name for name, _ in EXPECTED]
    assert min(wait for _, wait in launched_by(joined)) > 0


def test_processes_that_follow_each_other_make_no_difference() -> None:
    document = build()
    for event in document["traceEvents"]:
        if event["cat"] != "kernel":
            event["pid"] = 200 + event["ts"] // 1000
    assert launched_by(read(document)) == EXPECTED


def test_a_lost_kernel_belongs_to_no_other_launch() -> None:
    document = build()
    lost = [event for event in document["traceEvents"] if event["name"] == "k1"][1]
    document["traceEvents"].remove(lost)
    rank = read(document)
    joined = rank.activities.join(rank.calls, on="correlation", suffix="_call")
    assert joined.height == STEPS * KERNELS - 1
    assert (joined["ts_ns"] - joined["ts_ns_call"]).max() < 400_000


@pytest.mark.parametrize("devices", [1, 2])
def test_processes_side_by_side_are_still_merged_traces(devices: int) -> None:
    """Two ranks that run at once, to which a merge gave one process."""
    document = build()
    others = json.loads(json.dumps(document["traceEvents"]))
    for event in others:
        event["ts"] += 7
        if event["cat"] == "kernel":
            event["args"]["device"] = event["pid"] = devices - 1
    document["traceEvents"] += others
    with pytest.raises(NotATraceError) as caught:
        read(document)
    assert caught.value.code == "traces-merged"
