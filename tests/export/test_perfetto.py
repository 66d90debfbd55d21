"""Timelines in the profiler's dialect; times in microseconds."""

import json
from collections import defaultdict
from itertools import combinations, pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit as tk
from tests.asking import predict
from tests.conftest import SAMPLES
from tests.jobs import gradient_step, job
from tests.prediction.test_prediction import steps_of_gemms
from tracekit.analysis.critical_path import compute_critical_path
from tracekit.errors import NotATraceError
from tracekit.export.perfetto import host_tracks, render_timeline
from tracekit.export.perfetto.tracks import CRITICAL_PATH_TID, IDLE_TID
from tracekit.ingest import load_bytes
from tracekit.replay.engine import build_measured_timeline
from tracekit.run import prepare_run
from tracekit.testing import A100, MAIN_THREAD, PROCESS, TraceBuilder


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
    assert names[2] == "predicted on h100-sxm (NVIDIA H100 SXM5 80 GB)"
    assert (names[1], names[3]) == ("CPU, measured", "CPU, predicted on h100-sxm")
    order = {event["pid"]: event["args"]["sort_index"] for event in events if event["name"] == "process_sort_index"}
    assert sorted(names, key=order.get) == [0, 1, 2, 3]
    measured, predicted = (slices(events, cat="kernel", pid=pid) for pid in (0, 2))
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
    assert {"GPU stream 7 (compute)", "GPU stream 7 (compute, overlapping)"} <= names


def test_what_a_layout_adds_is_drawn():
    trace = tk.load(SAMPLES / "synthetic_transformer_train.json.gz")
    predictions = tk.predict(trace, cluster="4x1xh100-sxm@eth25", dp=4)
    events = json.loads(render_timeline(predictions.run, predictions.targets, compress=False))["traceEvents"]
    measured, predicted = (slices(events, cat="kernel", pid=pid) for pid in (0, 2))
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
    for pid in (0, 2):
        assert min(event["ts"] for event in slices(events, pid=pid, tid=CRITICAL_PATH_TID)) == 0


def test_slices_of_a_thread_lie_within_each_other_or_apart(events):
    threads = defaultdict(list)
    for event in slices(events):
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert max(map(len, threads.values())) > 1
    for spans in threads.values():
        opened = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while opened and opened[-1] <= begin + 1e-3:
                opened.pop()
            assert not opened or end <= opened[-1] + 1e-3
            opened.append(end)


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
    arrows = [event for event in events if event.get("cat") == "critical path"]
    starts = {event["id"]: event for event in arrows if event["ph"] == "s"}
    ends = {event["id"]: event for event in arrows if event["ph"] == "f"}
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


def serve_a_layer():
    """One layer on one thread: a kernel of 100 us that the step then waits for; ops in a module in a step."""
    builder = TraceBuilder(A100).step(1, 0, 300).python("nn.Module: Linear_0", 5, 60)
    builder.op("aten::linear", 10, 50).op("aten::addmm", 12, 40)
    builder.kernel("sm80_xmma_gemm", 40, 100, launch=20, launch_dur=10)
    builder.call("cudaDeviceSynchronize", 70, 80).op("aten::add", 200, 20, thread=77)
    builder.label("thread_name", 0, PROCESS, MAIN_THREAD, {"name": "thread 100 (pt_main_thread)"})
    return builder.label("thread_name", 0, PROCESS, MAIN_THREAD + 1, {"name": {"no": "text"}}).load(stacks=True)


def test_a_cpu_thread_shows_step_module_ops_and_calls_by_its_recorded_name():
    run = prepare_run(serve_a_layer())
    events = json.loads(render_timeline(run, predict(run, ["t4"]).targets, compress=False))["traceEvents"]
    titles = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert titles[1, 1] == f"CPU thread {MAIN_THREAD} (pt_main_thread)"
    assert titles[1, 2] == "CPU thread 77"
    measured, predicted = ({e["name"]: (e["ts"], e["dur"]) for e in slices(events, tid=1, pid=pid)} for pid in (1, 3))
    assert (
        list(measured)
        == list(predicted)
        == [
            "ProfilerStep#1",
            *("Linear_0", "aten::linear", "aten::addmm", "cudaLaunchKernel", "cudaDeviceSynchronize"),
        ]
    )
    assert measured["aten::addmm"] == (12, 40)
    assert predicted["aten::addmm"] == (12, 40)  # the CPU's own work takes as long
    (kernel,) = slices(events, pid=2, cat="kernel")
    begin, length = predicted["cudaDeviceSynchronize"]
    assert begin + length == pytest.approx(kernel["ts"] + kernel["dur"] + 10, abs=1)  # the wait is derived
    assert not slices(events, pid=3, tid=2)  # nothing says when a thread without calls runs there


def test_an_arrow_leads_from_each_launch_to_its_kernel():
    events = json.loads(render_timeline(prepare_run(serve_a_layer()), compress=False))["traceEvents"]
    leave, arrive = (event for event in events if event.get("cat") == "launch")
    assert (leave["ph"], leave["pid"], leave["tid"], leave["ts"]) == ("s", 1, 1, 20)
    assert (arrive["ph"], arrive["pid"], arrive["tid"], arrive["ts"]) == ("f", 0, 7, 40)
    assert leave["id"] == arrive["id"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30))
def test_ends_are_cut_until_slices_are_nested(spans):
    table = pl.DataFrame({"thread": [1] * len(spans), "start": [a for a, _ in spans], "end": [a + b for a, b in spans]})
    cut = host_tracks.nest_slices(table)
    assert cut["start"].to_list() == sorted(table["start"].to_list())
    for (start, end), (later, until) in combinations(cut.select("start", "end").rows(), 2):
        assert later >= end or until <= end or start == later


def test_a_process_per_rank():
    run = prepare_run(job(gradient_step(100, 340), gradient_step(200, 340)))
    events = json.loads(render_timeline(run, compress=False))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {name.split(":")[0] for name in names.values()} == {"rank 0", "rank 1"}
    assert all(slices(events, cat="kernel", pid=pid) for pid in names)
