import io
import os
import shutil
import subprocess
import sys

import pytest

from tracekit.ingest import native
from tracekit.ingest.compiling import COMPILING_MESSAGE
from tracekit.ingest.decode import decode
from tracekit.ingest.native import compile, object_cache
from tracekit.testing import TraceBuilder


@pytest.fixture(scope="module")
def code():
    native.get_loops()
    return object_cache.find_code()


@pytest.fixture
def directories(monkeypatch, tmp_path):
    """Where object code is looked for and kept: two empty directories."""
    places = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(object_cache, "_directories", lambda: iter(places))
    return places


@pytest.fixture
def fresh(monkeypatch, directories, code):
    """As in a new process; compiling takes no time."""
    monkeypatch.setattr(native, "_linked", [])
    monkeypatch.setattr(compile, "object_code", lambda: code)


def kernels(text):
    return decode(io.BytesIO(text), "trace", small_bytes=0).activities.height


def test_what_was_compiled_is_kept(directories, code):
    assert object_cache.find_code() is None
    object_cache.store_code(code)
    assert object_cache.find_code() == code
    assert len(list(directories[0].iterdir())) == 1
    assert not directories[1].exists()


def test_compiling_is_said_once(fresh):
    text = TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 100, launch=10).to_json()
    told = []
    native.get_loops(told.append)
    assert told == [COMPILING_MESSAGE]
    native._linked.clear()
    native.get_loops(told.append)
    assert told == [COMPILING_MESSAGE]
    assert kernels(text) == 1


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[:40], lambda c: b"", lambda c: c[:-1] + b"?"])
def test_a_damaged_file_is_never_run(directories, code, damage):
    object_cache.store_code(code)
    (file,) = directories[0].iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert object_cache.find_code() is None
    object_cache.store_code(code)
    assert object_cache.find_code() == code


def test_code_of_other_sources_or_another_processor_is_never_run(monkeypatch, directories, code):
    object_cache.store_code(code)
    (file,) = directories[0].iterdir()
    monkeypatch.setattr(object_cache, "processor", lambda: ("another", "+avx1024"))
    object_cache._compute_file_name.cache_clear()
    try:
        assert object_cache.find_code() is None
        shutil.copy(file, directories[0] / object_cache._compute_file_name())
        assert object_cache.find_code() is None
    finally:
        monkeypatch.undo()
        object_cache._compute_file_name.cache_clear()


def test_a_file_that_others_may_write_is_never_run(directories, code):
    object_cache.store_code(code)
    (file,) = directories[0].iterdir()
    file.chmod(0o666)
    assert object_cache.find_code() is None


def test_a_file_of_someone_else_is_never_run(monkeypatch, directories, code):
    object_cache.store_code(code)
    (file,) = directories[0].iterdir()
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(file, 12345, -1)
    assert object_cache.find_code() is None


def test_another_directory_is_taken_where_one_cannot_be_written(fresh, directories, code):
    directories[0].write_text("no directory")
    native.get_loops()
    assert len(list(directories[1].iterdir())) == 1
    assert object_cache.find_code() == code


def test_nothing_is_kept_where_nothing_can_be_written(fresh, directories):
    for directory in directories:
        directory.write_text("no directory")
    assert native.get_loops().skip_value is not None


def test_what_is_no_object_file_is_compiled_anew(fresh, code):
    object_cache.store_code(b"\x7fELF" + bytes(5000))
    told = []
    native.get_loops(told.append)
    assert told == [COMPILING_MESSAGE]
    assert object_cache.find_code() == code


PROGRAM = """
import sys
from tracekit.ingest import load
assert load(sys.argv[1], cache=False).ranks[0].activities.height == 1
assert not {"numba", "scipy", "pandas", "torch"} & set(sys.modules)
"""


def test_reading_a_large_trace_imports_no_compiler(code, tmp_path):
    trace = TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 100, launch=10)
    trace.metadata["padding"] = " " * (9 << 20)
    path = trace.save(tmp_path / "trace.json")
    subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True)
