"""Cache of decoded traces on this machine, so that each file is decoded once.

An entry is a directory: a Parquet file per table, ``facts.json`` for the other fields, and ``sums``, the digests of all
files. Its name is the digest of the file's content and of the decoder's code. A damaged entry counts as missing.
Without write access to the directory there is no cache.
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

from tracekit import schema, system
from tracekit.bounds import MAX_CACHE_BYTES
from tracekit.errors import OutputError
from tracekit.ingest.source import TraceSource
from tracekit.messages import traces
from tracekit.messages.catalogue import read_message
from tracekit.trace import TABLE_NAMES, RankTrace

# Below this, decoding takes a few hundred milliseconds at most.
SMALLEST_FILE_BYTES = 1 << 20

SUMS_FILE = "sums"
FACTS_FILE = "facts.json"
_PARTIAL_PREFIX = ".partial-"
_STORED_TABLES = (*TABLE_NAMES, "ledger", "thread_names")
_UNCACHED_FIELDS = ("source", "captured")
_ABANDONED_AFTER_S = 86_400
_FAILURES = (OSError, ValueError, TypeError, KeyError, OverflowError, pl.exceptions.PolarsError, msgspec.MsgspecError)


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Content of the cache.

    Attributes:
        directory: Its directory.
        entries: Number of decoded files.
        size_bytes: Their total size.
    """

    directory: Path
    entries: int
    size_bytes: int


def get_directory() -> Path:
    """Return the directory of the entries."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("tracekit", appauthor=False)) / "traces"


def find_public() -> Path | None:
    """Return the directory of the entries, or the one above, if others may write to it: no entry is used then."""
    root = get_directory()
    return system.find_public_directory(root, root.parent)


def compute_key(source: TraceSource, stacks: bool = False) -> str | None:
    """Compute the name of a source's entry; ``None`` for uncached sources: small files, pipes and URIs.

    Args:
        source: The file.
        stacks: Whether Python calls are read; these have separate entries.
    """
    if source.path is None:
        return None
    try:
        state = source.path.stat()
        if state.st_size < SMALLEST_FILE_BYTES:
            return None
        content = _compute_content_digest(source.path.absolute(), state.st_mtime_ns, state.st_size)
    except OSError:
        return None
    name = f"{content} {_version()} {source.member or ''}{' with stacks' if stacks else ''}"
    return hashlib.blake2b(name.encode(), digest_size=20).hexdigest()


def load_entry(name: str, memory_bytes: int) -> RankTrace | None:
    """Load an entry with a blank source; ``None`` if there is no usable one.

    Args:
        name: As returned by :func:`compute_key`.
        memory_bytes: Memory limit of its tables.
    """
    entry = get_directory() / name
    if not entry.is_dir():
        return None
    try:
        found = _read_entry(entry, memory_bytes)
    except _FAILURES:
        shutil.rmtree(entry, ignore_errors=True)
        return None
    _touch_entry(entry)
    return found


def store_entry(name: str, rank: RankTrace) -> None:
    """Store a decoded file, and evict the least recently used entries to make room."""
    try:
        root = get_directory()
        for directory in (root.parent, root):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL_PREFIX, dir=root))
        try:
            _write_entry(partial, rank)
            partial.rename(root / name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        _evict_entries(root)
    except _FAILURES:
        return


def measure_usage() -> CacheUsage:
    """Measure the number and size of the entries."""
    sizes = [_measure_entry(entry) for entry in _list_entries(get_directory())]
    return CacheUsage(get_directory(), len(sizes), sum(sizes))


def clear() -> CacheUsage:
    """Remove every entry.

    Returns:
        What was removed.

    Raises:
        OutputError: It cannot be removed.
    """
    removed = measure_usage()
    try:
        if removed.directory.is_dir():
            shutil.rmtree(removed.directory)
    except OSError as error:
        raise OutputError(traces.CACHE_NOT_CLEARED(path=str(removed.directory), reason=error.strerror)) from error
    return removed


@cache
def _compute_content_digest(path: Path, changed_ns: int, size: int) -> str:
    """Compute the digest of a file's content; members of one archive share it."""
    return _hash_file(path)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


@cache
def _version() -> str:
    """Compute a digest of the table columns and the decoder's source, so that stale entries are never read."""
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
        schema.LEDGER,
        schema.THREAD_NAMES,
    ):
        digest.update(repr((table.name, table.dtypes)).encode())
    for file in sorted((*package.glob("ingest/**/*.py"), *package.glob("messages/*.py"), package / "trace.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def _make_facts_type() -> Any:
    """Make a record type of the other fields of a rank's trace, for typed JSON."""
    hints = get_type_hints(RankTrace) | {"warnings": list[dict[str, Any]]}
    names = [
        field.name for field in dataclasses.fields(RankTrace) if field.name not in (*_STORED_TABLES, *_UNCACHED_FIELDS)
    ]
    return msgspec.defstruct("Facts", [("table_bytes", int), *((name, hints[name]) for name in names)])


def _write_entry(entry: Path, rank: RankTrace) -> None:
    for name in _STORED_TABLES:
        getattr(rank, name).write_parquet(entry / f"{name}.parquet", compression="lz4")
    kind = _make_facts_type()
    values = {name: getattr(rank, name) for name in kind.__struct_fields__ if name != "table_bytes"}
    values["warnings"] = [warning.to_dict() for warning in rank.warnings]
    facts = kind(table_bytes=rank.tables_bytes, **values)
    (entry / FACTS_FILE).write_bytes(msgspec.json.encode(facts))
    sums = {file.name: _hash_file(file) for file in entry.iterdir()}
    (entry / SUMS_FILE).write_bytes(msgspec.json.encode(sums))


def _read_entry(entry: Path, memory_bytes: int) -> RankTrace | None:
    if not system.is_private(entry.stat()):
        raise ValueError("an entry of another user")
    sums = msgspec.json.decode((entry / SUMS_FILE).read_bytes(), type=dict[str, str])
    if set(sums) != {FACTS_FILE, *(f"{name}.parquet" for name in _STORED_TABLES)}:
        raise ValueError("an incomplete entry")
    if any(_hash_file(entry / name) != digest for name, digest in sums.items()):
        raise ValueError("a damaged entry")
    kind = _make_facts_type()
    facts = msgspec.json.decode((entry / FACTS_FILE).read_bytes(), type=kind)
    if facts.table_bytes > memory_bytes:
        return None
    values = {name: getattr(facts, name) for name in kind.__struct_fields__ if name != "table_bytes"}
    values["warnings"] = tuple(map(read_message, facts.warnings))
    values |= {name: pl.read_parquet(entry / f"{name}.parquet") for name in _STORED_TABLES}
    return RankTrace(source="", **values)


def _touch_entry(entry: Path) -> None:
    with suppress(OSError):
        os.utime(entry)


def _list_entries(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(_PARTIAL_PREFIX)]


def _measure_entry(entry: Path) -> int:
    return sum(file.stat().st_size for file in entry.iterdir())


def _evict_entries(root: Path) -> None:
    for partial in _find_abandoned(root):
        shutil.rmtree(partial, ignore_errors=True)
    by_use = sorted(_list_entries(root), key=lambda entry: entry.stat().st_mtime, reverse=True)
    total = 0
    for entry in by_use:
        total += _measure_entry(entry)
        if total > MAX_CACHE_BYTES:
            shutil.rmtree(entry, ignore_errors=True)


def _find_abandoned(root: Path) -> Iterator[Path]:
    """Find partial entries of processes that were killed while writing."""
    for partial in root.glob(f"{_PARTIAL_PREFIX}*"):
        if time.time() - partial.stat().st_mtime > _ABANDONED_AFTER_S:
            yield partial
