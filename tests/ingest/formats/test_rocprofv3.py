"""rocprofv3's JSON, written by hand after its schema."""

import json

import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.errors import DamagedTraceError, NoGpuActivityError
from tracekit.run import prepare_run

GPU = {"id": {"handle": 7}, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X", "cu_count": 304}
CPU = {"id": {"handle": 3}, "type": 1, "name": "EPYC"}


def span(start, dur, correlation, **fields):
    times = {"start_timestamp": 1000 * start, "end_timestamp": 1000 * (start + dur)}
    return times | {"correlation_id": {"internal": correlation, "external": 0}, "thread_id": 42} | fields


def launch(kernel, blocks, threads):
    size = {"x": threads, "y": 1, "z": 1}
    return {
        "agent_id": {"handle": 7}, "queue_id": {"handle": 1}, "kernel_id": kernel, "group_segment_size": 512,
        "workgroup_size": size, "grid_size": size | {"x": blocks * threads, "y": 2},
    }  # fmt: skip


def build_report():
    """A step with a GEMM of 300 us on 8 x 2 blocks, launched by an op of known shape, and a copy of 4 KiB."""
    process = {
        "metadata": {"pid": 100},
        "agents": [CPU, GPU],
        "kernel_symbols": [{"kernel_id": 5, "formatted_kernel_name": "Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI16x16x16"}],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "HIP_RUNTIME_API", "operations": ["hipMemcpyAsync", "hipLaunchKernel"]},
                {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
            ],
            "marker_api": [
                {"key": 1, "value": "step 3"},
                {"key": 2, "value": "aten::mm, op_id = 4, sizes = [[512, 512], [512, 512]]"},
            ],
        },
        "buffer_records": {
            "marker_api": [span(10, 500, 1), span(20, 60, 2)],
            "hip_api": [span(25, 5, 11, kind=1, operation=1), span(40, 5, 12, kind=1, operation=0)],
            "kernel_dispatch": [span(50, 300, 11, dispatch_info=launch(5, 8, 64), stream_id={"handle": 4})],
            "memory_copy": [
                span(400, 10, 12, kind=2, operation=1, bytes=4096, dst_agent_id=GPU["id"], src_agent_id=CPU["id"])
            ],
        },
    }
    return {"rocprofiler-sdk-tool": [process]}


def write(path, report):
    path.write_text(json.dumps(report))
    return path


def test_kernels_copies_and_ranges(tmp_path):
    trace = tk.load(write(tmp_path / "results.json", build_report()))
    run = prepare_run(trace)
    kernel, copy = run.kernels.iter_rows(named=True)
    assert run.gpu.slug == "mi300x"
    assert (kernel["family"], kernel["op"]) == ("gemm", "aten::mm")
    assert (kernel["m"], kernel["n"], kernel["k"]) == (512, 512, 512)
    assert (kernel["blocks"], kernel["threads_per_block"], kernel["stream"]) == (16, 64, 4)
    assert (kernel["dur_ns"], kernel["shared_memory_bytes"], kernel["step"]) == (300_000, 512, 3)
    assert (copy["copy_kind"], copy["bytes"], copy["device"]) == ("HtoD", 4096, 0)
    assert trace.ranks[0].calls["name"].to_list() == ["hipLaunchKernel", "hipMemcpyAsync"]


def test_what_an_older_version_or_another_run_lacks(tmp_path):
    report = build_report()
    (process,) = report["rocprofiler-sdk-tool"]
    for key in ("agents", "strings", "kernel_symbols"):
        del process[key]
    del process["buffer_records"]["hip_api"]
    activities = tk.load(write(tmp_path / "results.json", report)).ranks[0].activities
    assert activities["name"].to_list() == ["unknown", "Memcpy"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: '{"rocprofiler-sdk-tool": {}}',
        lambda text: text.replace('"thread_id": 42', '"thread_id": "forty-two"'),
        lambda text: text.replace('"handle": 7', '"handle": 1e400'),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path, damage):
    path = tmp_path / "results.json"
    path.write_text(damage(json.dumps(build_report())))
    with pytest.raises(DamagedTraceError, check=has_code("format-damaged")):
        tk.load(path)


def test_a_file_without_kernels_is_refused(tmp_path):
    with pytest.raises(NoGpuActivityError, check=has_code("rocprof-without-kernels")):
        tk.load(write(tmp_path / "empty.json", {"rocprofiler-sdk-tool": []}))
