"""Object code as a file, beside the byte code of this package or else in the user's cache.

The file's name is a digest of all that went into the code: the sources, the compilers, the processor. It begins with
a digest of that name and of the code, so that nothing stale or torn is ever run; nor is what somebody else wrote.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path

import llvmlite

from tracekit.ingest.native.linking import processor

_DIGEST_BYTES = 32
_SOURCES = sorted(
    (
        *Path(__file__).parent.glob("*.py"),
        *(Path(__file__).parents[1] / f"{name}.py" for name in ("fields", "vocabulary")),
    )
)
_WRITABLE_BY_OTHERS = 0o022


def find() -> bytes | None:
    """The code that fits; ``None`` if there is none."""
    return next((code for directory in _directories() if (code := _read(directory / _name())) is not None), None)


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read()
            state = os.fstat(file.fileno())
    except OSError:
        return None
    code = content[_DIGEST_BYTES:]
    is_whole = content[:_DIGEST_BYTES] == _digest(code)
    return code if is_whole and _is_ours(state) else None


def _is_ours(state: os.stat_result) -> bool:
    """Windows knows neither owners nor modes of this kind; its folders of a user are the user's."""
    if os.name == "nt":
        return True
    return state.st_uid in (os.getuid(), Path(__file__).stat().st_uid) and not state.st_mode & _WRITABLE_BY_OTHERS


def store(code: bytes) -> None:
    """Keep it in the first directory that lets us; where none does, the next process compiles again."""
    for directory in _directories():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _write(directory / _name(), _digest(code) + code)
        except OSError:
            continue
        return


def _write(path: Path, content: bytes) -> None:
    """All or nothing, for everybody to read."""
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


@cache
def _name() -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in (version("numba"), llvmlite.__version__, *processor(), *(file.read_text() for file in _SOURCES)):
        digest.update(f"{len(part)} {part}".encode())
    return f"loops-{digest.hexdigest()}.o"


def _digest(code: bytes) -> bytes:
    return hashlib.blake2b(_name().encode() + code, digest_size=_DIGEST_BYTES).digest()
