"""XPlane, the profiles of JAX and XLA, written by hand."""

import sys

import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.errors import DamagedTraceError, NoGpuActivityError, NotATraceError
from tracekit.ingest.formats.xplane import load_messages
from tracekit.run import prepare_run

DETAILS = "regs:128 static_shared:1024 dynamic_shared:3072 grid:8,2,1 block:256,1,1 occ_pct:50"


class PlaneBuilder:
    """Builds a plane; times are microseconds."""

    def __init__(self, space, name):
        self.plane = space.planes.add(name=name)
        self.events, self.stats, self.lines = {}, {}, {}

    def number(self, known, entries, name):
        if name not in known:
            known[name] = len(known) + 1
            entry = entries.add(key=known[name])
            entry.value.id, entry.value.name = known[name], name
        return known[name]

    def event(self, line, name, start, dur, number=0, **stats):
        if line not in self.lines:
            self.lines[line] = self.plane.lines.add(id=number, name=line, timestamp_ns=1000)
        kind = self.number(self.events, self.plane.event_metadata, name)
        times = {"offset_ps": start * 10**6, "duration_ps": dur * 10**6}
        event = self.lines[line].events.add(metadata_id=kind, **times)
        for key, value in stats.items():
            stat = event.stats.add(metadata_id=self.number(self.stats, self.plane.stat_metadata, key))
            if isinstance(value, int):
                stat.int64_value = value
            elif key == "hlo_op":
                stat.ref_value = self.number(self.stats, self.plane.stat_metadata, value)
            else:
                stat.str_value = value


def build_space():
    """A step with a GEMM of 300 us launched by dot.3, and a copy of 4 KiB."""
    space = load_messages()["XSpace"]()
    gpu, host = PlaneBuilder(space, "/device:GPU:0"), PlaneBuilder(space, "/host:CPU")
    gemm = "ampere_bf16_s16816gemm_bf16_128x128"
    gpu.event("Stream #14(Compute)", gemm, 50, 300, correlation_id=11, kernel_details=DETAILS, hlo_op="dot.3")
    gpu.event(
        "Stream #16(MemcpyH2D)", "MemcpyH2D", 20, 10, correlation_id=12, memcpy_details="kind_src:pageable size:4096"
    )
    gpu.event("XLA Ops", "dot.3", 50, 300)
    host.event("python", "train", 0, 500, number=77, step_num=5)
    host.event("python", "cuLaunchKernel", 30, 5, correlation_id=11)
    host.event("python", "cuMemcpyHtoDAsync", 10, 5, correlation_id=12)
    return space


def test_streams_threads_and_hlo_ops(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(build_space().SerializeToString())
    rank = tk.load(path).ranks[0]
    copy, kernel = prepare_run(tk.load(path)).kernels.iter_rows(named=True)
    assert (kernel["op"], kernel["family"], kernel["step"], kernel["stream"]) == ("dot.3", "gemm", 5, 14)
    assert (kernel["blocks"], kernel["threads_per_block"], kernel["registers_per_thread"]) == (16, 256, 128)
    assert (kernel["shared_memory_bytes"], kernel["dur_ns"], kernel["ts_ns"]) == (4096, 300_000, 51_000)
    assert (copy["kind"], copy["bytes"], copy["copy_kind"]) == ("memcpy", 4096, "HtoD")
    assert rank.calls["tid"].unique().to_list() == [77]


def test_what_amd_and_python_write_besides(tmp_path):
    """As XLA 0.8 writes it on an MI300X."""
    space = build_space()
    gpu, host = PlaneBuilder(space, "/device:GPU:1"), PlaneBuilder(space, "/host:CPU")
    figures = {"core_count": 304, "memory_size": 206141652992, "compute_cap_major": 9, "compute_cap_minor": 4}
    for name, value in figures.items():
        kind = gpu.number(gpu.stats, gpu.plane.stat_metadata, name)
        gpu.plane.stats.add(metadata_id=kind, uint64_value=value)
    details = " grid:1280,1,1 block:256,1,1 private_mem:0 group_mem:2112 occ_pct:0"
    for start in (50, 150, 250):
        gpu.event("Stream #3(Kernel)", "loop_fusion.kd", start, 40, correlation_id=20 + start, kernel_details=details)
    gpu.event("Stream #4", "CopyHostToDevice", 20, 10, correlation_id=9, memcpy_details="kind:Unknown size:64 async:1")
    host.event("python3", "$train.py:12 step", 0, 400)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.SerializeToString())
    rank = tk.load(path).ranks[0]
    kernel, copy = rank.activities.filter(stream=3), rank.activities.filter(stream=4)
    assert kernel.select("name", "blocks", "shared_memory_bytes").row(0) == ("loop_fusion", 1280, 2112)
    assert copy.select("kind", "name", "bytes").rows() == [("memcpy", "Memcpy HtoD", 64)]
    assert (rank.device.sms, rank.annotations["name"].to_list()) == (304, ["ProfilerStep#5"])
    assert prepare_run(tk.load(path)).source.gpu.slug == "mi300x"


def test_a_cut_file_is_one_clear_error(tmp_path):
    path = tmp_path / "host.xplane.pb"
    content = build_space().SerializeToString()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedTraceError, check=has_code("format-damaged")):
        tk.load(path)


def test_a_profile_of_a_tpu_is_refused(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(build_space().SerializeToString().replace(b"/device:GPU:0", b"/device:TPU:0"))
    with pytest.raises(NoGpuActivityError, check=has_code("xplane-without-kernels")):
        tk.load(path)


def test_without_protobuf_the_package_is_named(tmp_path, monkeypatch):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(build_space().SerializeToString())
    load_messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(NotATraceError, match=r"tracekit-gpu\[formats\]", check=has_code("format-needs-package")):
        tk.load(path)
