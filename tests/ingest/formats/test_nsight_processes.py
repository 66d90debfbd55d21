"""A report of Nsight Systems holds all processes of a job on a machine: each that runs kernels is a rank."""

import polars as pl
import pytest

import tracekit as tk
from tests.codes import list_codes
from tests.ingest.formats.nsight_files import GPU, build_tables, write_database, write_parquet_folder
from tracekit.testing import TraceBuilder

ACTIVITIES = ("KERNEL", "MEMCPY", "MEMSET")
H100 = {**GPU, "id": 1, "cuDevice": 1, "name": "NVIDIA H100 80GB HBM3", "smCount": 132, "computeMajor": 9}


def build_process(process, kernel_us, *devices):
    """Build the tables of a process with a kernel on each of some GPUs; correlation ids begin anew."""
    builder = TraceBuilder()
    for number, device in enumerate(devices):
        builder.op("aten::relu", 100 * number, 40)
        builder.kernel("relu", 100 * number + 20, kernel_us, launch=100 * number + 10, device=device)
    tables = build_tables(builder.load().ranks[0])
    pid = 3 * 2**48 + process * 2**24
    for name, table in tables.items():
        if name.removeprefix("CUPTI_ACTIVITY_KIND_") in ACTIVITIES:
            tables[name] = table.with_columns(globalPid=pl.lit(pid))
        elif "globalTid" in table.columns:
            tables[name] = table.with_columns(globalTid=pl.lit(pid + 7))
    return tables


def merge(*processes):
    first = processes[0]
    shared = {"StringIds", "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME"}
    tables = {
        name: first[name] if name in shared else pl.concat([one[name] for one in processes], how="vertical_relaxed")
        for name in first
    }
    return tables | {"TARGET_INFO_GPU": pl.DataFrame([GPU, H100])}


@pytest.fixture(params=["sqlite", "parquet"])
def load(request, tmp_path):
    if request.param == "sqlite":
        return lambda tables: tk.load(write_database(tmp_path / "report.sqlite", tables))
    return lambda tables: tk.load(write_parquet_folder(tmp_path / "report", tables))


def describe(trace):
    return [(rank.rank, rank.world_size, (rank.activities["dur_ns"] // 1000).to_list()) for rank in trace.ranks]


def test_processes_with_a_gpu_each_are_the_ranks_of_a_job(load):
    trace = load(merge(build_process(200, 50, 1), build_process(100, 70, 0)))
    assert describe(trace) == [(0, 2, [70]), (1, 2, [50])]
    assert [rank.device.name for rank in trace.ranks] == [GPU["name"], H100["name"]]
    assert [rank.calls["pid"].unique().to_list() for rank in trace.ranks] == [[100], [200]]
    assert [rank.ops.height for rank in trace.ranks] == [1, 1]
    assert "ranks-by-device" in list_codes(trace.rank(0).warnings)


def test_processes_on_one_gpu_are_ranks_too_and_that_is_said(load):
    trace = load(merge(build_process(200, 50, 0), build_process(100, 70, 0)))
    assert describe(trace) == [(0, 2, [70]), (1, 2, [50])]
    assert "ranks-share-gpu" in list_codes(trace.rank(0).warnings)


def test_a_process_may_count_gpus_from_the_first_that_it_sees(load):
    seen = pl.DataFrame({"gpuId": [0, 1], "cudaId": [0, 0], "pid": [100, 200]})
    trace = load(merge(build_process(200, 50, 0), build_process(100, 70, 0)) | {"TARGET_INFO_CUDA_DEVICE": seen})
    assert describe(trace) == [(0, 2, [70]), (1, 2, [50])]
    assert [rank.device.name for rank in trace.ranks] == [GPU["name"], H100["name"]]
    assert "ranks-by-device" in list_codes(trace.rank(0).warnings)


def test_a_process_that_drives_two_gpus_is_one_rank(load):
    trace = load(merge(build_process(100, 70, 0, 1)))
    assert describe(trace) == [(None, 1, [70, 70])]
    assert trace.ranks[0].activities["device"].to_list() == [0, 1]


def test_ranks_may_drive_several_gpus_each(load):
    trace = load(merge(build_process(200, 50, 2, 3), build_process(100, 70, 0, 1)))
    assert describe(trace) == [(0, 2, [70, 70]), (1, 2, [50, 50])]


def test_a_process_without_kernels_is_no_rank(load):
    tables = merge(build_process(200, 50, 0), build_process(100, 70, 0))
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = kernels.filter(pl.col("globalPid") // 2**24 % 2**24 == 200)
    trace = load(tables)
    assert describe(trace) == [(None, 1, [50])]
    assert trace.ranks[0].calls["pid"].to_list() == [200]


def test_kernels_of_unknown_processes_are_of_one(load):
    tables = build_process(100, 70, 0)
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = tables["CUPTI_ACTIVITY_KIND_KERNEL"].drop("globalPid")
    trace = load(tables)
    assert describe(trace) == [(None, 1, [70])]
    assert trace.ranks[0].calls.height == 1
