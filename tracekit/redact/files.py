"""A trace file to a redacted one."""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Raw

from tracekit.errors import DamagedTraceError, NotATraceError, OutputError, TraceError, TraceNotFoundError
from tracekit.redact.document import Redactor
from tracekit.redact.words import Removed

LARGEST_BYTES = 2 * 10**9
GZIP_MAGIC = b"\x1f\x8b"
SUFFIXES = (".gz", ".json")


def redact(source: Path, output: Path, *, force: bool = False) -> Removed:
    """Write a copy of a trace without names of hosts and users, paths, environment, stacks and secrets.

    Args:
        source: One rank's trace, ``.json`` or ``.json.gz``.
        output: Where to; compressed if its name ends in ``.gz``. It appears whole or not at all.
        force: Overwrite ``output``.

    Raises:
        TraceError: ``source`` can't be read, is damaged, too large or no profiler trace.
        OutputError: ``output`` exists already, or can't be written.
    """
    if output.exists() and not force:
        raise OutputError(f"{output} exists already.", "Overwrite it with --force.")
    if not output.parent.is_dir():
        raise OutputError(f"{output}: there is no directory {output.parent}.")
    data = _read(source)
    try:
        redactor, chunks = _open(data, source)
        _write(output, chunks)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedTraceError(
            f"{source} is no valid JSON: {error}.", "A damaged trace can't be redacted; nothing was written."
        ) from error
    return redactor.removed


def default_output(source: Path) -> Path:
    """Where the redacted copy of a trace goes by default: beside it."""
    stem = source.name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    return source.with_name(f"{stem}.redacted.json.gz")


def _open(data: bytes, source: Path) -> tuple[Redactor, Iterable[bytes]]:
    if data.lstrip()[:1] == b"[":  # PyTorch before 2021 wrote the bare list of events
        redactor = Redactor({})
        return redactor, redactor.event_list(Raw(data))
    try:
        document = msgspec.json.decode(data, type=dict[str, Raw])
    except msgspec.ValidationError as error:
        raise _not_a_trace(source) from error
    if not bytes(document.get("traceEvents", b"")).startswith(b"["):
        raise _not_a_trace(source)
    redactor = Redactor(document)
    return redactor, redactor.chunks()


def _not_a_trace(source: Path) -> NotATraceError:
    return NotATraceError(f"{source} is JSON, but not a PyTorch profiler trace.", "Nothing was written.")


def _read(path: Path) -> bytes:
    """The text, at most as much of it as is allowed, so that a small file can't fill the memory."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            raw.seek(0)
            with gzip.open(raw) if packed else raw as plain:
                data: bytes = plain.read(LARGEST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedTraceError(
            f"{path}: the gzip data is truncated or corrupt ({error}).", "Copy or record the file again."
        ) from error
    except OSError as error:
        raise TraceNotFoundError(f"{path} can't be read: {error.strerror}.") from error
    if len(data) > LARGEST_BYTES:
        raise TraceError(
            f"{path} holds more than {LARGEST_BYTES / 1e9:.0f} GB of text, too much to redact.", "Record fewer steps."
        )
    return data


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    """All or nothing: a reader never sees half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as raw, _compressed(raw, path) as target:
            target.writelines(chunks)
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _compressed(raw: IO[bytes], path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if path.suffix != ".gz":
        yield raw
        return
    # Neither the file's name nor the time of writing is anyone's business.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        yield packed
