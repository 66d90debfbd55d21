"""Compile loops where they run: once per installation, then their stored object code is linked in a millisecond.

Importing numba and reading its own cache takes longer than predicting a step. So object code is stored
as files, beside this package's byte code or else in the user's cache; llvmlite links it, and numba is imported only if
there is none.

The file's name is a digest of everything that determines the code: the sources, the compilers, the architecture. The
file begins with a digest of that name and of the code, so that stale or incomplete code is never run. Code written by
other users is never run either.
"""

import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import cache_from_source
from itertools import count
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tracekit.compiled import note_compilation
from tracekit.compiled.units import Functions, Unit, bind_functions
from tracekit.system import is_private

_DIGEST_BYTES = 32
_library_numbers = count()


def create_machine() -> Any:
    """Create LLVM's target machine for any computer of this architecture: more features gained no time."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(opt=3, reloc="pic", codemodel="default", jit=True)


def load_or_compile(unit: Unit) -> Functions:
    """Link the stored object code of a unit, or else compile and store it."""
    file_name = compute_file_name(unit)
    stored = find_code(file_name)
    try:
        if stored is not None:
            return link_functions(stored, unit)
    except RuntimeError:
        pass
    note_compilation()
    from tracekit.compiled.compile import compile_unit

    code = compile_unit(unit, create_machine())
    store_code(file_name, code)
    return link_functions(code, unit)


@cache
def _create_linker() -> Any:
    return llvm.create_lljit_compiler(create_machine(), use_jit_link=True)


def link_functions(code: bytes, unit: Unit) -> Functions:
    """Link the functions of an object file.

    Raises:
        RuntimeError: It is not one, or a function is missing or needs a missing symbol.
    """
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in unit.symbols.values():
        builder.export_symbol(symbol)
    library = builder.link(_create_linker(), f"tracekit-{next(_library_numbers)}")
    return bind_functions(unit, library, lambda symbol: library[symbol])


def find_code(file_name: str) -> bytes | None:
    """Return the code that is stored under a name; ``None`` if there is none."""
    found = (_read_valid(directory / file_name) for directory in _directories())
    return next((code for code in found if code is not None), None)


def _read_valid(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read()
            state = os.fstat(file.fileno())
    except OSError:
        return None
    code = content[_DIGEST_BYTES:]
    is_whole = content[:_DIGEST_BYTES] == _compute_digest(path.name, code)
    return code if is_whole and is_private(state, Path(__file__).stat().st_uid) else None


def store_code(file_name: str, code: bytes) -> None:
    """Store the code in the first writable directory; without one, the next process compiles again."""
    for directory in _directories():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _write_atomically(directory / file_name, _compute_digest(file_name, code) + code)
        except OSError:
            continue
        return


def _write_atomically(path: Path, content: bytes) -> None:
    """Write all or nothing, readable by everybody."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _directories() -> Iterator[Path]:
    import platformdirs

    yield Path(cache_from_source(__file__)).parent
    yield Path(platformdirs.user_cache_dir("tracekit", appauthor=False)) / "native"


def compute_file_name(unit: Unit) -> str:
    """Name the file of a unit's code by everything that determines it."""
    compilers = (version("numba"), llvmlite.__version__, platform.machine())
    digest = hashlib.blake2b(repr((unit.digest, *compilers)).encode(), digest_size=16)
    return f"{unit.name.strip('_')}-{digest.hexdigest()}.o"


def _compute_digest(file_name: str, code: bytes) -> bytes:
    return hashlib.blake2b(file_name.encode() + code, digest_size=_DIGEST_BYTES).digest()
