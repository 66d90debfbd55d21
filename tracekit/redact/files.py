"""Write a redacted copy of a trace file, and check files before they are shared."""

import codecs
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from tracekit import output_files
from tracekit.bounds import MAX_REDACTED_BYTES
from tracekit.errors import DamagedTraceError, NotATraceError, OutputError, TraceError, TraceTooLargeError
from tracekit.ingest.archive import is_uri
from tracekit.ingest.event_decoder import repair_names
from tracekit.ingest.foreign import HEAD_BYTES
from tracekit.ingest.formats import NSIGHT, identify_format
from tracekit.ingest.source import STDIN, TraceSource, expand_inputs
from tracekit.ingest.stream import BLOCK_BYTES
from tracekit.messages import recordings as messages
from tracekit.messages.recordings import SHARED_FILE_PRIVATE
from tracekit.messages.traces import FILE_DAMAGED
from tracekit.redact.redactor import HOME_PATTERN, RedactionSummary, Redactor, make_name_pattern

SUFFIXES = (".gz", ".zst", ".zip", ".json")


def redact(given: str | Path, output: Path, *, force: bool = False) -> RedactionSummary:
    """Write a copy of a trace without names of hosts and users, paths, environment, stacks and secrets.

    Args:
        given: One rank's trace: a file as ``tracekit.load`` takes it, a URI, or ``-`` for standard input.
        output: The file to write, compressed if its name ends in ``.gz``. It is written completely or not at all.
        force: Whether to overwrite ``output``.

    Raises:
        TraceError: The trace can't be read, is damaged, too large, not a profiler trace, or more than one.
        OutputError: ``output`` already exists, isn't a file, is the trace itself, or can't be written.
    """
    output_files.check_writable(output, force=force)
    source = _expand_single(given)
    output_files.refuse_input_overwrite(output, [source.path] if source.path else [])
    return redact_source(source, output)


def redact_source(source: TraceSource, output: Path) -> RedactionSummary:
    """Write a copy of a trace as :func:`redact` does, wherever the trace was found."""
    if source.path is not None and source.path.is_dir():
        raise NotATraceError(messages.REDACTION_OF_OTHER_TOOL(path=source.name, tool=NSIGHT.tool))
    data = _read_text(source)
    if form := identify_format(data[:HEAD_BYTES], source.name):
        raise NotATraceError(messages.REDACTION_OF_OTHER_TOOL(path=source.name, tool=form.tool))
    try:
        try:
            redactor, chunks = _create_redactor(data, source.name)
        except msgspec.DecodeError:
            redactor, chunks = _create_redactor(repair_names(data), source.name)
        _write_output(output, chunks)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedTraceError(messages.REDACTION_OF_DAMAGED(path=source.name, reason=str(error))) from error
    return redactor.removed


def choose_default_output(given: str | Path) -> Path:
    """Return the default output file: beside the trace, or in the current directory for a URI.

    Raises:
        OutputError: The trace comes from standard input.
    """
    text = str(given)
    if text == STDIN:
        raise OutputError(messages.REDACTION_NEEDS_NAME())
    source = Path(urlsplit(text).path).name if is_uri(text) else given
    stem = Path(source).name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    return Path(source).with_name(output_files.fit_name(stem, ".redacted.json.gz"))


def _expand_single(given: str | Path) -> TraceSource:
    traces = expand_inputs(given).traces
    if len(traces) > 1:
        raise TraceError(messages.REDACTION_OF_SEVERAL(path=traces[0].name, others=len(traces) - 1))
    return traces[0]


def _create_redactor(data: bytes, source: str) -> tuple[Redactor, Iterable[bytes]]:
    if data.lstrip()[:1] == b"[":  # PyTorch before 2021 wrote the bare list of events
        redactor = Redactor({})
        return redactor, redactor.iter_events(Raw(data))
    try:
        document = msgspec.json.decode(data, type=dict[str, Raw])
    except msgspec.ValidationError as error:
        raise _make_not_a_trace_error(source) from error
    if not bytes(document.get("traceEvents", b"")).startswith(b"["):
        raise _make_not_a_trace_error(source)
    redactor = Redactor(document)
    return redactor, redactor.iter_chunks()


def _make_not_a_trace_error(source: str) -> NotATraceError:
    return NotATraceError(messages.REDACTION_OF_OTHER_JSON(path=source))


def _read_text(source: TraceSource) -> bytes:
    """Read the text up to the allowed size, so that a small compressed file can't fill the memory."""
    pieces, size = [], 0
    with source.open() as stream:
        while piece := stream.read(BLOCK_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_REDACTED_BYTES:
                raise TraceTooLargeError(messages.REDACTION_TOO_LARGE(path=source.name, limit_bytes=MAX_REDACTED_BYTES))
        if stream.damage is not None:
            raise DamagedTraceError(FILE_DAMAGED(path=source.name, damage=stream.damage))
    return b"".join(pieces).removeprefix(codecs.BOM_UTF8)


def _write_output(path: Path, chunks: Iterable[bytes]) -> None:
    with (
        output_files.write_atomically(path) as partial,
        partial.open("wb") as raw,
        _open_compressed(raw, path) as target,
    ):
        target.writelines(chunks)


@contextmanager
def _open_compressed(raw: IO[bytes], path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if path.suffix != ".gz":
        yield raw
        return
    # The compressed file must hold neither the file's name nor the time of writing.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        yield packed


def check_shared_files(files: Mapping[str, Path], names: Iterable[str], directories: Iterable[Path]) -> None:
    """Refuse files in which something private is left.

    Args:
        files: The files by the names under which they are shared.
        names: Names of hosts and users.
        directories: Directories of the inputs on this machine.

    Raises:
        OutputError: A file holds a name, one of the directories or somebody's home directory.
    """
    paths = "|".join(re.escape(str(one)) for one in directories if one.parent != one)
    patterns = {
        "the name of a host or user": make_name_pattern(names),
        "the path of an input": rf"(?:{paths})(?![\w.-])" if paths else "",
        "somebody's home directory": HOME_PATTERN.pattern,
    }
    compiled = {kind: re.compile(pattern) for kind, pattern in patterns.items() if pattern}
    for name, path in files.items():
        found = {kind for line in _read_lines(path) for kind, pattern in compiled.items() if pattern.search(line)}
        if found:
            raise OutputError(SHARED_FILE_PRIVATE(name=name, kinds=sorted(found)))


def _read_lines(path: Path) -> Iterator[str]:
    with path.open("rb") as packed, gzip.open(packed) if path.suffix == ".gz" else packed as lines:
        for line in lines:
            yield line.decode(errors="replace")
