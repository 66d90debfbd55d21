import pytest

import tracekit as tk
from tests.codes import find_message, list_codes
from tracekit.ingest import load
from tracekit.messages.traces import CAPTURE_JOINED, CAPTURES_WITHOUT_MATCH
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

PROJECT, NORM = "gemm_bf16", "rms_norm_kernel"
WEIGHTS = [[1024, 4096]]


def capture(rows=32, *, vendor="hip", annotation=None, copies=0, start=0, last=True, layers=2):
    """A capture: a product and a norm per layer, launched into a graph; nothing runs."""
    trace = TraceBuilder()
    if annotation:
        trace.annotation(annotation, start, 2000)
    trace.call(f"{vendor}StreamBeginCapture", start, 1)

    def put(call, kernel, op, dims, at):
        trace.op(op, at, 8, dims=dims, types=["c10::BFloat16"] * len(dims))
        trace.call(f"{vendor}{call}", at + 2, 2, **({"kernel": kernel} if vendor == "hip" and kernel else {}))

    for layer in range(layers):
        put("LaunchKernel", PROJECT, "aten::mm", [[rows, 1024], *WEIGHTS], start + 10 + 40 * layer)
        if last or layer < layers - 1:
            put("LaunchKernel", NORM, "aten::rms_norm", [[rows, 4096]], start + 20 + 40 * layer)
    for i in range(copies):
        put("MemcpyAsync", None, "aten::copy_", [[rows, 4096], [rows, 4096]], start + 500 + 10 * i)
    trace.call(f"{vendor}StreamEndCapture", start + 900 + 40 * layers, 1)
    return trace


def replay(times=1, *, vendor="hip", annotation=None, order=(PROJECT, NORM, PROJECT, NORM), streams=(7,), **node_ids):
    """Launches of the same graph, one every millisecond."""
    trace = TraceBuilder()
    for launch in range(times):
        start = 5000 + 1000 * launch
        if annotation:
            trace.annotation(annotation, start - 10, 900)
        trace.call(f"{vendor}GraphLaunch", start, 5)
        graph = trace.events[-1]["args"]["correlation"]
        for i, name in enumerate(order):
            more = {key: values[i] for key, values in node_ids.items()}
            kind = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
            stream = streams[i % len(streams)]
            trace.kernel(
                name, start + 20 + 100 * i, 60 + i, kind=kind, stream=stream, correlation=graph, **{
                    key.replace("_", " "): value for key, value in more.items()
                }
            )  # fmt: skip
    return trace


@pytest.fixture
def read(tmp_path):
    """The replay's trace, read with what lies beside it."""

    def read(replayed, **captures):
        (tmp_path / "capture_traces").mkdir()
        for name, trace in captures.items():
            trace.save(tmp_path / "capture_traces" / f"{name}.json")
        return tk.load(replayed.save(tmp_path / "replay.json")).rank()

    return read


def test_replayed_kernels_get_the_ops_and_shapes_of_the_capture(read):
    check_ops_and_shapes(read(replay(times=3), bs_32=capture(rows=32)))


def test_a_recording_may_begin_within_a_capture(read):
    """The end of that one is not the end of the next."""
    check_ops_and_shapes(read(replay(times=3), bs_32=capture(rows=32, start=100).call("hipStreamEndCapture", 0, 1)))


def check_ops_and_shapes(rank):
    kernels = build_kernel_table(rank)
    assert kernels["op"].to_list() == ["aten::mm", "aten::rms_norm"] * 6
    products = kernels.filter(family="gemm")
    assert products.select("m", "n", "k").unique().row(0) == (32, 4096, 1024)
    assert products["work_from"].unique().to_list() == ["shapes"]
    # Each replay does the whole of its ops' work.
    assert products["share"].to_list() == [1.0] * 6
    assert kernels["call"].n_unique() == 3
    source = rank.source.replace("replay.json", "capture_traces/bs_32.json")
    assert rank.warnings[-1] == CAPTURE_JOINED(known_kernels=12, kernels=12, known_replays=3, replays=3, path=source)


def test_a_capture_may_be_given_along_or_be_in_the_trace_itself(tmp_path):
    (tmp_path / "traces").mkdir()
    given = capture().save(tmp_path / "graph_capture_rank_0.json")
    trace = replay().save(tmp_path / "traces" / "rank0.json")
    assert build_kernel_table(load([str(trace), str(given)]).rank())["m"].drop_nulls().to_list() == [32, 32]

    both = capture()
    both.events += [{**event, "args": {**event["args"], "correlation": 10**6 + event["args"].get("correlation", 0)}}
                    for event in replay().events]  # fmt: skip
    assert build_kernel_table(load(str(both.save(tmp_path / "both.json"))).rank())["m"].drop_nulls().to_list() == [
        32,
        32,
    ]


def test_a_directory_holds_ranks_and_their_capture(tmp_path):
    (tmp_path / "capture_traces").mkdir()
    capture().save(tmp_path / "capture_traces" / "graph_capture_rank_0.json")
    for rank in range(2):
        replay().save(tmp_path / f"rank{rank}.json")
    trace = load(str(tmp_path))
    assert [rank.rank for rank in trace.ranks] == [0, 1]
    assert all(build_kernel_table(rank)["m"].count() == 2 for rank in trace.ranks)


@pytest.mark.parametrize(
    ("annotation", "rows"),
    [
        ("execute_17_context_1(sq8sk8sqsq64sqsk64)_generation_9(sq9sk9sqsq9sqsk9)", 32),
        ("execute_context_1(8)_generation_8(8)", 16),
        ("execute_context_1(20_400)_generation_0(0)", 32),
        ("step[DECODE bs=16]", 16),
        ("step[EXTEND bs=2 toks=30]", 32),
    ],
)
def test_of_captures_of_one_kind_the_smallest_that_the_step_fits_in_counts(read, annotation, rows):
    sizes = {f"capture_{n}": capture(rows=n, annotation=f"capture_{n}_FULL") for n in (16, 32, 64)}
    assert build_kernel_table(read(replay(annotation=annotation), **sizes))["m"].drop_nulls().unique().to_list() == [
        rows
    ]


def test_captures_of_other_shapes_with_nothing_to_choose_by_are_left_out(read):
    rank = read(replay(), one=capture(rows=16), two=capture(rows=32))
    assert build_kernel_table(rank)["op"].null_count() == 4
    assert find_message(rank.warnings, "captures-ambiguous").values["replays"] == 1
    assert "captures-without-match" not in list_codes(rank.warnings)


def test_replays_with_and_without_a_capture_are_counted_apart(read):
    """Three: two of the graph that was captured, one of another."""
    trace, other = replay(times=2), replay(order=(PROJECT, NORM, NORM))
    for event in other.events:
        event["ts"] += 5000
        event["args"]["correlation"] += 1000
    trace.events += other.events
    warnings = read(trace, bs_32=capture()).warnings
    joined = find_message(warnings, "capture-joined").values
    assert [joined[name] for name in ("known_kernels", "kernels", "known_replays", "replays")] == [8, 11, 2, 3]
    assert CAPTURES_WITHOUT_MATCH(unmatched=1, replays=3) in warnings


def test_layers_captured_one_by_one_are_alike(read):
    """vLLM's piecewise graphs: one capture per layer, the same kernels on the same shapes."""
    trace = capture(layers=1)
    trace.events += [{**event, "ts": event["ts"] + 2000} for event in trace.events]
    assert (
        build_kernel_table(read(replay(times=2, order=(PROJECT, NORM)), layers=trace))["m"].to_list() == [32, None] * 2
    )


def test_another_graph_is_not_taken(read):
    rank = read(replay(order=(PROJECT, NORM, NORM)), bs_32=capture())
    assert build_kernel_table(rank)["op"].null_count() == 3
    assert rank.warnings[-1] == CAPTURES_WITHOUT_MATCH(unmatched=1, replays=1)


def test_kernels_that_the_profiler_lost_leave_only_those_of_their_name_unknown(read):
    order = (PROJECT, NORM) * 150
    rank = read(replay(order=order[:-1]), bs_32=capture(layers=150))
    kernels = build_kernel_table(rank)
    assert kernels.filter(name=PROJECT)["m"].null_count() == 0
    assert kernels.filter(name=NORM)["op"].count() == 0
    joined = find_message(rank.warnings, "capture-joined").values
    assert (joined["known_kernels"], joined["kernels"]) == (150, 299)


def test_copies_of_amds_runtime_are_kernels(read):
    order = (PROJECT, NORM, PROJECT, NORM, "__amd_rocclr_copyBuffer")
    assert build_kernel_table(read(replay(order=order), bs_32=capture(copies=1)))["op"].to_list()[-1] == "aten::copy_"


def test_cuda_tells_no_names_but_order(read):
    order = (PROJECT, NORM, PROJECT, NORM, "Memcpy DtoD (Device -> Device)")
    kernels = build_kernel_table(read(replay(vendor="cuda", order=order), bs_32=capture(vendor="cuda", copies=1)))
    assert kernels["op"].to_list() == ["aten::mm", "aten::rms_norm"] * 2 + ["aten::copy_"]


def test_cuda_graphs_on_several_streams_need_node_ids(read, tmp_path):
    order = (NORM, PROJECT, NORM, PROJECT)
    nodes = {"graph_node_id": [20, 10, 40, 30]}
    kernels = build_kernel_table(
        read(replay(vendor="cuda", order=order, streams=(7, 8), **nodes), bs_32=capture(vendor="cuda"))
    )
    assert kernels["op"].to_list() == ["aten::rms_norm", "aten::mm"] * 2
    without = replay(vendor="cuda", order=order, streams=(7, 8)).save(tmp_path / "without.json")
    assert build_kernel_table(load(str(without)).rank())["op"].count() == 0


def test_a_capture_that_cannot_be_read_is_said(read, tmp_path):
    (tmp_path / "capture_traces").mkdir()
    (tmp_path / "capture_traces" / "bs_1.json").write_text("no json")
    rank = load(str(replay().save(tmp_path / "replay.json"))).rank()
    assert rank.warnings[-1].code == "capture-skipped"
    assert rank.activities.height == 4


def test_a_trace_without_graphs_reads_no_capture(tmp_path):
    (tmp_path / "capture_traces").mkdir()
    (tmp_path / "capture_traces" / "bs_1.json").write_text("no json")
    plain = TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 100, launch=10)
    assert list_codes(load(str(plain.save(tmp_path / "plain.json"))).rank().warnings) == ["shapes-not-recorded"]
