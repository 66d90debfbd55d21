"""What real profilers write and no one would expect; the letters are the field guide's."""

import io
import json

import pytest

from predictors import identify_gpu
from tests.codes import has_code, list_codes
from tracekit.errors import NotATraceError
from tracekit.ingest.decode import decode
from tracekit.messages.traces import EVENTS_BACKWARD
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table


def one_kernel():
    return TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 100, launch=10)


@pytest.fixture(params=[0, 1 << 20], ids=["scanner", "careful"])
def read(request):
    """Reads a document with either decoder."""

    def _read(document):
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        return decode(io.BytesIO(text), "quirk", small_bytes=request.param)

    return _read


def event(cat, name, ts, dur, args, **more):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args, **more}


def test_flow_arrows_are_no_launches(read):
    """Q3: an arrow ends at every runtime call that is no launch."""
    builder = one_kernel().call("cudaEventQuery", 40, 1)
    document = json.loads(builder.to_json())
    document["traceEvents"] += [
        {"ph": phase, "id": 2, "pid": 0, "tid": 7, "ts": 40, "cat": "ac2g", "name": "ac2g"} for phase in "sf"
    ]
    trace = read(document)
    assert trace.activities.height == 1
    assert build_kernel_table(trace)["op"].to_list() == ["aten::mm"]


def test_kernels_without_a_launch_and_launches_without_a_kernel_are_kept(read):
    """Q5: work from before the window, and calls whose kernel was dropped."""
    trace = read(one_kernel().kernel("earlier", 5, 10).call("cudaLaunchKernel", 200, 5).to_json())
    assert trace.activities.height == 2
    assert trace.calls.height == 2
    assert build_kernel_table(trace)["call"].null_count() == 1


@pytest.mark.parametrize("number", ["9" * 5000, "x" + "9" * 5000, 10**400, 2**64])
def test_numbers_that_no_id_can_be_are_missing(read, number):
    document = json.loads(one_kernel().to_json())
    document["traceEvents"][1]["args"]["correlation"] = number
    assert read(document).calls["correlation"].to_list() == [None]


def test_events_that_end_before_they_begin_are_said(read):
    trace = read(one_kernel().kernel("backward", 200, -50, launch=150).to_json())
    assert trace.activities["dur_ns"].to_list() == [100_000, 0]
    assert EVENTS_BACKWARD(events=1) in trace.warnings


def test_kernels_of_a_graph_share_their_launch(read):
    """Q6: all kernels of a cudaGraphLaunch have its correlation."""
    events = [event("cuda_runtime", "cudaGraphLaunch", 10, 5, {"correlation": 9})]
    events += [
        event("kernel", f"k{i}", 20 + 10 * i, 8, {"correlation": 9, "device": 0, "stream": 7, "graph node id": 100 + i})
        for i in range(3)
    ]
    trace = read(events)
    assert trace.activities["graph_node_id"].to_list() == [100, 101, 102]
    assert build_kernel_table(trace)["call"].to_list() == [0, 0, 0]


@pytest.mark.parametrize("call", ["cuLaunchKernelEx", "hipModuleLaunchKernel", "hipMemcpyWithStream", "launchNew"])
def test_any_call_launches_that_some_kernel_names(read, call):
    """Q7: launches are told by correlation, never by a list of names."""
    assert (
        build_kernel_table(read(one_kernel().kernel("k", 200, 5, launch=190, call=call).to_json()))["call"].null_count()
        == 0
    )


def test_ids_of_cupti_and_of_torch_are_kept_apart(read):
    """Both count from 1: a kernel's External id is not its correlation."""
    trace = read(one_kernel().kernel("k", 200, 5, launch=190, **{"External id": 1}).to_json())
    assert trace.activities["correlation"].to_list() == [1, 2]


def test_one_process_may_drive_several_gpus(read):
    """Q13: the device is the argument's, or else the process id of the event."""
    trace = read(one_kernel().kernel("k", 200, 5, launch=190, device=3, stream=20).to_json())
    assert trace.activities["device"].to_list() == [0, 3]
    bare = [event("kernel", "k", 5, 1, {"correlation": 1}, pid=2, tid=9)]
    assert read(bare).activities.select("device", "stream").row(0) == (2, 9)


@pytest.mark.parametrize(
    ("spelling", "value"), [(7, 7), ("7", 7), ("stream 7", 7), (7.0, 7), ("queue", None), (None, None), (-1, -1)]
)
def test_streams_in_every_spelling(read, spelling, value):
    events = [event("kernel", "k", 5, 1, {"device": 0, "correlation": 1, "stream": spelling}, tid=value)]
    assert read(events).activities["stream"].to_list() == [value]


@pytest.mark.parametrize(
    ("cat", "table"),
    [
        ("kernel", "activities"),
        ("Kernel", "activities"),
        ("mtia_ccp_events", "activities"),
        ("gpu_memset", "activities"),
        ("Runtime", "calls"),
        ("cuda_driver", "calls"),
        ("xpu_runtime", "calls"),
        ("mtia_runtime", "calls"),
        ("Operator", "ops"),
        ("cpu_op", "ops"),
        ("user_annotation", "annotations"),
        ("cuda_sync", "syncs"),
        ("overhead", "overheads"),
    ],
)
def test_categories_of_all_back_ends(read, cat, table):
    args = {"device": 0, "stream": 1, "correlation": 5}
    trace = read([event("kernel", "k", 1, 1, args), event(cat, "other", 5, 1, args)])
    assert "other" in trace.tables[table]["name"].to_list()


def test_stacks_and_spans_are_not_read(read):
    """python_function, gpu_user_annotation, Trace: not what ran on the GPU, nor what launched it."""
    document = json.loads(one_kernel().to_json())
    document["traceEvents"] += [
        event(cat, "x", 1, 1, {}) for cat in ("python_function", "gpu_user_annotation", "Trace", "fwdbwd")
    ]
    trace = read(document)
    assert sum(table.height for table in trace.tables.values()) == 3


def test_sync_records(read):
    args = {"stream": 20, "correlation": 77, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 55}
    document = json.loads(one_kernel().to_json())
    document["traceEvents"].append(event("cuda_sync", "Stream Wait Event", 50, 1, args))
    row = read(document).syncs.row(0, named=True)
    assert (row["stream"], row["wait_on_stream"], row["wait_on_record"]) == (20, 7, 55)


def test_ranks_as_text_and_as_list_are_one(read):
    ranks = [
        read(one_kernel().op("nccl", 50, 5, **{"Process Group Ranks": ranks}).to_json()).ops["group_ranks"][1]
        for ranks in ("[0, 1, 2]", [0, 1, 2])
    ]
    assert ranks == ["[0,1,2]", "[0,1,2]"]


def test_duplicate_keys_take_the_last(read):
    """A file may hold distributedInfo twice: from torch and from an on-demand profile."""
    text = one_kernel().to_json()[:-1] + b', "distributedInfo": {"rank": 1}, "distributedInfo": {"rank": 2}}'
    assert read(text).rank == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"cat": "Trace", ', b'"cat": "kernel"'),
        (b'"ph": "i", ', b'"ph": "X"'),
        (b'"args": {"stream": 3, "correlation": 7}, ', b'"args": {"device": 0, "stream": 9}'),
    ],
)
def test_of_an_events_keys_too_the_last_counts(read, before, after):
    key = after.split(b":")[0] + b": "
    text = json.dumps([event("kernel", "k", 1, 1, {"device": 0, "stream": 9})]).encode()
    twice = text.replace(key, before + key, 1)
    assert after in twice
    assert len(twice) > len(text)
    assert read(twice).activities.select("name", "stream", "correlation").rows() == [("k", 9, None)]


def test_half_nanoseconds_round_to_even(read):
    times = [event("kernel", "k", ts, 1, {"device": 0}) for ts in ("1.0005", "1.0015", "1.00150001", "2.5")]
    text = json.dumps(times)
    for quoted in ("1.0005", "1.0015", "1.00150001", "2.5"):
        text = text.replace(f'"{quoted}"', quoted)
    assert read(text.encode()).activities["ts_ns"].to_list() == [1000, 1002, 1002, 2500]


FOREIGN = {
    "Chrome": [event("devtools.timeline", "RunTask", 1, 2, {})],
    "VizTracer": {"traceEvents": [event("FEE", "f", 1, 2, {})], "viztracer_metadata": {}},
    "TensorFlow": {"traceEvents": [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}}]},
    "ONNX Runtime": [event("Session", "model_loading_uri", 1, 2, {})],
    "clang": {"traceEvents": [event("", "Total ExecuteCompiler", 1, 2, {})], "beginningOfTime": 1},
    "Bazel": {"otherData": {"bazel_version": "7"}, "traceEvents": []},
    "speedscope": {"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []},
    "Nsight Compute": b'==PROF== Connected to process 7\n"ID","Process ID","Kernel Name"\n"0","7","gemm"\n',
    "pickle": b"\x80\x04\x95\x10\0\0\0",
    "ExecutionTraceObserver": {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []},
}


@pytest.mark.parametrize("tool", FOREIGN)
def test_other_tools_traces_are_refused_by_name(read, tool):
    with pytest.raises(NotATraceError, match=tool, check=has_code("trace-of-other-tool")):
        read(FOREIGN[tool])


def test_enclosing_ops_come_first_among_many_that_start_alike(read):
    """Q9: with whole microseconds several starts are equal; the longest comes first, equals by name."""
    ops = [("b", 3), ("a", 3), ("d", 10), ("c", 10)]
    document = json.loads(one_kernel().to_json())
    document["traceEvents"] += [event("cpu_op", name, 50, dur, {}) for name, dur in ops]
    assert read(document).ops["name"].to_list() == ["aten::mm", "c", "d", "a", "b"]


def test_control_characters_of_names_are_replaced(read):
    document = json.loads(one_kernel().to_json())
    document["traceEvents"].append(event("cpu_op", "a\x1b[2J\x07b\x9b\tc", 50, 5, {}))
    document["deviceProperties"][0]["name"] = "GPU\x1b]0;title\x07"
    trace = read(document)
    assert trace.ops["name"].to_list()[-1] == "a\ufffd[2J\ufffdb\ufffd\tc"
    assert trace.device.name == "GPU\ufffd]0;title\ufffd"


def test_keys_with_escapes(read):
    text = one_kernel().to_json()[:-1] + rb', "caf\u00e9": 1}'
    assert read(text).metadata["café"] == 1


def sharing_one_id(call):
    builder = TraceBuilder()
    for start in (0, 100, 200):
        builder.op("aten::mm", start, 30).kernel("gemm", start + 40, 20, launch=start + 10, call=call)
    document = json.loads(builder.to_json())
    for one in document["traceEvents"]:
        if "correlation" in one.get("args", {}):
            one["args"]["correlation"] = 7
    return document


def test_kernels_that_share_one_id_pair_off_with_launches_in_order(read):
    trace = read(sharing_one_id("cudaLaunchKernel"))
    assert trace.activities["correlation"].to_list() == trace.calls["correlation"].to_list() == [8, 9, 10]
    assert build_kernel_table(trace)["op"].to_list() == ["aten::mm"] * 3


def test_kernels_of_one_graph_share_an_id(read):
    trace = read(sharing_one_id("cudaGraphLaunch"))
    assert trace.activities["correlation"].to_list() == [7] * 3
    assert "ids-ambiguous" not in list_codes(trace.warnings)


def test_kernels_of_a_launch_on_several_devices_share_an_id(read):
    trace = read(sharing_one_id("cudaLaunchCooperativeKernelMultiDevice"))
    assert trace.activities["correlation"].to_list() == [7] * 3
    assert "ids-ambiguous" not in list_codes(trace.warnings)


def test_shared_memory_in_the_place_of_the_sms(read):
    """A collector of an inference cluster writes 167,936 SMs for an A800."""
    document = json.loads(one_kernel().to_json())
    properties = {"id": 0, "name": "NVIDIA A800-SXM4-80GB", "totalGlobalMem": 85_174_583_296, "numSms": 167_936}
    document["deviceProperties"] = [properties | {"computeMajor": 8, "computeMinor": 0}]
    device = read(document).device
    assert device.sms == 0
    assert (
        identify_gpu(device.name, device.sms, device.memory_bytes, device.compute_capability).gpu.slug
        == "a800-sxm-80gb"
    )


def test_versions_in_the_names_of_calls(read):
    """Collectors that take CUPTI's names: a wait is one under them too."""
    builder = TraceBuilder().kernel("gemm", 20, 100, launch=10, call="cudaLaunchKernel_v7000")
    trace = read(builder.call("cudaStreamSynchronize_v3020", 30, 95).call("cuMemcpyHtoD_v2", 130, 5).to_json())
    assert trace.calls["name"].to_list() == ["cudaLaunchKernel", "cudaStreamSynchronize", "cuMemcpyHtoD_v2"]
