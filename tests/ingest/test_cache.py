"""The cache of decoded files: quick, never wrong, never in the way."""

import os
import threading
import time
from pathlib import Path

import pytest

import tracekit
from tracekit.errors import DamagedTraceError, TraceError
from tracekit.ingest import cache
from tracekit.testing import TraceBuilder


def builder(name="gemm"):
    built = TraceBuilder().op("aten::mm", 0, 30, dims=[[4, 4], [4, 4]], types=["float", "float"])
    built.kernel(name, 20, 100, launch=10).step(3, 0, 200)
    built.metadata["distributedInfo"] = {"backend": "nccl", "rank": 1, "world_size": 2}
    built.metadata["odd"] = [1, 2.5, None, {"ключ": "é\\u0000"}, 2**63]
    return built


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache that keeps small files too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SMALLEST_FILE_BYTES", 0)
    return tmp_path / "cache" / "tracekit" / "traces"


@pytest.fixture
def trace(tmp_path):
    return builder().save(tmp_path / "trace.json.gz")


@pytest.fixture
def decoded(monkeypatch):
    """The names of what was decoded rather than taken from the cache."""
    from tracekit.ingest import decode

    names, decode_ = [], decode.decode_ranks

    def noted(stream, source, *args, **options):
        names.append(Path(source).name)
        return decode_(stream, source, *args, **options)

    monkeypatch.setattr(decode, "decode_ranks", noted)
    return names


def same(first, second):
    tables = all(first.tables[name].equals(second.tables[name]) for name in first.tables)
    types = all(first.tables[name].schema == second.tables[name].schema for name in first.tables)
    facts = [(r.source, r.device, r.rank, r.world_size, r.metadata, r.warnings) for r in (first, second)]
    return tables and types and facts[0] == facts[1]


def test_the_second_load_decodes_nothing_and_gives_the_same(trace, decoded):
    first, second = tracekit.load(trace).rank(), tracekit.load(trace).rank()
    assert decoded == ["trace.json.gz"]
    assert same(first, second)


def test_a_large_trace_is_there_at_once(real_traces):
    path = real_traces / "hta_df_index_resolver_54mb.json.gz"
    first = tracekit.load(path).rank()
    started = time.monotonic()
    second = tracekit.load(path).rank()
    assert time.monotonic() - started < 0.3
    assert same(first, second)


@pytest.mark.heavy
def test_every_real_trace_survives_the_cache(real_traces):
    """All but those that are no trace of a GPU."""
    refused, paths = [], sorted(path for path in real_traces.glob("*.json.gz") if not path.name.endswith(".et.json.gz"))
    for path in paths:
        try:
            first = tracekit.load(path).rank()
        except TraceError:
            refused.append(path.name)
            continue
        assert same(first, tracekit.load(path).rank()), path.name
    assert len(refused) <= len(paths) / 10


def test_without_a_cache_nothing_is_kept(trace, decoded, folder):
    tracekit.load(trace, cache=False)
    assert not folder.exists()
    tracekit.load(trace)
    tracekit.load(trace, cache=False)
    assert len(decoded) == 3


def test_a_copy_is_found_and_has_its_own_name(trace, decoded, tmp_path):
    tracekit.load(trace)
    copy = tmp_path / "copy_of.json.gz"
    copy.write_bytes(trace.read_bytes())
    assert tracekit.load(copy).source == str(copy)
    assert len(decoded) == 1


def test_the_rank_of_a_file_name_is_not_kept(tmp_path):
    built = builder()
    del built.metadata["distributedInfo"]
    ranks = [tracekit.load(built.save(tmp_path / f"rank{i}.json")).rank().rank for i in (4, 5)]
    assert ranks == [4, 5]


def test_a_file_that_changed_is_read_anew(trace):
    tracekit.load(trace)
    builder("other").save(trace)
    assert tracekit.load(trace).rank().activities["name"].to_list() == ["other"]


def test_another_version_of_the_decoder_reads_anew(trace, decoded, monkeypatch):
    tracekit.load(trace)
    monkeypatch.setattr(cache, "_version", lambda: "another")
    tracekit.load(trace)
    assert len(decoded) == 2


def entry_files(folder):
    (entry,) = folder.iterdir()
    return sorted(entry.iterdir())


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "one bit": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize(
    "file", [*(f"{name}.parquet" for name in ("ops", "activities", "syncs")), "facts.json", "sums"]
)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_rebuilt_silently(damage, file, trace, decoded, folder):
    first = tracekit.load(trace).rank()
    entry = entry_files(folder)[0].parent
    DAMAGE[damage](entry / file)
    assert same(first, tracekit.load(trace).rank())
    assert len(decoded) == 2
    assert same(first, tracekit.load(trace).rank())
    assert len(decoded) == 2


def test_a_directory_that_cannot_be_written_to_is_no_cache(trace, folder, decoded):
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where the directory should be")
    for _ in range(2):
        assert tracekit.load(trace).rank().activities.height == 1
    assert len(decoded) == 2
    assert cache.measure_usage().entries == 0


def test_what_json_cannot_hold_is_not_kept(tmp_path, folder):
    built = builder()
    built.metadata["huge"] = 10**40
    path = built.save(tmp_path / "trace.json")
    assert tracekit.load(path).rank().metadata == tracekit.load(path).rank().metadata


def test_a_damaged_trace_is_not_kept(tmp_path, folder):
    path = tmp_path / "trace.json"
    path.write_bytes(builder().to_json()[:200])
    with pytest.raises(DamagedTraceError):
        tracekit.load(path)
    assert not folder.exists()


def test_warnings_of_a_damaged_file_are_kept(tmp_path, decoded):
    path = builder().save(tmp_path / "trace.json.gz")
    path.write_bytes(path.read_bytes()[:-4])
    first, second = tracekit.load(path).rank(), tracekit.load(path).rank()
    assert first.warnings == second.warnings
    assert second.warnings[0].code == "compressed-data-cut"
    assert len(decoded) == 1


def test_the_memory_allowed_holds_for_entries_too(trace, decoded):
    size = int(sum(table.estimated_size() for table in tracekit.load(trace).rank().tables.values()))
    tracekit.load(trace, memory=size - 1)
    assert len(decoded) == 2
    tracekit.load(trace, memory=size)
    assert len(decoded) == 2


def test_what_was_used_last_stays(tmp_path, monkeypatch, decoded, folder):
    paths = [builder(f"gemm_{i}").save(tmp_path / f"{i}.json") for i in range(3)]
    for path in paths[:2]:
        tracekit.load(path)
        for age, entry in enumerate(sorted(folder.iterdir(), key=os.path.getmtime, reverse=True), start=1):
            os.utime(entry, (time.time() - 100 * age,) * 2)
    tracekit.load(paths[0])
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", int(2.5 * cache.measure_usage().size_bytes / 2))
    tracekit.load(paths[2])
    decoded.clear()
    for path in (paths[0], paths[2]):
        tracekit.load(path)
    assert decoded == []
    tracekit.load(paths[1])
    assert decoded == ["1.json"]


def test_what_a_killed_process_left_goes_after_a_day(trace, folder):
    for name, age in ((".partial-old", 2 * 86_400), (".partial-new", 60)):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (time.time() - age,) * 2)
    tracekit.load(trace)
    assert sorted(entry.name for entry in folder.iterdir())[0] == ".partial-new"
    assert cache.measure_usage().entries == 1


def test_many_at_once(trace, folder):
    failures = []

    def load():
        try:
            for _ in range(5):
                assert tracekit.load(trace).rank().activities.height == 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(folder.iterdir())) == 1


def test_others_on_the_machine_cannot_read_it(trace, folder):
    tracekit.load(trace)
    assert folder.stat().st_mode & 0o077 == 0


def test_small_files_and_pipes_are_not_kept(trace, folder, monkeypatch, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(trace.read_bytes(),))
    writer.start()
    tracekit.load(pipe)
    writer.join()
    monkeypatch.setattr(cache, "SMALLEST_FILE_BYTES", 1 << 20)
    tracekit.load(trace)
    assert not folder.exists()


def test_usage_and_clear(trace, folder):
    assert cache.measure_usage() == cache.CacheUsage(folder, 0, 0)
    tracekit.load(trace)
    used = cache.measure_usage()
    assert (used.directory, used.entries) == (folder, 1)
    (entry,) = folder.iterdir()
    assert used.size_bytes == sum(file.stat().st_size for file in entry.iterdir()) > 1000
    assert cache.clear() == used
    assert cache.measure_usage().entries == 0
