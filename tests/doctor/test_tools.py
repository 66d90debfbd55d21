"""What the doctor tells users of other tools than PyTorch's profiler: options of theirs, and none of PyTorch's."""

import pytest

import tracekit as tk
from tests.ingest.formats import nsight_files, test_chakra_in, test_rocprofv3, test_xplane
from tracekit.doctor import examine
from tracekit.doctor.model import CheckContext
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder


def write_nsight(folder):
    trace = TraceBuilder().kernel("gemm", 100, 200, launch=10).kernel("gemm", 100, 200, launch=30, stream=9).load()
    return nsight_files.write_database(folder / "report.sqlite", nsight_files.build_tables(trace.ranks[0]))


def write_rocprof(folder):
    report = test_rocprofv3.build_report()
    report["rocprofiler-sdk-tool"][0]["buffer_records"] |= {"hip_api": [], "marker_api": []}
    return test_rocprofv3.write(folder / "results.json", report)


def write_xplane(folder):
    path = folder / "host.xplane.pb"
    path.write_bytes(test_xplane.build_space().SerializeToString())
    return path


def write_chakra(folder):
    path = folder / "rank.0.et"
    test_chakra_in.write(path, (1, "a", 4, 10, [], {"is_cpu_op": False, "stream": 7}))
    return path


@pytest.mark.parametrize(
    ("write", "options", "command"),
    [
        (write_nsight, {"cpu_activity": "--trace=cuda,nvtx", "syncs": "--cuda-event-trace=true"}, "nsys export"),
        (write_rocprof, {"cpu_activity": "--runtime-trace"}, "rocprofv3 --runtime-trace"),
        (write_xplane, {"shapes": ""}, "jax.profiler.trace"),
        (write_chakra, {"cpu_activity": ""}, ""),
    ],
)
def test_advice_is_in_the_words_of_the_tool(tmp_path, write, options, command):
    trace = tk.load(write(tmp_path))
    diagnosis = examine(trace, prepare_run(trace))
    checks = {check.name: check for check in diagnosis.checks}
    assert {name: checks[name].option for name in options} == options
    assert command in diagnosis.snippet
    assert max(map(len, diagnosis.snippet.splitlines()), default=0) <= 78
    told = [text for check in checks.values() if check.fix for text in (check.fix.render(),)]
    assert not [text for text in (*told, *map(str, trace.ranks[0].warnings)) if "ProfilerActivity" in text]
    assert "overhead" not in checks


def test_amds_gpu_is_known_without_a_call_of_hip(tmp_path):
    trace = tk.load(write_rocprof(tmp_path))
    run = prepare_run(trace)
    assert run.trace.calls.is_empty()
    assert CheckContext.from_trace(trace, run).is_amd
