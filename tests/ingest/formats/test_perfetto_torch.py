"""PyTorch's own Perfetto traces: what its JSON says, they say too."""

import pytest

import tracekit as tk
from tests.codes import has_code
from tests.ingest.formats import torch_perfetto_files
from tracekit.errors import DamagedTraceError, NoGpuActivityError
from tracekit.testing import TraceBuilder

TIMES = ("ts_ns", "dur_ns", "name")
COMPARED = {
    "ops": (*TIMES, "tid", "external_id", "sequence", "input_dims", "input_types", "collective", "in_nelems"),
    "annotations": (*TIMES, "tid"),
    "calls": (*TIMES, "tid", "correlation"),
    "syncs": (*TIMES, "stream", "correlation", "wait_on_stream", "wait_on_record"),
    "activities": (
        *TIMES, "kind", "device", "stream", "correlation", "bytes", "blocks", "threads_per_block",
        "registers_per_thread", "shared_memory_bytes", "group_ranks", "in_nelems",
    ),
}  # fmt: skip
LAUNCH = {"grid": [8, 4, 1], "block": [128, 1, 1], "registers per thread": 96, "shared memory": 4096}


def build_trace():
    """Two steps of a GEMM and a sum over the GPUs on another stream, which waits for the GEMM."""
    builder = TraceBuilder()
    for number in (1, 2):
        at = 1000 * number
        builder.step(number, at, 900).op("aten::mm", at + 10, 60, dims=[[512, 512], [512, 512]])
        builder.kernel("ampere_sgemm_128x64_nn", at + 60, 300, launch=at + 30, **LAUNCH)
        builder.op("record_param_comms", at + 80, 40)
        sizes = {"Collective name": "allreduce", "In msg nelems": 64, "Process Group Ranks": "[0, 1]"}
        builder.kernel("ncclDevKernel_AllReduce_Sum", at + 400, 50, launch=at + 90, stream=20, **LAUNCH | sizes)
    waits = {"stream": 20, "correlation": 900, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 901}
    sync = {"cuda_sync_kind": "Stream Wait Event"} | waits
    return builder.event("cuda_sync", "Stream Wait Event", 1085, 0.5, 20, sync, pid=0)


@pytest.mark.parametrize("with_category", [True, False])
def test_it_reads_as_the_json_of_the_same_profile(tmp_path, with_category):
    builder = build_trace()
    path = tmp_path / "trace.pftrace"
    torch_perfetto_files.write(path, builder.to_dict()["traceEvents"], with_category=with_category)
    found, expected = tk.load(path).ranks[0], builder.load().ranks[0]
    base = expected.ops["ts_ns"][0] - found.ops["ts_ns"][0]
    for table, columns in COMPARED.items():
        read, wanted = (getattr(rank, table).select(columns) for rank in (found, expected))
        assert read.with_columns(read["ts_ns"] + base).to_dicts() == wanted.to_dicts(), table


def test_it_is_named_as_such_and_needs_gpu_work(tmp_path):
    builder, path = build_trace(), tmp_path / "trace.pftrace"
    events = builder.to_dict()["traceEvents"]
    torch_perfetto_files.write(path, events)
    assert "PyTorch's Perfetto export" in str(tk.load(path).ranks[0].warnings[0])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedTraceError, check=has_code("format-damaged")):
        tk.load(path)
    torch_perfetto_files.write(path, [one for one in events if one.get("cat") not in torch_perfetto_files.STAGES])
    with pytest.raises(NoGpuActivityError, check=has_code("torch-perfetto-without-kernels")):
        tk.load(path)
