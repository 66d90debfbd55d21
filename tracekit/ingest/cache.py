"""Decoded traces kept on this machine, so that a file is decoded once.

An entry is a directory: a Parquet file per table, ``facts.json`` for the rest, and ``sums``, the digests of all of
them. Its name is the digest of the file's content and of the decoder's code. An entry that is damaged counts as
missing; a directory that can't be written to means no cache.
"""

import dataclasses
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import polars as pl

from tracekit import schema
from tracekit.errors import OutputError
from tracekit.ingest.source import Source
from tracekit.trace import TABLES, RankTrace

# Below this, decoding takes a few hundred milliseconds at most.
SMALLEST_FILE_BYTES = 1 << 20
LARGEST_CACHE_BYTES = 10 << 30

SUMS = "sums"
FACTS = "facts.json"
_PARTIAL = ".partial-"
_NOT_KEPT = ("source", "captured")
_ABANDONED_S = 86_400
_FAILURES = (OSError, ValueError, TypeError, OverflowError, pl.exceptions.PolarsError, msgspec.MsgspecError)


@dataclass(frozen=True, slots=True)
class Usage:
    """What the cache holds.

    Attributes:
        directory: Where it is.
        entries: Decoded files.
        size_bytes: Their size.
    """

    directory: Path
    entries: int
    size_bytes: int


def directory() -> Path:
    """Where entries are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("tracekit", appauthor=False)) / "traces"


def key(source: Source, stacks: bool = False) -> str | None:
    """The entry's name for a source; ``None`` for what isn't kept: small files, pipes and URIs.

    Args:
        source: The file.
        stacks: Whether Python's calls are read, which are kept apart.
    """
    if source.path is None:
        return None
    try:
        state = source.path.stat()
        if state.st_size < SMALLEST_FILE_BYTES:
            return None
        content = _digest_of_state(source.path.absolute(), state.st_mtime_ns, state.st_size)
    except OSError:
        return None
    name = f"{content} {_version()} {source.member or ''}{' with stacks' if stacks else ''}"
    return hashlib.blake2b(name.encode(), digest_size=20).hexdigest()


def find(name: str, memory_bytes: int) -> RankTrace | None:
    """An entry's content, its source left blank; ``None`` if there is none that can be used.

    Args:
        name: As :func:`key` gives it.
        memory_bytes: The most that its tables may take.
    """
    entry = directory() / name
    if not entry.is_dir():
        return None
    try:
        found = _read(entry, memory_bytes)
    except _FAILURES:
        shutil.rmtree(entry, ignore_errors=True)
        return None
    _touch(entry)
    return found


def store(name: str, rank: RankTrace) -> None:
    """Keep a decoded file; what was used least recently makes room for it."""
    try:
        root = directory()
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=root))
        try:
            _write(partial, rank)
            partial.rename(root / name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        _make_room(root)
    except _FAILURES:
        return


def usage() -> Usage:
    """What the cache holds."""
    sizes = [_size(entry) for entry in _entries(directory())]
    return Usage(directory(), len(sizes), sum(sizes))


def clear() -> Usage:
    """Remove every entry.

    Returns:
        What was removed.

    Raises:
        OutputError: It can't be removed.
    """
    removed = usage()
    try:
        if removed.directory.is_dir():
            shutil.rmtree(removed.directory)
    except OSError as error:
        raise OutputError(f"{removed.directory} can't be cleared: {error.strerror}.") from error
    return removed


@cache
def _digest_of_state(path: Path, changed_ns: int, size: int) -> str:
    """The digest of a file's content; members of one archive share it."""
    return _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


@cache
def _version() -> str:
    """Changes with the tables' columns, and with any line of the decoder: nothing stale is ever read."""
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=16)
    for table in (
        schema.OPS,
        schema.ANNOTATIONS,
        schema.CALLS,
        schema.ACTIVITIES,
        schema.SYNCS,
        schema.OVERHEADS,
        schema.FRAMES,
    ):
        digest.update(repr((table.name, table.dtypes)).encode())
    for file in sorted((*package.glob("ingest/**/*.py"), package / "trace.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def _facts() -> Any:
    """The rest of a rank's trace as one record, for typed JSON."""
    hints = get_type_hints(RankTrace)
    names = [field.name for field in dataclasses.fields(RankTrace) if field.name not in (*TABLES, *_NOT_KEPT)]
    return msgspec.defstruct("Facts", [("table_bytes", int), *((name, hints[name]) for name in names)])


def _write(entry: Path, rank: RankTrace) -> None:
    for name, table in rank.tables.items():
        table.write_parquet(entry / f"{name}.parquet", compression="lz4")
    kind = _facts()
    values = {name: getattr(rank, name) for name in kind.__struct_fields__ if name != "table_bytes"}
    facts = kind(table_bytes=rank.tables_bytes, **values)
    (entry / FACTS).write_bytes(msgspec.json.encode(facts))
    sums = {file.name: _digest(file) for file in entry.iterdir()}
    (entry / SUMS).write_bytes(msgspec.json.encode(sums))


def _read(entry: Path, memory_bytes: int) -> RankTrace | None:
    sums = msgspec.json.decode((entry / SUMS).read_bytes(), type=dict[str, str])
    if set(sums) != {FACTS, *(f"{name}.parquet" for name in TABLES)}:
        raise ValueError("an incomplete entry")
    if any(_digest(entry / name) != digest for name, digest in sums.items()):
        raise ValueError("a damaged entry")
    kind = _facts()
    facts = msgspec.json.decode((entry / FACTS).read_bytes(), type=kind)
    if facts.table_bytes > memory_bytes:
        return None
    values = {name: getattr(facts, name) for name in kind.__struct_fields__ if name != "table_bytes"}
    values |= {name: pl.read_parquet(entry / f"{name}.parquet") for name in TABLES}
    return RankTrace(source="", **values)


def _touch(entry: Path) -> None:
    with suppress(OSError):
        os.utime(entry)


def _entries(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(_PARTIAL)]


def _size(entry: Path) -> int:
    return sum(file.stat().st_size for file in entry.iterdir())


def _make_room(root: Path) -> None:
    for partial in _abandoned(root):
        shutil.rmtree(partial, ignore_errors=True)
    by_use = sorted(_entries(root), key=lambda entry: entry.stat().st_mtime, reverse=True)
    total = 0
    for entry in by_use:
        total += _size(entry)
        if total > LARGEST_CACHE_BYTES:
            shutil.rmtree(entry, ignore_errors=True)


def _abandoned(root: Path) -> Iterator[Path]:
    """What a process left that was killed while it wrote."""
    for partial in root.glob(f"{_PARTIAL}*"):
        if time.time() - partial.stat().st_mtime > _ABANDONED_S:
            yield partial
