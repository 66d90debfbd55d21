"""rocprofv3's Perfetto traces, written by hand: slices with their times as arguments, texts numbered or not."""

import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.errors import DamagedTraceError, NoGpuActivityError
from tracekit.ingest.formats.perfetto_packets import load_messages
from tracekit.run import prepare_run


def add_slice(trace, category, name, start, dur, *, numbered=False, **notes):
    """Add a slice; times are microseconds."""
    packet = trace.packet.add(trusted_packet_sequence_id=1)
    event = packet.track_event
    event.type = 1
    if numbered:
        packet.interned_data.event_names.add(iid=9, name=name)
        packet.interned_data.event_categories.add(iid=4, name=category)
        event.name_iid = 9
        event.category_iids.append(4)
    else:
        event.name = name
        event.categories.append(category)
    for key, value in (notes | {"begin_ns": 1000 * start, "end_ns": 1000 * (start + dur)}).items():
        note = event.debug_annotations.add(uint_value=value)
        if numbered:
            number = len(packet.interned_data.debug_annotation_names) + 1
            packet.interned_data.debug_annotation_names.add(iid=number, name=key)
            note.name_iid = number
        else:
            note.name = key


def build_trace():
    """A step with a GEMM of 300 us on 16 blocks of 64, and a copy of 4 KiB."""
    trace = load_messages()["Trace"]()
    name = "Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI16x16x16"
    add_slice(trace, "marker_api", "step 3", 10, 600, tid=42)
    add_slice(trace, "hip_api", "hipLaunchKernel", 25, 5, tid=42, corr_id=11)
    sizes = {"workgroup_size": 64, "grid_size": 1024, "group_segment_size": 512}
    add_slice(trace, "kernel_dispatch", name, 50, 300, numbered=True, corr_id=11, agent=2, queue=1, **sizes)
    add_slice(trace, "memory_copy", "MEMORY_COPY_HOST_TO_DEVICE", 400, 10, corr_id=12, copy_bytes=4096, dst_agent=2)
    return trace


def test_slices_are_kernels_copies_calls_and_ranges(tmp_path):
    path = tmp_path / "results.pftrace"
    path.write_bytes(build_trace().SerializeToString())
    kernel, copy = prepare_run(tk.load(path)).kernels.iter_rows(named=True)
    assert (kernel["family"], kernel["dur_ns"], kernel["step"], kernel["stream"]) == ("gemm", 300_000, 3, 1)
    assert (kernel["blocks"], kernel["threads_per_block"], kernel["shared_memory_bytes"]) == (16, 64, 512)
    assert kernel["call"] == 0
    assert (copy["copy_kind"], copy["bytes"]) == ("HtoD", 4096)


def test_traces_of_other_programs_and_cut_ones_are_refused(tmp_path):
    path = tmp_path / "results.pftrace"
    trace = load_messages()["Trace"]()
    add_slice(trace, "gfx", "draw", 0, 1)
    path.write_bytes(trace.SerializeToString())
    with pytest.raises(NoGpuActivityError, check=has_code("perfetto-without-kernels")):
        tk.load(path)
    path.write_bytes(build_trace().SerializeToString()[:-3])
    with pytest.raises(DamagedTraceError, check=has_code("format-damaged")):
        tk.load(path)
