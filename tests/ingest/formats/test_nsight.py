"""Nsight Systems' exports hold the same kernels, launches and steps as the trace they are written from."""

import sqlite3
from contextlib import closing
from itertools import pairwise

import polars as pl
import pytest

import tracekit as tk
from tests.codes import has_code, list_codes
from tests.ingest.formats.nsight_files import build_tables, write_database, write_parquet_folder
from tracekit.doctor.examine import examine
from tracekit.errors import DamagedTraceError, NoGpuActivityError, NotATraceError
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

SHAPES = [[4096, 4096], [4096, 4096]]


@pytest.fixture(scope="module")
def recorded():
    """Two steps: a GEMM of known shape, a pinned copy, a memset and a wait for them."""
    builder = TraceBuilder()
    for number in range(2):
        at = 1000 * number
        builder.step(number, at, 900).op("aten::mm", at + 1, 40, dims=SHAPES)
        builder.kernel(
            "ampere_bf16_s16816gemm_bf16_128x128", at + 20, 300, launch=at + 5,
            grid=[32, 32, 1], block=[256, 1, 1], **{"registers per thread": 128, "shared memory": 4096},
        )  # fmt: skip
        name = "Memcpy HtoD (Pinned -> Device)"
        builder.kernel(name, at + 330, 20, launch=at + 50, kind="gpu_memcpy", call="cudaMemcpyAsync", bytes=4096)
        builder.kernel(
            "Memset (Device)", at + 360, 2, launch=at + 60, kind="gpu_memset", call="cudaMemsetAsync", bytes=64
        )
        builder.call("cudaDeviceSynchronize", at + 70, 300)
    return builder.load()


@pytest.fixture(scope="module", params=["sqlite", "sqlite.gz", "parquet"])
def path(request, recorded, tmp_path_factory):
    import gzip

    folder = tmp_path_factory.mktemp("nsight")
    tables = build_tables(recorded.ranks[0])
    if request.param == "parquet":
        return write_parquet_folder(folder / "report", tables)
    database = write_database(folder / "report.sqlite", tables)
    if request.param == "sqlite":
        return database
    (folder / "report.sqlite.gz").write_bytes(gzip.compress(database.read_bytes()))
    return folder / "report.sqlite.gz"


def test_static_and_dynamic_shared_memory_add_up(recorded, tmp_path):
    """4,096 bytes that the kernel declares, and 8,192 that its launch asks for."""
    tables = build_tables(recorded.ranks[0])
    name = "CUPTI_ACTIVITY_KIND_KERNEL"
    tables[name] = tables[name].with_columns(dynamicSharedMemory=pl.lit(8192))
    found = tk.load(write_database(tmp_path / "report.sqlite", tables)).ranks[0].activities
    assert found.filter(kind="kernel")["shared_memory_bytes"].unique().to_list() == [4096 + 8192]


def test_an_export_has_what_the_profiler_recorded(recorded, path):
    there, here = recorded.ranks[0], tk.load(path).ranks[0]
    for table, columns in {
        "activities": ("ts_ns", "dur_ns", "name", "kind", "stream", "device", "bytes", "blocks", "threads_per_block",
                       "registers_per_thread", "shared_memory_bytes"),
        "calls": ("ts_ns", "dur_ns", "name", "pid", "tid", "correlation"),
        "ops": ("ts_ns", "dur_ns", "name", "pid", "tid", "input_dims"),
        "annotations": ("ts_ns", "dur_ns", "name"),
    }.items():  # fmt: skip
        assert here.tables[table].select(columns).equals(there.tables[table].select(columns)), table
    assert here.device == there.device
    assert list_codes(here.warnings)[0] == "format-lacks"


def test_it_predicts_as_the_profilers_trace_does(recorded, path):
    there, here = prepare_run(recorded), prepare_run(tk.load(path))
    assert here.measured_step.step_time_us == there.measured_step.step_time_us
    columns = ("name", "op", "step", "family", "m", "n", "k", "copy_kind", "call")
    assert here.kernels.select(columns).equals(there.kernels.select(columns))


def test_the_doctor_says_what_the_format_lacks(path):
    trace = tk.load(path)
    check = next(check for check in examine(trace, prepare_run(trace)).checks if check.name == "format")
    assert check.evidence.code == "format-of-tool"


def test_ranges_that_count_are_steps(recorded, tmp_path):
    tables = build_tables(recorded.ranks[0])
    renamed = tables["NVTX_EVENTS"].with_columns(pl.col("text").str.replace("ProfilerStep#", "iteration "))
    database = write_database(tmp_path / "report.sqlite", tables | {"NVTX_EVENTS": renamed})
    assert prepare_run(tk.load(database)).program.steps["step"].to_list() == [0, 1]


def test_an_old_report_lacks_tables_and_columns(recorded, tmp_path):
    tables = build_tables(recorded.ranks[0])
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    old = {
        "StringIds": tables["StringIds"],
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels.select("start", "end", "streamId", shortName="demangledName"),
    }
    rank = tk.load(write_database(tmp_path / "old.sqlite", old)).ranks[0]
    assert rank.activities["name"].unique().to_list() == ["ampere_bf16_s16816gemm_bf16_128x128"]
    assert rank.device is None


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_wait_for_an_event_names_the_record_that_it_is_for(recorded, tmp_path, with_ids):
    event = {"contextId": [1] * 2, "eventId": [5] * 2, "eventSyncId": [77, 78]}
    records = pl.DataFrame({"streamId": [7, 9], "correlationId": [11, 13], **event})
    waits = pl.DataFrame(
        {"start": [50, 60], "end": [50, 60], "streamId": [20, 2**32 - 1], "correlationId": [12, 14]}
        | {"syncType": [2, 1], **event}
    )
    if not with_ids:
        records, waits = records.drop("eventSyncId"), waits.drop("eventSyncId")
    tables = build_tables(recorded.ranks[0])
    tables |= {"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": waits, "CUPTI_ACTIVITY_KIND_CUDA_EVENT": records}
    rank = tk.load(write_database(tmp_path / "report.sqlite", tables)).ranks[0]
    found = rank.syncs.select("name", "stream", "wait_on_record", "wait_on_stream").rows()
    assert found == [("Stream Wait Event", 20, 11, 7), ("Event Sync", -1, 13, 9)]
    assert "waits for events" not in str(rank.warnings[0])


@pytest.mark.parametrize(
    ("damage", "error", "code"),
    [
        (lambda data: data[:5000], DamagedTraceError, "format-damaged"),
        (lambda data: data[:100] + b"\xff" * (len(data) - 100), DamagedTraceError, "format-damaged"),
        (lambda data: data[:16], DamagedTraceError, "format-damaged"),
        (lambda _: b"# no database", DamagedTraceError, "format-damaged"),
    ],
)
def test_a_damaged_database_is_one_clear_error(recorded, tmp_path, damage, error, code):
    path = write_database(tmp_path / "report.sqlite", build_tables(recorded.ranks[0]))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(error, check=has_code(code)):
        tk.load(path)


@pytest.mark.parametrize(
    ("tables", "error", "code"),
    [
        ({"customers": ["name"]}, NotATraceError, "database-of-other-tool"),
        ({"StringIds": ["id", "value"]}, NoGpuActivityError, "nsight-without-cuda"),
    ],
)
def test_a_database_without_kernels_is_refused(tmp_path, tables, error, code):
    filled = {name: pl.DataFrame({column: [1] for column in columns}) for name, columns in tables.items()}
    with pytest.raises(error, check=has_code(code)):
        tk.load(write_database(tmp_path / "other.sqlite", filled))


def test_hostile_tables_are_not_queried(recorded, tmp_path):
    tables = build_tables(recorded.ranks[0])
    kernels = tables.pop("CUPTI_ACTIVITY_KIND_KERNEL")
    path = write_database(tmp_path / "hostile.sqlite", tables | {"k": kernels})
    with sqlite3.connect(path) as database:
        endless = "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start, start FROM n"
        database.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}")
    assert tk.load(path).ranks[0].activities["kind"].unique().sort().to_list() == ["memcpy", "memset"]


def test_text_where_numbers_belong_is_survived(recorded, tmp_path):
    tables = build_tables(recorded.ranks[0])
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"].with_columns(streamId=pl.lit("seven"), gridX=pl.lit(2**62))
    path = write_database(tmp_path / "odd.sqlite", tables | {"CUPTI_ACTIVITY_KIND_KERNEL": kernels})
    found = tk.load(path).ranks[0].activities.filter(kind="kernel")
    assert found["stream"].to_list() == [0, 0]
    assert found["blocks"].to_list() == [None, None]


def test_a_parquet_file_that_is_none_is_named(recorded, tmp_path):
    folder = write_parquet_folder(tmp_path / "report", build_tables(recorded.ranks[0]))
    (folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(DamagedTraceError, match="CUPTI_ACTIVITY_KIND_KERNEL", check=has_code("format-damaged")):
        tk.load(folder)


def test_folders_in_a_folder_are_ranks(recorded, tmp_path):
    for rank in (0, 1):
        write_parquet_folder(tmp_path / f"rank{rank}_pqtdir", build_tables(recorded.ranks[0]))
    assert [rank.rank for rank in tk.load(tmp_path).ranks] == [0, 1]


def test_a_small_database_whose_pages_refer_to_one_another_has_an_end(tmp_path):
    """Each pointer of seven inner pages leads to the next one, those of the last to one leaf: 10^12 rows in 500 kB."""
    page_bytes, inner, leaf = 512, 5, 13
    path = write_database(tmp_path / "bomb.sqlite", {"StringIds": pl.DataFrame({"id": [0], "value": ["x"]})})
    with closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO StringIds VALUES (?, 'x')", ((number,) for number in range(40_000)))
        database.commit()
        database.execute(f"PRAGMA page_size={page_bytes}")
        database.execute("VACUUM")
        [root] = database.execute("SELECT rootpage FROM sqlite_master").fetchone()
    data = bytearray(path.read_bytes())
    starts = {number: (number - 1) * page_bytes for number in range(2, len(data) // page_bytes + 1)}
    others = [number for number, start in starts.items() if data[start] == inner and number != root]
    chain = [root, *others[:6], next(number for number, start in starts.items() if data[start] == leaf)]
    for number, following in pairwise(chain):
        start = starts[number]
        cells = range(start + 12, start + 12 + 2 * int.from_bytes(data[start + 3 : start + 5]), 2)
        for place in [start + 8, *(start + int.from_bytes(data[cell : cell + 2]) for cell in cells)]:
            data[place : place + 4] = following.to_bytes(4)
    path.write_bytes(data)
    with pytest.raises(DamagedTraceError, match="more rows", check=has_code("format-damaged")):
        tk.load(path)
