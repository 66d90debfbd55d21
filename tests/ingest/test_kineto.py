"""What the dialects of six years of profilers turn into."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit
from tests.codes import list_codes
from tracekit.errors import NoGpuActivityError
from tracekit.ingest import load_bytes
from tracekit.messages.traces import EVENTS_UNTIMED
from tracekit.testing import BASE_NS, TraceBuilder


def one_kernel() -> TraceBuilder:
    return (
        TraceBuilder()
        .op("aten::mm", 0, 30, dims=[[64, 32], [32, 16]], types=["float", "float"], concrete=["", ""])
        .kernel("ampere_sgemm_64x32", 20.5, 100.25, launch=10, grid=[4, 2, 1], block=[128, 1, 1])
    )


def test_times_are_absolute_nanoseconds():
    kernel = one_kernel().load().rank().activities.row(0, named=True)
    assert kernel["ts_ns"] == BASE_NS + 20_500
    assert kernel["dur_ns"] == 100_250


def test_launch_geometry_is_blocks_and_threads():
    kernel = one_kernel().load().rank().activities.row(0, named=True)
    assert (kernel["blocks"], kernel["threads_per_block"]) == (8, 128)


def test_nineteen_digit_microseconds_keep_their_nanoseconds():
    text = (
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7,'
        b' "ts": 1712195495509883.929, "dur": 2.001, "args": {"device": 0, "stream": 7, "correlation": 3}}]}'
    )
    kernel = load_bytes(text, "test").rank().activities.row(0, named=True)
    assert kernel["ts_ns"] == 1_712_195_495_509_883_929
    assert kernel["dur_ns"] == 2_001


def test_display_unit_is_not_a_unit():
    builder = one_kernel()
    builder.metadata["displayTimeUnit"] = "ns"
    assert builder.load().rank().activities["dur_ns"][0] == 100_250


def test_the_bare_list_of_2020_with_its_spellings():
    events = [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 5, "tid": "42", "ts": 100, "dur": 30,
         "args": {"Input dims": [[2, 3], [3, 4]], "External id": 1}},
        {"ph": "X", "cat": "Operator", "name": "ProfilerStep#5", "pid": 5, "tid": "42", "ts": 90, "dur": 300},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": "42", "ts": 110, "dur": 5,
         "args": {"correlation": 7}},
        {"ph": "X", "cat": "Kernel", "name": "volta_sgemm", "pid": 0, "tid": "stream 7", "ts": 130, "dur": 10,
         "args": {"correlation": 7, "external id": 1}},
    ]  # fmt: skip
    trace = load_bytes(json.dumps(events).encode(), "list").rank()
    assert trace.device is None
    assert trace.ops["input_dims"].to_list() == ["[[2,3],[3,4]]"]
    assert trace.annotations["name"].to_list() == ["ProfilerStep#5"]
    assert trace.activities.select("device", "stream", "ts_ns").row(0) == (0, 7, 130_000)
    assert trace.warnings[0].code == "device-not-recorded"


def test_hip_notes_the_grid_on_the_call_in_work_items():
    builder = TraceBuilder().kernel("Cijk_gemm", 20, 5, launch=10, call="hipExtModuleLaunchKernel")
    builder.events[0]["args"] |= {"grid": [73728, 1, 1], "block": [256, 1, 1]}
    kernel = builder.load().rank().activities.row(0, named=True)
    assert (kernel["blocks"], kernel["threads_per_block"]) == (288, 256)


def test_kineto_copies_hips_grid_in_work_items_to_the_kernel():
    """As PyTorch writes it since 2.5 (pytorch/kineto#983)."""
    launch = {"grid": [73728, 1, 1], "block": [256, 1, 1]}
    builder = TraceBuilder().kernel("Cijk_gemm", 20, 5, launch=10, call="hipExtModuleLaunchKernel", **launch)
    builder.events[0]["args"] |= launch
    kernel = builder.load().rank().activities.row(0, named=True)
    assert (kernel["blocks"], kernel["threads_per_block"]) == (288, 256)


def test_bytes_as_text():
    trace = TraceBuilder().kernel("Memcpy HtoD", 20, 5, launch=10, kind="gpu_memcpy", bytes="4096").load().rank()
    assert trace.activities["bytes"][0] == 4096


def test_the_device_is_the_one_that_worked():
    builder = one_kernel()
    builder.metadata["deviceProperties"] = [
        {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_000_000_000},
        {"id": 1, "name": "Tesla V100-SXM2-32GB", "numSms": 80, "totalGlobalMem": 34_000_000_000},
    ]
    builder.events[-1]["args"]["device"] = 1
    assert builder.load().rank().device.name == "Tesla V100-SXM2-32GB"


def test_events_without_a_time_are_left_out_and_counted():
    trace = one_kernel().kernel("no timing", 0, 0).load().rank()
    assert trace.activities.height == 1
    assert trace.warnings[0] == EVENTS_UNTIMED(events=1)


@pytest.mark.parametrize(("start", "dur"), [(2.0**70, 5), (1e300, 5), (30, 2.0**70), (30, 8 * 86400e6)])
def test_events_whose_time_overflowed_are_left_out(start, dur):
    trace = one_kernel().kernel("overflow", start, dur).load().rank()
    assert trace.activities["name"].to_list() == ["ampere_sgemm_64x32"]
    assert trace.warnings[0].values == {"events": 1}


def test_missing_shapes_are_said():
    trace = TraceBuilder().op("aten::mm", 0, 30).kernel("k", 20, 100, launch=10).load().rank()
    assert not trace.has_shapes
    assert list_codes(trace.warnings) == ["shapes-not-recorded"]


def test_gzip_equals_plain(tmp_path):
    plain, packed = one_kernel().save(tmp_path / "t.json"), one_kernel().save(tmp_path / "t.json.gz")
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    first, second = tracekit.load(plain).rank(), tracekit.load(packed).rank()
    for name, table in first.tables.items():
        assert table.equals(second.tables[name])


def test_gzip_is_told_by_content_not_by_name(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(one_kernel().to_json()))
    assert tracekit.load(path).rank().activities.height == 1


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_events_in_the_file_changes_nothing(random):
    builder = one_kernel()
    for i in range(5):
        builder.op("aten::add", 200 + 10 * i, 8).kernel("add", 210 + 10 * i, 4, launch=201 + 10 * i)
    before = builder.load().rank()
    random.shuffle(builder.events)
    after = builder.load().rank()
    for table in ("ops", "calls", "activities"):
        assert getattr(before, table).equals(getattr(after, table))


@pytest.mark.parametrize("rank", [0, 3])
def test_rank_and_world_size(rank):
    builder = one_kernel()
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 8}
    trace = builder.load().rank()
    assert (trace.rank, trace.world_size) == (rank, 8)


def test_launches_without_any_kernel_are_said_to_have_lost_them():
    text = TraceBuilder().op("aten::mm", 0, 30).call("cudaLaunchKernel", 10, 5).to_json()
    with pytest.raises(NoGpuActivityError) as refused:
        load_bytes(text, "trace.json")
    assert refused.value.code == "all-kernels-lost"


def test_work_of_other_devices_is_named():
    text = TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 9, launch=10).to_json()
    with pytest.raises(NoGpuActivityError) as refused:
        load_bytes(text.replace(b'"kernel"', b'"hpu_op"'), "trace.json")
    assert refused.value.code == "trace-of-other-device"
    assert "1 hpu_op event" in str(refused.value)
