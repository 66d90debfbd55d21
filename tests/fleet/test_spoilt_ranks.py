"""One rank of a job is spoilt in each known way: both ways of working on the job say the same of it; microseconds."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import tracekit as tk
from tests.fleet.test_fleet import RANKS, worked
from tracekit.analysis.idle import attribute_idle_time
from tracekit.engine import InProcessEngine
from tracekit.fleet import FleetReport, predict_fleet
from tracekit.messages import Message
from tracekit.messages.traces import DURATIONS_ZERO
from tracekit.reporting.kernel_rows import predict_on_source
from tracekit.reporting.sections.recording import merge_rank_doubts
from tracekit.reporting.sections.warnings import build_warnings
from tracekit.request.options import FleetRequest
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder

pytestmark = pytest.mark.heavy

SPOILT = 2


def is_kernel(event: dict[str, Any]) -> bool:
    return event.get("cat") == "kernel"


def change(where: Callable[[dict[str, Any]], bool], **values: Any) -> Callable[[TraceBuilder], None]:
    """Return what changes every second one of some events."""

    def spoil(builder: TraceBuilder) -> None:
        for event in list(filter(where, builder.events))[::2]:
            event.update(values)

    return spoil


def drop(where: Callable[[dict[str, Any]], bool]) -> Callable[[TraceBuilder], None]:
    def spoil(builder: TraceBuilder) -> None:
        builder.events = [event for event in builder.events if not where(event)]

    return spoil


def is_named(*names: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["name"] in names


def overlap(builder: TraceBuilder) -> None:
    for event in filter(is_named("sgemm"), builder.events):
        event["dur"] *= 3


def forget_shapes(builder: TraceBuilder) -> None:
    for event in builder.events:
        event["args"].pop("Input Dims", None)
        event["args"].pop("Input type", None)


def forget_launches(builder: TraceBuilder) -> None:
    for event in builder.events:
        if event["cat"] == "cuda_runtime":
            event["args"].pop("correlation")


def run_on_two(builder: TraceBuilder) -> None:
    for event in list(filter(is_named("relu"), builder.events)):
        event["args"]["device"] = 1


def unmark(builder: TraceBuilder) -> None:
    drop(lambda event: event["name"].startswith("ProfilerStep"))(builder)
    for number in range(3):
        builder.op("Optimizer.step#Adam.step", 1000 * number + 900, 20)
        builder.annotation("Optimizer.step#Adam.step", 1000 * number + 900, 20)


def enlarge(builder: TraceBuilder) -> None:
    for event in filter(is_named("aten::mm"), builder.events):
        event["args"]["Input Dims"] = [[8192, 8192], [8192, 8192]]


def hold(builder: TraceBuilder) -> None:
    for number in range(3):
        builder.overhead("Buffer Flush", 1000 * number + 100, 200)


def slow(builder: TraceBuilder) -> None:
    for event in filter(is_named("sgemm"), builder.events):
        event["dur"] *= 1.3


def lag(builder: TraceBuilder) -> None:
    builder.base_ns += 3_600 * 10**9


def rename_gpu(builder: TraceBuilder, name: str) -> None:
    builder.metadata["deviceProperties"] = [{**A100, "name": name}]


def stall(builder: TraceBuilder) -> None:
    """All after the first two steps begins 900 later."""
    for event in builder.events:
        event["ts"] += 900 * (event["ts"] > 2000)


WAYS: dict[str, tuple[Callable[[TraceBuilder], Any], str]] = {
    "nothing": (lambda builder: None, ""),
    "durations are NaN": (change(is_kernel, dur=float("nan")), "events-untimed"),
    "durations are 0": (change(is_named("sgemm"), dur=0), "durations-zero"),
    "durations are negative": (change(is_kernel, dur=-5), "events-backward"),
    "times are missing": (change(is_named("aten::mm"), ts=None), "events-untimed"),
    "times are far away": (change(is_named("relu"), ts=1e15), "events-distant"),
    "no collective": (drop(is_named("ncclDevKernel_AllReduce")), "ranks-lack-collectives"),
    "no other kernel": (drop(is_named("sgemm", "relu")), "kernels-lost"),
    "some kernels lost": (drop(is_named("relu")), "kernels-lost"),
    "kernels overlap": (overlap, "times-displaced"),
    "durations below the bound": (enlarge, "durations-below-bound"),
    "no shapes": (forget_shapes, "shapes-not-recorded"),
    "no ops": (drop(lambda event: event["cat"] == "cpu_op"), "ops-not-recorded"),
    "no calls": (drop(lambda event: event["cat"] == "cuda_runtime"), "launches-missing-in-steps"),
    "no launches": (forget_launches, "launches-missing-in-steps"),
    "no steps": (unmark, "steps-unmarked"),
    "fewer steps": (drop(lambda event: event["ts"] < 950), "times-displaced"),
    "two GPUs": (run_on_two, "several-gpus-in-process"),
    "another GPU": (lambda builder: rename_gpu(builder, "NVIDIA H100 80GB HBM3"), "gpus-differ"),
    "no GPU": (lambda builder: builder.metadata.pop("deviceProperties"), ""),
    "an unknown GPU": (lambda builder: rename_gpu(builder, "Nothing 9"), "gpus-differ"),
    "a secret": (lambda builder: builder.metadata.update(token="hf_" + 34 * "a"), "secret-found"),
    "an unknown category": (change(is_named("aten::mm"), cat="unheard of"), "category-not-read"),
    "begins without ends": (change(is_named("aten::mm"), ph="B"), "spans-unmatched"),
    "names that aren't UTF-8": (change(is_named("relu"), name="re\x00lu"), ""),
    "held up by the profiler": (hold, "profiler-holds-cpu"),
    "30 % slower": (slow, ""),
    "a clock an hour ahead": (lag, "recorded-apart"),
    "a long wait": (stall, "steps-differ-from-mean"),
    "another world": (lambda builder: builder.metadata["distributedInfo"].update(world_size=8), "world-sizes-differ"),
    "synthetic": (lambda builder: builder.metadata.update(synthetic="by hand"), "times-synthetic"),
    "an unprofiled step": (lambda builder: builder.metadata.update(tracekit={"unprofiled_step_us": [500, 500]}), ""),
}


def cut(data: bytes) -> bytes:
    return data[: len(data) * 9 // 10]


def garble(data: bytes) -> bytes:
    half = len(data) // 2
    return data[:half] + 80 * b"\xff{" + data[half + 160 :]


FILE_WAYS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut near the end": (cut, "events-cut"),
    "garbled in the middle": (garble, "ranks-lack-collectives"),
    "text follows": (lambda data: data + b" {}", "data-behind-trace"),
    "NaN without quotes": (lambda data: data.replace(b'"dur": 200', b'"dur": NaN'), "events-repaired"),
}


def save_job(folder: Path, spoil: Callable[[TraceBuilder], Any], write: Callable[[bytes], bytes] = bytes) -> list[str]:
    for rank in range(RANKS):
        builder = worked(rank)
        if rank == SPOILT:
            spoil(builder)
        data = builder.to_json()
        (folder / f"rank{rank}.json").write_bytes(write(data) if rank == SPOILT else data)
    return [str(folder / f"rank{rank}.json") for rank in range(RANKS)]


def answer_twice(files: list[str]) -> tuple[tuple[Message, ...], FleetReport]:
    """Return the warnings of the job in one piece, and its report rank by rank."""
    run = prepare_run(tk.load(files))
    fleet = predict_fleet(files, FleetRequest(), InProcessEngine())
    assert fleet.step == run.measured_step
    idle = attribute_idle_time(run.program, run.measured_timeline)
    return build_warnings(run, idle, predict_on_source(run)), fleet


def describe(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return sorted((one.to_dict() for one in messages), key=json.dumps)


def list_told(messages: Iterable[Message]) -> set[str]:
    """List the codes of messages, and of those that a rank is named with."""
    told = [one.values.get("warning", one) for one in messages]
    return {one.code for one in told}


def check(files: list[str], code: str) -> None:
    whole, fleet = answer_twice(files)
    assert describe(fleet.warnings) == describe(whole)
    assert not code or code in list_told(fleet.warnings)


@pytest.mark.parametrize("way", WAYS)
def test_a_spoilt_rank_is_told_alike(tmp_path, way):
    spoil, code = WAYS[way]
    check(save_job(tmp_path, spoil), code)


@pytest.mark.parametrize("way", FILE_WAYS)
def test_a_spoilt_file_is_told_alike(tmp_path, way):
    write, code = FILE_WAYS[way]
    check(save_job(tmp_path, lambda builder: None, write), code)


def test_ranks_that_share_a_fault_are_counted(tmp_path):
    """Two of four ranks lost kernels: rank 1 is named, and one more."""
    for rank in range(RANKS):
        builder = worked(rank)
        if rank in (1, 3):
            drop(is_named("relu"))(builder)
        builder.save(tmp_path / f"rank{rank}.json")
    files = sorted(map(str, tmp_path.iterdir()))
    whole, fleet = answer_twice(files)
    assert describe(fleet.warnings) == describe(whole)
    (told,) = [one for one in fleet.warnings if one.code == "ranks-warned" and "launches" in str(one)]
    assert (told.values["rank"], told.values["more"]) == (1, 1)
    assert told.values["warning"].values == {"lost": 3, "launches": 12}


def test_a_thousand_kinds_of_one_warning_are_one():
    """Names of kernels differ by rank: of four variants the first is told, with all ranks."""
    doubts = [(rank, (DURATIONS_ZERO(count=1, at_us=5.0, name="k" * (1 + rank)),)) for rank in range(5)]
    (told,) = merge_rank_doubts([*doubts, (5, ())])
    assert (told.code, told.values["rank"], told.values["more"]) == ("ranks-warned", 0, 4)
    assert len(list(merge_rank_doubts(doubts[:3]))) == 3
