import ctypes
import os
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.codes import has_code
from tracekit.arrays import Ints
from tracekit.compiled import CompiledLoop, announce_compilation, compile, compile_lazily, just_in_time, library, units
from tracekit.compiled.units import Unit
from tracekit.errors import TracekitError
from tracekit.messages.requests import COMPILING_LOOPS
from tracekit.testing import TraceBuilder

NAME = "loop.o"
STEP = 3


def sum_steps(count: int, values: Ints, sums: Ints) -> int:
    total = 0
    for place in range(count):
        total += STEP * values[place]
        sums[place] = total
    return total


def run(loop):
    sums = np.zeros(3, np.int64)
    return loop(3, np.array([1, 2, 3]), sums), sums.tolist()


@pytest.fixture(scope="module")
def code():
    """Object code of :func:`sum_steps`."""
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(just_in_time, "store_code", lambda name, code: kept.append(code))
        patch.setattr(just_in_time, "find_code", lambda name: None)
        assert run(CompiledLoop(sum_steps)) == (18, [3, 9, 18])
    return kept[0]


@pytest.fixture
def directories(monkeypatch, tmp_path):
    """Where object code is looked for and kept: two empty directories."""
    places = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(just_in_time, "_directories", lambda: iter(places))
    return places


@pytest.fixture
def compiles(monkeypatch, directories, code):
    """What was announced; compiling takes no time, and nothing is stored yet."""
    monkeypatch.setattr(compile, "compile_unit", lambda unit, machine: code)
    told = []
    with announce_compilation(told.append):
        yield told


def list_files(directory):
    return list(directory.iterdir())


def test_a_loop_is_compiled_once(compiles, directories):
    assert run(CompiledLoop(sum_steps)) == (18, [3, 9, 18])
    assert run(CompiledLoop(sum_steps)) == (18, [3, 9, 18])
    assert compiles == [COMPILING_LOOPS()]
    assert len(list_files(directories[0])) == 1


def test_a_changed_constant_is_compiled_anew(monkeypatch):
    before = CompiledLoop(sum_steps).describe_unit()
    monkeypatch.setitem(sum_steps.__globals__, "STEP", 5)
    after = CompiledLoop(sum_steps).describe_unit()
    assert before.symbols != after.symbols
    assert just_in_time.compute_file_name(before) != just_in_time.compute_file_name(after)


def test_compiling_is_announced_only_within_the_context(directories, code, monkeypatch):
    monkeypatch.setattr(compile, "compile_unit", lambda unit, machine: code)
    told = []
    with announce_compilation(told.append):
        pass
    run(CompiledLoop(sum_steps))
    assert told == []


@pytest.mark.parametrize(
    "values", [np.array([1.0, 2.0, 3.0]), np.arange(6)[::2], np.arange(3, dtype=np.int32), [1, 2, 3]]
)
def test_other_arrays_are_refused(values):
    with pytest.raises(ctypes.ArgumentError):
        compile_lazily(sum_steps)(3, values, np.zeros(3, np.int64))


def test_what_was_compiled_is_kept(directories, code):
    assert just_in_time.find_code(NAME) is None
    just_in_time.store_code(NAME, code)
    assert just_in_time.find_code(NAME) == code
    assert len(list_files(directories[0])) == 1
    assert not directories[1].exists()


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[:40], lambda c: b"", lambda c: c[:-1] + b"?"])
def test_a_damaged_file_is_never_run(directories, code, damage):
    just_in_time.store_code(NAME, code)
    (file,) = directories[0].iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert just_in_time.find_code(NAME) is None
    just_in_time.store_code(NAME, code)
    assert just_in_time.find_code(NAME) == code


def test_code_under_another_name_is_never_run(directories, code):
    just_in_time.store_code(NAME, code)
    shutil.copy(directories[0] / NAME, directories[0] / "other.o")
    assert just_in_time.find_code("other.o") is None


def test_the_name_depends_on_sources_and_architecture(monkeypatch):
    one, other = (Unit("loop", sources, {}, dict) for sources in (("ab", "c"), ("a", "bc")))
    names = [just_in_time.compute_file_name(unit) for unit in (one, other)]
    monkeypatch.setattr(platform, "machine", lambda: "another")
    names.append(just_in_time.compute_file_name(one))
    assert len(set(names)) == 3


def test_a_file_that_others_may_write_is_never_run(directories, code):
    just_in_time.store_code(NAME, code)
    (directories[0] / NAME).chmod(0o666)
    assert just_in_time.find_code(NAME) is None


def test_a_file_of_someone_else_is_never_run(directories, code):
    just_in_time.store_code(NAME, code)
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(directories[0] / NAME, 12345, -1)
    assert just_in_time.find_code(NAME) is None


def test_another_directory_is_taken_where_one_cannot_be_written(directories, code):
    directories[0].write_text("no directory")
    just_in_time.store_code(NAME, code)
    assert len(list_files(directories[1])) == 1
    assert just_in_time.find_code(NAME) == code


def test_nothing_is_kept_where_nothing_can_be_written(compiles, directories):
    for directory in directories:
        directory.write_text("no directory")
    assert run(CompiledLoop(sum_steps)) == (18, [3, 9, 18])


def test_what_is_no_object_file_is_compiled_anew(compiles, directories, code):
    run(CompiledLoop(sum_steps))
    (file,) = directories[0].iterdir()
    just_in_time.store_code(file.name, b"\x7fELF" + bytes(5000))
    assert run(CompiledLoop(sum_steps)) == (18, [3, 9, 18])
    assert compiles == [COMPILING_LOOPS()] * 2
    assert just_in_time.find_code(file.name) == code


@pytest.fixture
def shipped(monkeypatch, tmp_path, code, directories):
    """The loop in a library, as a wheel brings it, and no compiler."""
    monkeypatch.setattr(library, "compile_unit", lambda unit, machine: code)
    built = library.build_library([CompiledLoop(sum_steps).describe_unit()], tmp_path)
    monkeypatch.setattr(units, "_open_library", lambda: ctypes.CDLL(str(built)))
    for module in ("numba", "llvmlite", "tracekit.compiled.just_in_time"):
        monkeypatch.setitem(sys.modules, module, None)


def test_a_shipped_library_needs_no_compiler(shipped):
    assert run(CompiledLoop(sum_steps)) == (18, [3, 9, 18])


def test_a_shipped_library_of_other_sources_is_not_used(shipped, monkeypatch):
    monkeypatch.setitem(sum_steps.__globals__, "STEP", 5)
    with pytest.raises(TracekitError, check=has_code("extra-missing")) as missing:
        run(CompiledLoop(sum_steps))
    assert "[jit]" in str(missing.value.hint)


@pytest.mark.parametrize("linker", ["no-such-linker", "false"])
def test_a_linker_that_fails_is_an_os_error(linker, monkeypatch, tmp_path, code):
    """What a wheel's build takes as a sign to require numba instead."""
    monkeypatch.setattr(library, "compile_unit", lambda unit, machine: code)
    for variable in ("CC", "CXX", "LDSHARED", "LDCXXSHARED"):
        monkeypatch.setenv(variable, linker)
    with pytest.raises(OSError, match="can't be linked"):
        library.build_library([CompiledLoop(sum_steps).describe_unit()], tmp_path)


PROGRAM = """
import sys
import tracekit as tk
predictions = tk.predict(tk.load(sys.argv[1], cache=False), gpu="h100-sxm")
tk.report(predictions)
assert not {"numba", "scipy", "sklearn", "pandas", "torch"} & set(sys.modules)
"""


@pytest.mark.heavy
def test_a_prediction_imports_no_compiler(tmp_path):
    trace = TraceBuilder().op("aten::mm", 0, 30, dims=[[64, 64], [64, 64]], types=["float", "float"])
    trace.kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10)
    trace.metadata["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]
    trace.metadata["padding"] = " " * (9 << 20)
    path = trace.save(tmp_path / "trace.json")
    for _ in range(2):  # the first one may have to compile
        run = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, check=False, text=True)
    assert run.returncode == 0, run.stderr
