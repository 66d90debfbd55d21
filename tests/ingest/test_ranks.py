"""Which rank a file is of, and what is said of a job's files together."""

import tracemalloc
import zipfile

import pytest

import tracekit
from tests.codes import find_message, has_code
from tracekit.errors import NotATraceError, TraceError, TracekitError, TraceTooLargeError
from tracekit.ingest import parse_memory_size, ranks
from tracekit.messages.requests import READING_FILE
from tracekit.messages.traces import FILES_OF_OTHER_KIND, RANK_CHOSEN, RANK_MISSING, RANKS_MISSING
from tracekit.testing import A100, TraceBuilder


def save(path, rank=None, world_size=2, start=0, device=A100, name="gemm"):
    path.parent.mkdir(parents=True, exist_ok=True)
    built = TraceBuilder(device).op("aten::mm", start, 30).kernel(name, start + 20, 100, launch=start + 10)
    if rank is not None:
        built.metadata = {
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size},
            **built.metadata,
        }
    return built.save(path)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.json", 3), ("trace_rank_3.json.gz", 3), ("trace-rank-12.json", 12), ("run_r3.json", 3),
        ("worker3.1700000000.pt.trace.json.gz", 3), ("v100_dlrm_rank0_of_8.json", 0), ("RANK7.json", 7),
        ("/runs/rank_5/trace.json", 5), ("all.zip:rank4/trace.json", 4), ("s3://bucket/rank6.json.gz", 6),
        ("node1_rank9.json", 9), ("rank0/rank2.json", 2), ("global_rank11.json", 11),
        ("local_rank1.json", None), ("host_1234.1700000000.pt.trace.json", None), ("resnet50.json", None),
        ("gpu-worker3_1234.1700000000.pt.trace.json", None), ("dp_rank0_tp_rank3.json", None), ("trace.json", None),
        ("rank3/a/b/trace.json", None), ("3.json", None),
        ("lora_rank8.json", None), ("exp_r3/trace.json", None), ("lora_rank8/trace.json", None),
    ],
)  # fmt: skip
def test_ranks_in_names(name, rank):
    assert ranks.parse_rank_from_name(name) == rank


def test_the_trace_knows_better_than_its_name(tmp_path):
    files = [save(tmp_path / "rank0.json", rank=1), save(tmp_path / "rank1.json", rank=0)]
    assert [(rank.rank, rank.source) for rank in tracekit.load(files).ranks] == [
        (0, str(files[1])),
        (1, str(files[0])),
    ]


def test_ranks_from_names_in_order(tmp_path):
    for rank in (10, 9, 0):
        save(tmp_path / f"rank{rank}.json")
    trace = tracekit.load(tmp_path)
    assert [rank.rank for rank in trace.ranks] == [0, 9, 10]
    assert trace.warnings == (RANKS_MISSING(ranks="1-8", world_size=11),)


def test_several_files_without_a_rank_are_refused(tmp_path):
    save(tmp_path / "a.json")
    save(tmp_path / "b.json")
    with pytest.raises(TraceError, check=has_code("ranks-ambiguous")):
        tracekit.load(tmp_path)


def test_two_files_of_one_rank_are_refused_by_name(tmp_path):
    first, second = save(tmp_path / "a.json", rank=1), save(tmp_path / "b.json", rank=1)
    for chosen in (None, "lowest"):
        with pytest.raises(TraceError, check=has_code("rank-given-twice")) as caught:
            tracekit.load(tmp_path, ranks=chosen)
        assert str(first) in str(caught.value)
        assert str(second) in str(caught.value)


def test_missing_ranks_are_said(tmp_path):
    for rank in (0, 1, 3, 4, 6):
        save(tmp_path / f"{rank}.json", rank=rank, world_size=8)
    assert tracekit.load(tmp_path).warnings == (RANKS_MISSING(ranks="2, 5, 7", world_size=8),)


def test_one_file_of_a_job_is_no_cause_for_a_warning(tmp_path):
    assert tracekit.load(save(tmp_path / "a.json", rank=3, world_size=8)).warnings == ()


def test_files_of_different_jobs_are_said(tmp_path):
    v100 = {**A100, "name": "Tesla V100-SXM2-32GB"}
    save(tmp_path / "a.json", rank=0, world_size=2)
    save(tmp_path / "b.json", rank=1, world_size=4, start=3600e6, device=v100)
    assert {warning.code: dict(warning.values) for warning in tracekit.load(tmp_path).warnings} == {
        "ranks-missing": {"ranks": "2-3", "world_size": 4},
        "world-sizes-differ": {"world_sizes": (2, 4)},
        "gpus-differ": {"gpus": ("NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB")},
        "recorded-apart": {"minutes": pytest.approx(60)},
    }


@pytest.fixture
def job(tmp_path):
    for rank in range(4):
        save(tmp_path / f"t{rank}.json", rank=rank, world_size=4, name=f"gemm_{rank}")
    return tmp_path


def archive(folder):
    """All files of a folder, zipped."""
    path = folder.parent / f"{folder.name}.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for file in folder.rglob("*"):
            if file.is_file():
                packed.write(file, file.relative_to(folder))
    return path


def test_only_the_ranks_asked_for_are_read(job):
    (job / "t2.json").write_bytes((job / "t2.json").read_bytes()[:400])
    trace = tracekit.load(job, ranks=[3, 1])
    assert [rank.activities["name"][0] for rank in trace.ranks] == ["gemm_1", "gemm_3"]
    assert trace.warnings == ()
    for asked in ([2], [1, 2]):
        with pytest.raises(TraceError, match=r"t2\.json"):
            tracekit.load(job, ranks=asked)


def test_files_of_a_folder_that_are_left_out_are_named(job):
    (job / "t2.json").write_bytes((job / "t2.json").read_bytes()[:400])
    (job / "t9.json").touch()
    (job / "cpu.json").write_bytes(TraceBuilder().op("aten::mm", 0, 30).to_json())
    (job / "broken.zip").write_bytes(b"PK\3\4" + bytes(30))
    (job / "logs").mkdir()
    for name in ("a.txt", "b.txt", "c.txt", "d.txt", ".DS_Store"):
        (job / "logs" / name).write_text("not a trace")
    for given in (job, job / "*", archive(job)):
        trace = tracekit.load(given)
        assert [rank.rank for rank in trace.ranks] == [0, 1, 3]
        assert RANK_MISSING(rank=2, world_size=4) in trace.warnings
        without_gpu = find_message(trace.warnings, "files-without-gpu").values
        assert (without_gpu["files"], without_gpu["names"].rpartition(":")[2]) == (1, "cpu.json")
        assert "a.txt" in find_message(trace.warnings, "files-not-traces").values["names"]
        left_out = " ".join(warning.values.get("names", "") for warning in trace.warnings)
        assert all(name in left_out for name in ("t2.json", "t9.json", "broken.zip"))
        assert not any("DS_Store" in str(warning) for warning in trace.warnings)
    others = find_message(tracekit.load(job).warnings, "files-not-traces")
    assert others.values == {"files": 4, "names": "a.txt, b.txt, c.txt and 1 more"}
    with pytest.raises(TraceError, match=r"t2\.json"):
        tracekit.load([job / "t1.json", job / "t2.json"])


def test_a_folder_of_which_nothing_can_be_read_tells_of_its_traces(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "rank0.json").write_bytes(TraceBuilder().op("aten::mm", 0, 30).to_json())
    with pytest.raises(TraceError, match=r"rank0\.json", check=has_code("files-beside-unreadable")) as caught:
        tracekit.load(tmp_path)
    assert caught.value.catalogue_message.values["error"].code == "trace-without-gpu"


def test_many_files_that_are_none_take_no_memory(tmp_path):
    save(tmp_path / "trace.json")
    for number in range(50):
        (tmp_path / f"{number}.json").write_text("{}")
    tracekit.load(tmp_path / "trace.json", cache=False)
    tracemalloc.start()
    trace = tracekit.load(tmp_path, cache=False)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert trace.warnings[0].values["files"] == 50
    assert peak_bytes < 100e6


def test_the_lowest_rank_and_a_word_about_the_others(job):
    (job / "t0.json").unlink()
    trace = tracekit.load(job, ranks="lowest")
    assert [rank.rank for rank in trace.ranks] == [1]
    assert trace.warnings == (RANK_CHOSEN(rank=1, given=3), RANK_MISSING(rank=0, world_size=4))


def test_a_rank_that_is_not_there(job):
    with pytest.raises(TraceError, match="0-3", check=has_code("rank-not-given")):
        tracekit.load(job, ranks=[9])
    with pytest.raises(TraceError, check=has_code("rank-not-read")):
        tracekit.load(job / "t1.json", ranks=[9])


def test_ranks_that_only_reading_tells(job):
    """Other JSON in the directory tells no rank, so that everything is read."""
    (job / "config.json").write_text("{}")
    assert [rank.rank for rank in tracekit.load(job, ranks=[2]).ranks] == [2]
    trace = tracekit.load(job, ranks="lowest")
    assert [rank.rank for rank in trace.ranks] == [0]
    assert trace.warnings == (FILES_OF_OTHER_KIND(files=1, names="config.json"), RANK_CHOSEN(rank=0, given=4))


def test_a_directory_without_any_trace_names_the_reason(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotATraceError, match=r"config\.json"):
        tracekit.load(tmp_path)


def test_the_tables_of_all_ranks_together_stay_within_the_memory(job):
    table_bytes = sum(table.estimated_size() for table in tracekit.load(job / "t0.json").rank().tables.values())
    assert len(tracekit.load(job, memory=100 * int(table_bytes)).ranks) == 4
    with pytest.raises(TraceTooLargeError, match=r"t2\.json", check=has_code("traces-too-large")):
        tracekit.load(job, memory=int(1.5 * table_bytes))


@pytest.mark.parametrize("memory", ["2X", "", "-1", "0", "lots", 0])
def test_what_is_no_size_of_memory(memory, job):
    with pytest.raises(TracekitError, check=has_code("memory-size-invalid")):
        tracekit.load(job, memory=memory)


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        *(("2G", 2 << 30), ("512M", 512 << 20), ("1.5 GiB", 3 << 29), ("100000kb", 100_000 << 10)),
        *((10**9, 10**9), ("1000000000", 10**9)),
    ],
)
def test_sizes_of_memory(memory, size, job):
    assert parse_memory_size(memory) == size
    assert tracekit.load(job / "t0.json", memory=memory).ranks


def test_progress_counts_the_files(job):
    said = []
    tracekit.load(job, progress=said.append)
    assert said == [READING_FILE(number=number, files=4) for number in (1, 2, 3, 4)]
