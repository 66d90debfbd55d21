"""Store object code as files, beside this package's byte code or else in the user's cache.

The file's name is a digest of everything that determines the code: the sources, the compilers, the architecture. The
file begins with a digest of that name and of the code, so that stale or incomplete code is never run. Code written by
other users is never run either.
"""

import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path

import llvmlite

from tracekit.compiled.units import Unit
from tracekit.system import is_private

_DIGEST_BYTES = 32


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
