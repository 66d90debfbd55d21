"""Faults that users reported in public, each on the trace of :mod:`tests.timing.test_correct`: put right, or said."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.asking import predict
from tests.codes import has_code
from tests.ingest.test_salvage import write_as_kineto
from tests.timing.test_correct import build, lengthen, move, shift
from tracekit.doctor import examine
from tracekit.errors import NoGpuActivityError, NotATraceError, TracekitError
from tracekit.ingest import load_bytes
from tracekit.reporting import build_report
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

Events = list[dict[str, Any]]


def measure(data: bytes) -> MeasuredRun:
    return prepare_run(load_bytes(data, "test"))


def predict_us(data: bytes) -> float:
    return predict(measure(data), ["h100-sxm"]).targets[0].step.step_time_us


def warn(data: bytes) -> set[str]:
    return {warning.code for warning in build_report(measure(data)).warnings}


def grade(trace: Trace) -> str:
    return examine(trace, prepare_run(trace)).grade


CLEAN = build().to_json()


@pytest.fixture(scope="module")
def clean_us() -> float:
    return predict_us(CLEAN)


def edit(change: Callable[[Events], None], steps: int = 3) -> bytes:
    builder = build(steps=steps)
    change(builder.events)
    return builder.to_json()


def find_kernels(events: Events) -> Events:
    return [event for event in events if event["cat"] == "kernel"]


PLACED = {
    "01 two kernels 27.8 hours before their launch": lambda kernels: (
        move(9, -1e11)(kernels),
        move(17, -1e11)(kernels),
    ),
    "01 one kernel 27.8 hours before its launch": move(9, -1e11),
    "02 each kernel of a step 100 us too long": lengthen(slice(8, 16), 100),
    "02 a kernel notes 1.6 s": lengthen(slice(10, 11), 1.6e6 - 550),
    "05 GPU clock 8 us late": shift(8),
}


@pytest.mark.parametrize("case", PLACED)
def test_wrong_times_are_put_right_and_said(case: str, clean_us: float) -> None:
    builder = build(PLACED[case])
    assert predict_us(builder.to_json()) == pytest.approx(clean_us, rel=0.05)
    assert warn(builder.to_json()) - warn(CLEAN)
    assert grade(builder.load()) != "A"


@pytest.mark.parametrize(("steps", "wait_us"), [(4, 1e3), (6, 1e5)])
def test_04_one_slow_step_is_not_the_answer(steps: int, wait_us: float, clean_us: float) -> None:
    def wait(events: Events) -> None:
        marks = [event for event in events if event["name"].startswith("ProfilerStep")]
        end = marks[1]["ts"] + marks[1]["dur"]
        marks[1]["dur"] += wait_us
        for event in events:
            if event["ts"] >= end:
                event["ts"] += wait_us

    data = edit(wait, steps)
    assert predict_us(data) == pytest.approx(clean_us, rel=0.05)
    assert warn(data) - warn(CLEAN)


def test_05_blocking_copies_and_a_clock_6_us_late() -> None:
    def copy(late_us: float) -> bytes:
        builder = build(shift(late_us))
        for event in [event for event in builder.events if event["name"] == "cudaDeviceSynchronize"]:
            end = event["ts"] + event["dur"]
            event["name"] = "cudaMemcpyAsync"
            args = {"device": 0, "stream": 7, "correlation": event["args"]["correlation"], "bytes": 4}
            copied = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7}
            builder.events.append(copied | {"ts": end - 5 + late_us, "dur": 1, "args": args})
        return builder.to_json()

    assert predict_us(copy(6)) == pytest.approx(predict_us(copy(0)), rel=0.05)


def test_06_external_ids_join_launch_and_kernel(clean_us: float) -> None:
    def drop_correlations(events: Events) -> None:
        for place, event in enumerate(events):
            if event["cat"] == "cuda_runtime" and event["name"] == "cudaLaunchKernel":
                external = events[place - 1]["args"]["External id"]
                for one in (event, events[place + 1]):
                    one["args"]["External id"] = external
                    del one["args"]["correlation"]

    run = measure(edit(drop_correlations))
    assert run.kernels["op"].null_count() == 0
    assert predict(run, ["h100-sxm"]).targets[0].step.step_time_us == pytest.approx(clean_us, rel=0.05)


def test_07_shared_correlation_ids_are_told_by_order(clean_us: float) -> None:
    def share(events: Events) -> None:
        kernels = find_kernels(events)
        for first in (2, 12):
            kernels[first + 1]["args"]["correlation"] = kernels[first]["args"]["correlation"]

    assert predict_us(edit(share)) == pytest.approx(clean_us, rel=0.05)
    assert any(code.startswith("ids-") for code in warn(edit(share)))


def test_09_a_second_document_is_not_dropped_in_silence() -> None:
    try:
        trace = load_bytes(CLEAN + CLEAN, "test")
    except TracekitError:
        return
    rank = trace.rank()
    assert len(trace.ranks) > 1 or "data-behind-trace" in {warning.code for warning in rank.warnings}
    if len(trace.ranks) == 1:
        [behind] = rank.ledger.filter(kind="data-behind-trace").iter_rows(named=True)
        assert (behind["first_byte"], behind["count"], behind["unit"]) == (len(CLEAN), len(CLEAN), "bytes")


def test_11_launches_without_kernels_are_lost_kernels() -> None:
    builder = build()
    builder.events = [event for event in builder.events if event["cat"] != "kernel"]
    with pytest.raises(NoGpuActivityError, check=has_code("all-kernels-lost")):
        builder.load()


def test_11_work_in_an_unread_category_is_named() -> None:
    builder = build()
    for kernel in find_kernels(builder.events):
        kernel["cat"] = "hpu_op"
    with pytest.raises(NoGpuActivityError, match="24 hpu_op events", check=has_code("trace-of-other-device")):
        builder.load()


def test_13_waits_of_xpu_are_waits(clean_us: float) -> None:
    names = {"cudaDeviceSynchronize": "urQueueFinish", "cudaLaunchKernel": "urEnqueueKernelLaunch"}

    def rename(events: Events) -> None:
        for event in events:
            if event["name"] in names:
                event.update(name=names[event["name"]], cat="xpu_runtime")

    assert predict_us(edit(rename)) == pytest.approx(clean_us, rel=0.1)


QUOTED = '{"device": "cpu", "dtype": "float32"}(12): run'


@pytest.mark.parametrize("name", [QUOTED, 'x"}]}(12): run'])
def test_14_unescaped_quotes_lose_no_event(name: str, clean_us: float) -> None:
    text = json.dumps(json.loads(CLEAN), indent=2).encode()
    at = text.index(b"{", text.index(b"traceEvents"))
    frames = b",\n  ".join(write_as_kineto(name, "python_function") for _ in range(60))
    trace = load_bytes(text[:at] + frames + b",\n  " + text[at:], "test")
    assert trace.rank().activities.height == 24
    assert grade(trace) == grade(load_bytes(CLEAN, "test"))
    [skipped] = trace.rank().ledger.filter(category="python_function").iter_rows(named=True)
    assert skipped["count"] == 60
    assert predict(prepare_run(trace), ["h100-sxm"]).targets[0].step.step_time_us == pytest.approx(clean_us)


def test_18_names_hold_no_escape_sequences() -> None:
    def colour(events: Events) -> None:
        events[0]["name"] = "aten::mm\x1b[2J\x1b]0;title\x07"
        events.append(events[0] | {"cat": "\x1b[31mred"})

    rank = load_bytes(edit(colour), "test").rank()
    shown = (*rank.ops["name"], *rank.ledger["category"], *map(str, rank.warnings))
    assert not any("\x1b" in text for text in shown)
    assert rank.ledger.filter(kind="names-changed")["count"].to_list() == [1]


def test_19_many_threads_are_no_hurdle() -> None:
    builder = build()
    for thread in range(1500):
        builder.op("aten::add", 10, 5, thread=1000 + thread).op("aten::add", 20, 5, thread=1000 + thread)
    assert prepare_run(builder.load()).measured_step.step_time_us > 0


def test_21_expert_dispatch_is_communication() -> None:
    names = (
        "void hybrid_ep::dispatch_kernel<8>",
        "EpDispatchIntraNodeKernel_bf16",
        "tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<1>",
    )
    builder = TraceBuilder()
    for place, name in enumerate(names):
        builder.kernel(name, 100 * place, 50, launch=100 * place - 10)
    assert set(prepare_run(builder.load()).kernels["family"]) == {"collective"}


def test_10_traces_of_two_ranks_in_one_process_are_no_trace() -> None:
    builder = build()
    copy = [event | {"pid": f"[TP01-test] {event['pid']}"} for event in builder.events]
    builder.events = [event | {"pid": f"[TP00-test] {event['pid']}"} for event in builder.events] + copy
    try:
        trace = builder.load()
    except NotATraceError:
        return
    assert len(trace.ranks) == 2
