"""A trace file to a redacted one."""

import codecs
import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from tracekit import outputs
from tracekit.errors import DamagedTraceError, NotATraceError, OutputError, TraceError, TraceTooLargeError
from tracekit.ingest.remote import is_uri
from tracekit.ingest.source import STDIN, Source, expand
from tracekit.ingest.stream import BLOCK_BYTES
from tracekit.redact.document import Redactor
from tracekit.redact.words import Removed

LARGEST_BYTES = 2 * 10**9
SUFFIXES = (".gz", ".zst", ".zip", ".json")


def redact(given: str | Path, output: Path, *, force: bool = False) -> Removed:
    """Write a copy of a trace without names of hosts and users, paths, environment, stacks and secrets.

    Args:
        given: One rank's trace: a file as ``tracekit.load`` takes it, a URI, or ``-`` for standard input.
        output: Where to; compressed if its name ends in ``.gz``. It appears whole or not at all.
        force: Overwrite ``output``.

    Raises:
        TraceError: It can't be read, is damaged, too large, no profiler trace, or more than one.
        OutputError: ``output`` exists already, is no file or the trace itself, or can't be written.
    """
    outputs.check(output, force=force)
    source = _one(given)
    outputs.apart(output, [source.path] if source.path else [])
    data = _read(source)
    try:
        redactor, chunks = _open(data, source.name)
        _write(output, chunks)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedTraceError(
            f"{source.name} is no valid JSON: {error}.", "A damaged trace can't be redacted; nothing was written."
        ) from error
    return redactor.removed


def default_output(given: str | Path) -> Path:
    """Where the redacted copy goes by default: beside the trace; of what lies behind a URI, here.

    Raises:
        OutputError: It comes from standard input.
    """
    text = str(given)
    if text == STDIN:
        raise OutputError("What comes from standard input has no name.", "Say where to with -o FILE.")
    source = Path(urlsplit(text).path).name if is_uri(text) else given
    stem = Path(source).name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    return Path(source).with_name(f"{stem}.redacted.json.gz")


def _one(given: str | Path) -> Source:
    traces = expand(given).traces
    if len(traces) > 1:
        raise TraceError(f"{traces[0].name} and {len(traces) - 1} more were given.", "Redact them one by one.")
    return traces[0]


def _open(data: bytes, source: str) -> tuple[Redactor, Iterable[bytes]]:
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


def _not_a_trace(source: str) -> NotATraceError:
    return NotATraceError(f"{source} is JSON, but not a PyTorch profiler trace.", "Nothing was written.")


def _read(source: Source) -> bytes:
    """The text, at most as much of it as is allowed, so that a small file can't fill the memory."""
    pieces, size = [], 0
    with source.open() as stream:
        while piece := stream.read(BLOCK_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST_BYTES:
                raise TraceTooLargeError(
                    f"{source.name} holds more than {LARGEST_BYTES / 1e9:.0f} GB of text, too much to redact.",
                    "Record fewer steps.",
                )
        if stream.damage is not None:
            raise DamagedTraceError(f"{source.name} is damaged: {stream.damage}.", "Copy or record the file again.")
    return b"".join(pieces).removeprefix(codecs.BOM_UTF8)


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    with outputs.whole(path) as partial, partial.open("wb") as raw, _compressed(raw, path) as target:
        target.writelines(chunks)


@contextmanager
def _compressed(raw: IO[bytes], path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if path.suffix != ".gz":
        yield raw
        return
    # Neither the file's name nor the time of writing is anyone's business.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        yield packed
