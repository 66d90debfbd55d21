"""Timelines in the profiler's dialect; times in microseconds."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest

import tracekit as tk
from tests.conftest import SAMPLES
from tests.jobs import gradient_step, job
from tests.prediction.test_prediction import steps_of_gemms
from tracekit.analysis.critical_path import compute_critical_path
from tracekit.errors import NotATraceError
from tracekit.export.perfetto import render_timeline
from tracekit.export.perfetto.tracks import CRITICAL_PATH_TID, IDLE_TID
from tracekit.ingest import load_bytes
from tracekit.prediction import predict
from tracekit.replay.engine import build_measured_timeline
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder


@pytest.fixture(scope="module")
def run():
    return prepare_run(steps_of_gemms().load(), steps="1:2")


@pytest.fixture(scope="module")
def events(run):
    targets = predict(run, ["h100-sxm"]).targets
    return json.loads(render_timeline(run, targets, compress=False))["traceEvents"]


def slices(events, **wanted):
    return [e for e in events if e["ph"] == "X" and all(e[key] == value for key, value in wanted.items())]


def test_measured_and_predicted_stand_side_by_side(run, events):
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names[0] == "measured (NVIDIA A100 SXM4 80 GB)"
    assert names[1] == "predicted on h100-sxm (NVIDIA H100 SXM5 80 GB)"
    measured, predicted = (slices(events, cat="kernel", pid=pid) for pid in (0, 1))
    assert [event["dur"] for event in measured] == [900.0] * 8
    expected = predict(run, ["h100-sxm"])["h100-sxm"].kernels["time_us"]
    assert [event["dur"] for event in predicted] == pytest.approx(expected[4:].to_list(), abs=0.001)
    assert {event["tid"] for event in measured} == {7}
    assert measured[0]["args"]["op"] == "aten::mm"
    assert measured[0]["args"]["roofline_pct"] == pytest.approx(48.9, abs=0.2)


def test_kernels_that_overlap_on_one_stream_are_drawn_on_two_threads():
    """Perfetto drops a slice that overlaps another of its thread."""
    builder = TraceBuilder(A100 | {"computeMajor": 9}).step(1, 0, 400)
    for place in range(4):
        builder.kernel("gemm", 10 + 50 * place, 52, launch=5 * place)
    events = json.loads(render_timeline(prepare_run(builder.load()), compress=False))["traceEvents"]
    kernels = slices(events, cat="kernel")
    assert [kernel["args"]["stream"] for kernel in kernels] == [7] * 4
    for tid in {kernel["tid"] for kernel in kernels}:
        spans = sorted((kernel["ts"], kernel["ts"] + kernel["dur"]) for kernel in kernels if kernel["tid"] == tid)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"stream 7", "stream 7, overlapping"} <= names


def test_what_a_layout_adds_is_drawn():
    trace = tk.load(SAMPLES / "synthetic_transformer_train.json.gz")
    predictions = tk.predict(trace, cluster="4x1xh100-sxm@eth25", dp=4)
    events = json.loads(render_timeline(predictions.run, predictions.targets, compress=False))["traceEvents"]
    measured, predicted = (slices(events, cat="kernel", pid=pid) for pid in (0, 1))
    added = [event for event in predicted if event["name"] == "all-reduce"]
    assert added
    assert not [event for event in measured if event["name"] == "all-reduce"]
    end = max(event["ts"] + event["dur"] for event in predicted)
    assert end / 2 == pytest.approx(predictions.targets[0].step.step_time_us, rel=0.02)
    staged = tk.predict(trace, cluster="4xh100-sxm", pp=2)
    text = render_timeline(staged.run, staged.targets, compress=False).decode()
    assert "predicted on 4xh100-sxm, all stages on one GPU (NVIDIA H100" in text


def test_both_begin_at_the_same_moment_and_none_before(events):
    assert all(event["ts"] >= 0 for event in events)
    for pid in (0, 1):
        assert min(event["ts"] for event in slices(events, pid=pid, tid=CRITICAL_PATH_TID)) == 0


def test_slices_of_a_thread_never_overlap(events):
    threads = defaultdict(list)
    for event in slices(events):
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert max(map(len, threads.values())) > 1
    for spans in threads.values():
        spans.sort()
        assert all(end <= begin + 1e-3 for (_, end), (begin, _) in pairwise(spans))


def test_streams_of_two_gpus_of_one_process_are_two_threads():
    builder = TraceBuilder().kernel("a", 20, 60, launch=0, device=2).kernel("b", 30, 60, launch=10, device=3)
    drawn = slices(
        json.loads(render_timeline(prepare_run(builder.load()), compress=False))["traceEvents"], cat="kernel"
    )
    assert {event["name"]: event["tid"] for event in drawn} == {"a": 7, "b": 10_007}


def test_steps_without_a_kernel_are_drawn_too():
    builder = TraceBuilder().step(0, 0, 100).kernel("earlier", 10, 5).call("cudaDeviceSynchronize", 20, 70)
    events = json.loads(render_timeline(prepare_run(builder.load()), compress=False))["traceEvents"]
    assert [event["name"] for event in slices(events, cat="cuda_runtime")] == ["cudaDeviceSynchronize"]


def test_the_critical_path_is_whole_and_its_arrows_lead_on(run, events):
    path = slices(events, pid=0, tid=CRITICAL_PATH_TID)
    span_us = compute_critical_path(run.program, build_measured_timeline(run.graph)).span_ns / 1e3
    assert sum(event["dur"] for event in path) == pytest.approx(span_us, abs=0.01)
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == 2 * 7
    kernels = {(e["pid"], e["ts"] + e["dur"] / 2) for e in slices(events, cat="kernel")}
    for number, start in starts.items():
        assert start["ts"] < ends[number]["ts"]
        assert any(pid == start["pid"] and middle == pytest.approx(start["ts"], abs=0.001) for pid, middle in kernels)


def test_idle_time_is_named_by_its_cause(events):
    pauses = slices(events, pid=0, tid=IDLE_TID)
    assert {event["name"] for event in pauses} <= {"kernel_gap", "sync_bound", "launch_bound", "launch_latency"}
    # The gap behind each of the first three kernels of a step, and the CPU's turn between the steps.
    assert [round(event["dur"]) for event in pauses] == [1, 1, 1, 39, 1, 1, 1]


def test_the_counter_follows_the_kernels(events):
    counts = [event for event in events if event["ph"] == "C" and event["pid"] == 0]
    values = [event["args"]["% of roofline"] for event in counts]
    assert max(values) == pytest.approx(48.9, abs=0.2)
    assert values[-1] == 0
    assert [event["ts"] for event in counts] == sorted(event["ts"] for event in counts)


def test_what_was_measured_can_be_read_again_and_what_was_predicted_beside_is_refused(run):
    trace = load_bytes(render_timeline(run, compress=False), "timeline.json").rank()
    assert trace.activities["device"].value_counts().rows() == [(0, 8)]
    assert trace.device.name == "NVIDIA A100 SXM4 80 GB"
    with pytest.raises(NotATraceError, match="merged from the traces of 2 processes"):
        load_bytes(render_timeline(run, predict(run, ["h100-sxm"]).targets, compress=False), "timeline.json")


def test_a_process_per_rank():
    run = prepare_run(job(gradient_step(100, 340), gradient_step(200, 340)))
    events = json.loads(render_timeline(run, compress=False))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {name.split(":")[0] for name in names.values()} == {"rank 0", "rank 1"}
    assert all(slices(events, cat="kernel", pid=pid) for pid in names)
