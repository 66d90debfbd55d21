"""Where traces come from: files, directories, globs, archives, pipes and URIs; compressed in any way."""

import gzip
import io
import json
import os
import sys
import threading
import zipfile
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.codes import find_message, has_code, list_codes
from tracekit.errors import DamagedTraceError, NotATraceError, TraceError, TraceNotFoundError, TraceTooLargeError
from tracekit.ingest.decode import decode
from tracekit.ingest.source import expand_inputs
from tracekit.ingest.stream import open_stream
from tracekit.messages.traces import ARCHIVES_JOINED, COMPRESSED_DATA_CORRUPT, COMPRESSED_DATA_CUT, DATA_BEHIND_TRACE
from tracekit.testing import TraceBuilder

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def builder(rank=None, name="gemm"):
    built = TraceBuilder().op("aten::mm", 0, 30).kernel(name, 20, 100, launch=10)
    if rank is not None:
        built.metadata["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    return built


TEXT = builder().to_json()
EXECUTION_TRACE = b'{\n "schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}'


def zipped(members, **options):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


def text_of(data, size=1 << 20):
    """What a stream delivers, and its damage."""
    parts = []
    with open_stream(io.BytesIO(data), "test") as stream:
        buffer = bytearray(size)
        while filled := stream.readinto(buffer):
            parts.append(bytes(buffer[:filled]))
        return b"".join(parts), stream.damage


FORMS = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "members": gzip.compress(TEXT[:500]) + gzip.compress(b"") + gzip.compress(TEXT[500:]),
    "padded": gzip.compress(TEXT[:500]) + bytes(700) + gzip.compress(TEXT[500:]) + bytes(512),
    "zstd": zstd.compress(TEXT),
    "frames": zstd.compress(TEXT[:500]) + zstd.compress(TEXT[500:]),
    "zip": zipped({"trace.json": TEXT}),
    "zip of gzip": zipped({"trace.json.gz": gzip.compress(TEXT)}),
    "zip of zstd": zipped({"trace.json.zst": zstd.compress(TEXT)}),
    "zip with one file of another name": zipped({"profile": TEXT}),
    "zip with extras": zipped({"__MACOSX/._trace.json": b"x", ".DS_Store": b"x", "run.log": b"x", "trace.json": TEXT}),
}


@pytest.mark.parametrize("name", ["trace.json", "trace.gz", "no suffix"])
@pytest.mark.parametrize("form", FORMS)
def test_compression_is_told_by_content(form, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FORMS[form])
    trace = tracekit.load(path)
    assert trace.rank().activities["name"].to_list() == ["gemm"]
    assert list_codes(trace.rank().warnings) == ["shapes-not-recorded"]
    assert trace.source.startswith(str(path))


@pytest.mark.parametrize("packed", [gzip.compress(TEXT * 50), zstd.compress(TEXT * 50)], ids=["gzip", "zstd"])
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_every_size_of_buffer_gives_the_same_text(packed, size):
    assert text_of(packed, size if size > 1 else 17) == (TEXT * 50, None)


@given(st.integers(1, len(gzip.compress(TEXT)) - 1))
def test_gzip_cut_at_any_byte_is_said_and_its_text_begins_right(length):
    data = gzip.compress(TEXT, mtime=0)[:length]
    text, damage = text_of(data)
    assert TEXT.startswith(text) or length < 2
    if length >= 2:
        assert damage == COMPRESSED_DATA_CUT(compression="gzip", decompressed=len(text))


def test_zstd_cut_short_is_said():
    text, damage = text_of(zstd.compress(TEXT * 500)[:-5])
    assert (TEXT * 500).startswith(text)
    assert damage == COMPRESSED_DATA_CUT(compression="zstd", decompressed=len(text))


def test_a_cut_loses_no_text_in_front_of_it():
    long = bytes(os.urandom(300_000).hex(), "ascii")
    text, _ = text_of(gzip.compress(long)[:-8])
    assert text == long


def test_a_wrong_checksum_is_said_and_costs_no_text():
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 0xFF
    assert text_of(bytes(packed)) == (TEXT, COMPRESSED_DATA_CORRUPT(compression="gzip", decompressed=len(TEXT)))


def test_what_follows_gzip_data_is_said():
    text, damage = text_of(gzip.compress(TEXT) + b"garbage")
    assert text == TEXT
    assert damage.code == "compressed-data-followed"


def test_damage_behind_the_text_is_a_warning(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(TEXT)[:-4])
    trace = tracekit.load(path).rank()
    assert trace.activities.height == 1
    assert trace.warnings[0].code == "compressed-data-cut"


BEHIND = {
    "another trace": builder(1).to_json(),
    "a line of JSON": b'\n{"traceEvents": []}\n',
    "a bracket": b"]",
    "bytes": b"\xff\xfe\x01",
    "far away": b" " * (2 << 20) + b"x",
}
LIST = json.dumps(builder().events).encode()
PACKED = {
    "plain": lambda text: text,
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "zip": lambda text: zipped({"trace.json": text}),
    "zip of gzip": lambda text: zipped({"trace.json.gz": gzip.compress(text)}),
}


@pytest.mark.parametrize(
    ("document", "packed"),
    [*((TEXT, packed) for packed in PACKED), (LIST, "plain"), (LIST, "zip of gzip")],
    ids=lambda part: "list" if part == LIST else "object" if part == TEXT else part,
)
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("small_bytes", [0, 8 << 20])
def test_what_follows_the_document_is_said(small_bytes, document, behind, packed, tmp_path):
    trace = decode_packed(document + BEHIND[behind], packed, tmp_path / "trace", small_bytes)
    place = len(document) + len(BEHIND[behind]) - len(BEHIND[behind].lstrip())
    assert trace.activities.height == 1
    assert find_message(trace.warnings, "data-behind-trace").values == {"offset": place}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("small_bytes", [0, 8 << 20])
def test_blanks_behind_the_document_are_none(small_bytes, packed, tmp_path):
    trace = decode_packed(TEXT + b"\n \0\n", packed, tmp_path / "trace", small_bytes)
    assert "data-behind-trace" not in list_codes(trace.warnings)


def decode_packed(text, packed, path, small_bytes):
    path.write_bytes(PACKED[packed](text))
    with expand_inputs(path).traces[0].open() as stream:
        return decode(stream, "trace", small_bytes=small_bytes)


@pytest.mark.parametrize("join", [lambda a, b: gzip.compress(a) + gzip.compress(b), lambda a, b: gzip.compress(a + b)])
def test_two_compressed_traces_one_behind_the_other_are_said(join, tmp_path):
    path = tmp_path / "all.json.gz"
    path.write_bytes(join(TEXT, builder(1).to_json()))
    assert DATA_BEHIND_TRACE(offset=len(TEXT)) in tracekit.load(path).rank().warnings


@pytest.mark.parametrize("data", [b"garbage", zipped({"other.json": TEXT})], ids=["bytes", "archive"])
def test_what_follows_an_archive_is_said(data, tmp_path):
    path = tmp_path / "trace.zip"
    path.write_bytes(zipped({"trace.json": TEXT}) + data)
    trace = tracekit.load(path)
    assert trace.rank().activities.height == 1
    assert trace.warnings == (ARCHIVES_JOINED(path=str(path)),)
    path.write_bytes(zipped({"trace.json": TEXT}))
    assert tracekit.load(path).warnings == ()


def test_a_bomb_is_unpacked_only_as_far_as_it_is_read():
    bomb = gzip.compress(bytes(50 << 20))
    with open_stream(io.BytesIO(bomb), "bomb") as stream:
        assert stream.read(100) == bytes(100)


REFUSED = {
    "empty": (b"", DamagedTraceError, "file-empty"),
    "cut zip": (zipped({"trace.json": TEXT})[:-30], DamagedTraceError, "archive-damaged"),
    "zip in a zip": (zipped({"a.json": zipped({"b.json": TEXT})}), DamagedTraceError, "archive-in-file"),
    "zip without traces": (zipped({"a.log": b"x", "b.log": b"x"}), TraceNotFoundError, "traces-not-found"),
    "empty zip": (zipped({}), TraceNotFoundError, "archive-empty"),
    "corrupt zip": (
        zipped({"t.json": TEXT})[:60] + bytes(40) + zipped({"t.json": TEXT})[100:],
        DamagedTraceError,
        "file-damaged",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(case, tmp_path):
    data, error, code = REFUSED[case]
    path = tmp_path / "trace.zip"
    path.write_bytes(data)
    with pytest.raises(error, check=has_code(code)) as caught:
        tracekit.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_table_of_an_archive_is_read_once(tmp_path, monkeypatch):
    path, read = tmp_path / "ranks.zip", []
    path.write_bytes(zipped({f"{number}.json": b"{}" for number in range(2000)} | {"rank.json": TEXT}))
    get_contents = zipfile.ZipFile.infolist
    monkeypatch.setattr(zipfile.ZipFile, "infolist", lambda archive: read.append(1) or get_contents(archive))
    trace = tracekit.load(path)
    assert (trace.rank().activities.height, len(read)) == (1, 1)
    assert find_message(trace.warnings, "files-of-other-kind").values["files"] == 2000


@pytest.mark.parametrize("members", [10_001, pytest.param(100_000, marks=pytest.mark.heavy)])
def test_an_archive_of_too_many_files_is_refused_in_one_line(members, tmp_path):
    path = tmp_path / "ranks.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(members):
            archive.writestr(f"{number}.json", b"{}")
    with pytest.raises(TraceTooLargeError, check=has_code("archive-too-long")):
        tracekit.load(path)


def test_names_in_an_archive_play_no_tricks_on_the_terminal(tmp_path):
    path = tmp_path / "trace.zip"
    path.write_bytes(zipped({"\x1b[2J.json": TEXT}))
    assert expand_inputs(path)[0][0].name == f"{path}:?[2J.json"


def save(folder, *names, **options):
    folder.mkdir(exist_ok=True, parents=True)
    for rank, name in enumerate(names):
        builder(rank, **options).save(folder / name)


def names_of(inputs, root):
    return sorted(os.path.relpath(source.name, root) for source in expand_inputs(inputs)[0])


def test_a_directory_gives_its_traces_and_those_one_level_below(tmp_path):
    save(tmp_path, "a.json", "b.pt.trace.json.gz", "notes.txt", ".hidden.json")
    save(tmp_path / "rank2", "c.json.zst")
    save(tmp_path / "deep" / "deeper", "d.json")
    assert names_of(tmp_path, tmp_path) == ["a.json", "b.pt.trace.json.gz", "rank2/c.json.zst"]


def test_globs_and_lists(tmp_path):
    save(tmp_path, "a.json", "b.json", "c.json")
    assert names_of(str(tmp_path / "[ab]*.json"), tmp_path) == ["a.json", "b.json"]
    assert names_of([tmp_path / "c.json", str(tmp_path / "a*")], tmp_path) == ["a.json", "c.json"]
    assert names_of([tmp_path / "a.json", str(tmp_path)], tmp_path) == ["a.json", "b.json", "c.json"]


def test_two_stars_reach_any_depth(tmp_path):
    save(tmp_path, "a.json")
    save(tmp_path / "one" / "two", "b.json")
    assert names_of(str(tmp_path / "**" / "*.json"), tmp_path) == ["a.json", "one/two/b.json"]
    assert names_of(str(tmp_path / "*" / "*" / "*.json"), tmp_path) == ["one/two/b.json"]


def test_the_order_of_a_directory_is_that_of_its_names(tmp_path, monkeypatch):
    """Whatever the file system lists first."""
    save(tmp_path, "b.json", "a.json", "c.json")
    save(tmp_path / "below", "d.json")
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(sorted(listed(self), reverse=True)))
    monkeypatch.setattr("glob.glob", lambda *_, **__: [str(tmp_path / f"{name}.json") for name in "cab"])
    for inputs in (tmp_path, str(tmp_path / "*.json")):
        found = [os.path.relpath(source.name, tmp_path) for source in expand_inputs(inputs)[0]]
        assert [name for name in found if "/" not in name] == ["a.json", "b.json", "c.json"]


def test_a_trace_and_its_execution_trace_are_one_of_each(tmp_path):
    save(tmp_path, "trace.json")
    (tmp_path / "rank0.et.json").write_bytes(EXECUTION_TRACE)
    found = expand_inputs(tmp_path)
    assert [Path(source.name).name for source in found.traces] == ["trace.json"]
    assert [Path(source.name).name for source in found.execution_traces] == ["rank0.et.json"]
    named = expand_inputs([tmp_path / "rank0.et.json", tmp_path / "trace.json"])
    assert [len(named.traces), len(named.execution_traces)] == [1, 1]


def test_a_file_whose_name_looks_like_a_glob(tmp_path):
    save(tmp_path, "trace[1].json", "trace1.json")
    assert names_of(tmp_path / "trace[1].json", tmp_path) == ["trace[1].json"]


def test_execution_traces_are_left_out_but_can_be_had(tmp_path):
    save(tmp_path, "trace.json", "second.json")
    (tmp_path / "trace.et.json.gz").write_bytes(gzip.compress(EXECUTION_TRACE))
    (tmp_path / "chakra_rank0.json").write_bytes(EXECUTION_TRACE)
    assert names_of(tmp_path, tmp_path) == ["second.json", "trace.json"]
    assert len(expand_inputs(tmp_path)[1]) == 2
    with pytest.raises(NotATraceError):
        tracekit.load(tmp_path / "chakra_rank0.json")


def test_other_json_in_a_directory_is_passed_over_but_not_if_it_was_named(tmp_path):
    save(tmp_path, "trace_rank0.json", "trace_rank1.json")
    (tmp_path / "config.json").write_text('{"lr": 1}')
    assert len(tracekit.load(tmp_path).ranks) == 2
    with pytest.raises(NotATraceError):
        tracekit.load([tmp_path / "trace_rank0.json", tmp_path / "config.json"])


NOTHING = {
    "missing": ("{tmp}/missing.json", "file-not-found"),
    "glob": ("{tmp}/*.json", "glob-without-match"),
    "directory": ("{tmp}", "traces-not-found"),
    "list": ([], "traces-not-given"),
    "protocol": ("frob://x/trace.json", "file-unreadable"),
    "package": ("hdfs://x/trace.json", "protocol-needs-package"),
    "memory": ("memory://missing/trace.json", "file-not-found"),
    "long": ("x" * 5000, "file-unreadable"),
    "null": ("a\0b", "file-unreadable"),
}


@pytest.mark.parametrize("case", NOTHING)
def test_nothing_there_is_one_clear_line(case, tmp_path):
    inputs, code = NOTHING[case]
    (tmp_path / "readme.md").write_text("x")
    with pytest.raises(TraceNotFoundError, check=has_code(code)) as caught:
        tracekit.load(inputs.format(tmp=tmp_path) if isinstance(inputs, str) else inputs)
    assert "\n" not in str(caught.value)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_bytes(TEXT)

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(TraceNotFoundError, match="Permission denied", check=has_code("file-unreadable")):
        tracekit.load(path)


class Stdin:
    def __init__(self, data):
        self.buffer = io.BufferedReader(io.BytesIO(data))

    def isatty(self):
        return False


@pytest.mark.parametrize("form", FORMS)
def test_standard_input(form, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(FORMS[form]))
    trace = tracekit.load("-")
    assert trace.rank().activities.height == 1
    assert trace.source.startswith("<stdin>")


def test_empty_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(b""))
    with pytest.raises(DamagedTraceError, check=has_code("file-empty")):
        tracekit.load("-")


@pytest.mark.parametrize("data", [FORMS["gzip"], FORMS["zip"]], ids=["gzip", "zip"])
def test_a_named_pipe_is_read_once(data, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    assert tracekit.load(path).rank().activities.height == 1
    writer.join()


@pytest.fixture
def bucket():
    """A directory in fsspec's memory."""
    system = fsspec.filesystem("memory")
    for rank in (0, 1):
        system.pipe(f"/bucket/trace_{rank}.json.gz", gzip.compress(builder(rank).to_json()))
    system.pipe("/bucket/all.zip", zipped({f"{rank}.json": builder(rank).to_json() for rank in (0, 1)}))
    system.pipe("/bucket/notes.txt", b"x")
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


@pytest.mark.parametrize("path", ["trace_*.json.gz", "all.zip", ("trace_0.json.gz", "trace_1.json.gz")])
def test_uris(path, bucket):
    paths = [path] if isinstance(path, str) else path
    trace = tracekit.load([f"{bucket}/{path}" for path in paths])
    assert [rank.rank for rank in trace.ranks] == [0, 1]
    assert trace.source.startswith("memory://")


def test_a_remote_directory_is_listed(bucket):
    assert [source.name.rsplit("/", 1)[-1] for source in expand_inputs(bucket)[0]] == [
        "all.zip:0.json", "all.zip:1.json", "trace_0.json.gz", "trace_1.json.gz",
    ]  # fmt: skip


CLOUDS = {"s3": "s3fs", "gs": "gcsfs"}


@pytest.fixture(params=CLOUDS)
def cloud(request, monkeypatch):
    """A bucket of object storage, as fsspec finds the package for it; the objects are in memory."""

    class Cloud(MemoryFileSystem):
        protocol = request.param
        store: ClassVar = {}
        pseudo_dirs: ClassVar = [""]

        @classmethod
        def _strip_protocol(cls, path):
            return super()._strip_protocol(path.removeprefix(f"{cls.protocol}://"))

        def unstrip_protocol(self, name):
            return f"{self.protocol}:/{name}"

    monkeypatch.setitem(_registry, request.param, Cloud)
    for rank in (0, 1):
        fsspec.filesystem(request.param).pipe(f"/bucket/job/rank{rank}.json.gz", gzip.compress(builder(rank).to_json()))
    return f"{request.param}://bucket/job"


@pytest.mark.parametrize("inside", ["", "/", "/rank*.json.gz"])
def test_object_storage(cloud, inside):
    trace = tracekit.load(cloud + inside)
    assert [rank.source for rank in trace.ranks] == [f"{cloud}/rank{rank}.json.gz" for rank in (0, 1)]


def test_what_is_not_in_object_storage(cloud):
    with pytest.raises(TraceNotFoundError, check=has_code("file-not-found")):
        tracekit.load(f"{cloud}/rank7.json")


@pytest.mark.parametrize("protocol", CLOUDS)
def test_object_storage_needs_its_package(protocol, monkeypatch):
    monkeypatch.setitem(sys.modules, CLOUDS[protocol], None)
    with pytest.raises(TraceNotFoundError, check=has_code("protocol-needs-package")) as caught:
        tracekit.load(f"{protocol}://bucket/trace.json")
    assert f"pip install {CLOUDS[protocol]}" in caught.value.hint


def test_a_file_uri_is_a_path(tmp_path):
    path = builder().save(tmp_path / "a trace.json")
    assert expand_inputs(path.as_uri())[0][0].path == path


def test_a_host_that_cannot_be_reached_is_no_missing_file(bucket, monkeypatch):
    def unreachable(self, *args, **options):
        raise FileNotFoundError("http://host") from ConnectionError("Cannot connect to\nhost")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.open", unreachable)
    with pytest.raises(TraceNotFoundError, match="Cannot connect to host", check=has_code("file-unreadable")):
        tracekit.load(f"{bucket}/trace_0.json.gz")


def test_passwords_and_signatures_in_a_uri_are_not_repeated():
    with pytest.raises(TraceError) as caught:
        tracekit.load("frob://user:secret@host/trace.json?signature=hidden")
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "frob://host/trace.json" in str(caught.value)
