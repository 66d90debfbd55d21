"""rocprofv3's databases, written by hand after their schema: what its JSON says, they say too."""

import polars as pl
import pytest

import tracekit as tk
from tests.codes import has_code
from tests.ingest.formats import test_rocprofv3
from tests.ingest.formats.nsight_files import write_database
from tracekit.errors import NoGpuActivityError
from tracekit.run import prepare_run

SUFFIX = "_01998a3f_7c10_7000_8000_0123456789ab"


def build_tables():
    """The same step as in :func:`test_rocprofv3.build_report`."""
    strings = ["", "HIP_RUNTIME_API_EXT", "hipLaunchKernel", "hipMemcpyAsync", "KERNEL_DISPATCH", "MEMORY_COPY"]
    strings += ["MEMORY_COPY_HOST_TO_DEVICE", "MARKER_CORE_RANGE_API", "roctxThreadRangeA"]
    number = {text: place for place, text in enumerate(strings, 1)}
    op = "aten::mm, op_id = 4, sizes = [[512, 512], [512, 512]]"
    events = [
        (1, "MARKER_CORE_RANGE_API", 1, '{"message": "step 3"}'),
        (2, "MARKER_CORE_RANGE_API", 2, f'{{"message": "{op}"}}'),
        (3, "HIP_RUNTIME_API_EXT", 11, "{}"), (4, "HIP_RUNTIME_API_EXT", 12, "{}"),
        (5, "KERNEL_DISPATCH", 11, "{}"), (6, "MEMORY_COPY", 12, "{}"),
    ]  # fmt: skip
    regions = [(10, 500, "roctxThreadRangeA", 1), (20, 60, "roctxThreadRangeA", 2)]
    regions += [(25, 5, "hipLaunchKernel", 3), (40, 5, "hipMemcpyAsync", 4)]
    span = {"pid": 100, "tid": 42}
    dispatch = {"start": 50_000, "end": 350_000, "event_id": 5, "agent_id": 1, "kernel_id": 5, "stream_id": 4}
    sizes = {"group_segment_size": 512, "workgroup_size_x": 64, "workgroup_size_y": 1, "workgroup_size_z": 1}
    sizes |= {"grid_size_x": 512, "grid_size_y": 2, "grid_size_z": 1}
    copy = {"start": 400_000, "end": 410_000, "event_id": 6, "dst_agent_id": 1, "src_agent_id": 0, "size": 4096}
    copy |= {"stream_id": 0, "name_id": number["MEMORY_COPY_HOST_TO_DEVICE"]}
    agents = {"id": [0, 1], "type": ["CPU", "GPU"], "type_index": [0, 0], "name": ["EPYC", "gfx942"]}
    agents |= {"product_name": ["EPYC", "AMD Instinct MI300X"], "extdata": ["{}", '{"cu_count": 304}']}
    tables = {
        "string": {"id": list(number.values()), "string": strings},
        "event": [
            {"id": id_, "category_id": number[category], "stack_id": stack, "extdata": data}
            for id_, category, stack, data in events
        ],
        "region": [
            span | {"start": 1000 * at, "end": 1000 * (at + dur), "name_id": number[name], "event_id": event}
            for at, dur, name, event in regions
        ],
        "info_agent": agents,
        "info_kernel_symbol": {"id": [5], "display_name": ["Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI16x16x16"]},
        "kernel_dispatch": [span | dispatch | sizes],
        "memory_copy": [span | copy],
    }
    return {f"rocpd_{name}{SUFFIX}": pl.DataFrame(rows) for name, rows in tables.items()}


def test_it_reads_as_the_json_of_the_same_profile(tmp_path):
    path = write_database(tmp_path / "100_results.db", build_tables())
    database = tk.load(path).ranks[0]
    document = tk.load(test_rocprofv3.write(tmp_path / "results.json", test_rocprofv3.build_report())).ranks[0]
    for table in ("ops", "annotations", "calls", "activities"):
        read, wanted = getattr(database, table), getattr(document, table)
        assert read.drop("pid", strict=False).equals(wanted.drop("pid", strict=False)), table
    assert database.device == document.device
    assert prepare_run(tk.load(path)).kernels["family"].to_list() == ["gemm", "memcpy"]


def test_one_without_kernels_is_refused(tmp_path):
    tables = {name: table.clear() for name, table in build_tables().items()}
    with pytest.raises(NoGpuActivityError, check=has_code("rocprof-without-kernels")):
        tk.load(write_database(tmp_path / "results.db", tables))
