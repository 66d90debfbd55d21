"""Expand the inputs (files, directories, globs, archives, URIs, standard input) to a list of sources."""

import glob
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tracekit.errors import DamagedTraceError, TraceError, TraceNotFoundError
from tracekit.ingest import archive, execution_trace
from tracekit.ingest.stream import (
    MAGIC_BYTES,
    ZIP_MAGIC,
    PartlyReadFile,
    RawFile,
    ReadableFile,
    TemporaryCopy,
    TextStream,
    make_read_error,
    open_stream,
)
from tracekit.messages import Message, traces
from tracekit.models.llm import is_model_config

STDIN = "-"
NSIGHT_FOLDER_MARK = "StringIds.parquet"
"""A file of each folder that ``nsys export --type parquetdir`` writes."""

_FORMATS = r"\.(json|sqlite|db|pftrace|perfetto-trace|xplane\.pb|et)"
_TRACE_NAME = re.compile(rf"{_FORMATS}(\.(gz|gzip|zst|zip))?$|\.(zip|gz|zst)$", re.IGNORECASE)
_ARCHIVED_NAME = re.compile(rf"{_FORMATS}(\.(gz|gzip|zst))?$", re.IGNORECASE)
_CAPTURE_NAME = re.compile(
    r"(?:^|[/\\:])(?:capture_traces[/\\:][^/\\:]*|[^/\\:]*capture_(?:trace|rank)[^/\\:]*)$", re.IGNORECASE
)
_MODEL_CONFIG_NAME = re.compile(r"config[^/\\]*\.json$", re.IGNORECASE)
_EXECUTION_TRACE_NAME = re.compile(r"\.et\.json(\.|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file to read.

    Attributes:
        name: Its name in messages: path, URI, ``archive.zip:member.json`` or ``<stdin>``.
        opener: Opens it as it is stored.
        peeker: Opens it to read only its beginning, where that is cheaper.
        path: The local file that it is, or is a member of.
        member: The member's name, in an archive.
        is_listed: Whether it was found in a directory, glob or archive, rather than named.
        can_reopen: Whether it can be opened more than once.
        is_other: Whether it was found in a directory or an archive, and its name says that it is no trace.
        doubt: What a reader should know about the archive that it is in.
    """

    name: str
    opener: Callable[[], ReadableFile] = field(repr=False)
    peeker: Callable[[], ReadableFile] | None = field(default=None, repr=False)
    path: Path | None = None
    member: str | None = None
    is_listed: bool = False
    can_reopen: bool = True
    is_other: bool = False
    doubt: Message | None = None

    def open(self) -> TextStream:
        """Open its text, decompressed as it is read.

        Raises:
            TraceNotFoundError: It cannot be read.
            DamagedTraceError: It is empty.
        """
        return open_stream(self._open_file(), self.name)

    def read_head(self) -> bytes:
        """Read the first part of its text; empty if that fails, or if it cannot be reopened."""
        if not self.can_reopen:
            return b""
        try:
            with open_stream(self._open_file(self.peeker), self.name) as stream:
                return stream.read(archive.HEAD_BYTES)
        except TraceError:
            return b""

    def read_magic(self) -> bytes:
        """Read its first bytes as stored."""
        raw = RawFile(self._open_file(self.peeker), self.name)
        raw.close()
        return raw.magic

    def _open_file(self, peeker: Callable[[], ReadableFile] | None = None) -> ReadableFile:
        try:
            return (peeker or self.opener)()
        except TraceError:
            raise
        except Exception as error:
            raise make_read_error(self.name, error) from error


Input = str | Path | TraceSource
Inputs = Input | Sequence[Input]


class ExpandedInputs(NamedTuple):
    """The expanded inputs.

    Attributes:
        traces: Profiler traces, at least one.
        observed: Execution traces (PyTorch's or Chakra's).
        captures: Traces of CUDA graphs being captured.
        model_configs: Configurations of models.
        others: Files beside them whose names say that they are no traces.
        doubts: What a reader should know about the archives that they are in.
    """

    traces: list[TraceSource]
    execution_traces: list[TraceSource]
    captures: list[TraceSource]
    model_configs: list[TraceSource]
    others: Sequence[TraceSource] = ()
    doubts: Sequence[Message] = ()


def expand_inputs(inputs: Inputs) -> ExpandedInputs:
    """Expand the inputs and separate traces from companion files; a single file counts as a trace.

    Args:
        inputs: A file, a directory, a glob, a URI, ``-`` for standard input, or several of them.

    Raises:
        TraceNotFoundError: One of them names nothing.
        DamagedTraceError: An archive is unreadable, or a file is empty.
    """
    given = _expand_all(inputs)
    others = [source for source in given if source.is_other]
    found = [source for source in given if not source.is_other]
    observed = [source for source in found if is_execution_trace(source)] if len(found) > 1 else []
    captures = [source for source in found if is_capture(source)]
    configs = [source for source in found if _may_be_model_config(source)] if len(found) > 1 else []
    told = {source.name for source in (*observed, *captures, *configs)}
    traces = [source for source in found if source.name not in told]
    doubts = list(dict.fromkeys(source.doubt for source in given if source.doubt))
    return (
        ExpandedInputs(traces, observed, captures, configs, others, doubts)
        if traces
        else ExpandedInputs(found, [], [], [], others, doubts)
    )


def list_local_files(inputs: Sequence[str]) -> list[Path]:
    """List the local files that the inputs name; of a directory, glob or archive only files that hold events.

    Raises:
        TraceNotFoundError: One of them names nothing.
        DamagedTraceError: An archive is unreadable.
    """
    here = [one for one in inputs if one != STDIN and (not archive.is_uri(one) or one.startswith("file://"))]
    found = [source for source in _expand_all(here) if source.path and not source.is_other] if here else []
    return [one.path for one in found if one.path and (not one.is_listed or b'"traceEvents"' in one.read_head())]


def is_execution_trace(source: TraceSource) -> bool:
    """Return whether the file is an execution trace, by its name or (local files) by its head."""
    if _EXECUTION_TRACE_NAME.search(source.name):
        return True
    return source.path is not None and execution_trace.is_execution_trace(source.read_head())


def is_capture(source: TraceSource) -> bool:
    """Return whether the file is a trace of CUDA graph captures, by its name or its directory's."""
    return _CAPTURE_NAME.search(source.name) is not None


def _may_be_model_config(source: TraceSource) -> bool:
    """Return whether the file is a model's configuration, by its name and its head."""
    return _MODEL_CONFIG_NAME.search(source.name) is not None and is_model_config(source.read_head())


def looks_like_trace(name: str) -> bool:
    """Return whether a file in a directory may be a trace, by its name."""
    return _TRACE_NAME.search(name) is not None and not name.rsplit("/", 1)[-1].startswith(".")


def _expand_all(inputs: Inputs) -> list[TraceSource]:
    is_one = isinstance(inputs, (str, Path, TraceSource)) or not isinstance(inputs, Iterable)
    given: list[Any] = [inputs] if is_one else list(inputs)  # type: ignore[arg-type]
    wrong = [one for one in given if not isinstance(one, (str, Path, TraceSource))]
    if wrong:
        raise TraceError(traces.INPUT_NOT_A_PATH(given=repr(wrong[0])))
    if not given:
        raise TraceNotFoundError(traces.TRACES_NOT_GIVEN())
    by_name = {source.name: source for each in given for source in _expand_input(each)}
    return list(by_name.values())


def _expand_input(given: Input) -> Iterator[TraceSource]:
    text = str(given)
    if isinstance(given, TraceSource):
        files: Iterable[TraceSource] = [given]
    elif not text:
        raise TraceNotFoundError(traces.TRACE_NAME_EMPTY())
    elif text == STDIN:
        files = [_make_stdin_source()]
    elif archive.is_uri(text) and not text.startswith("file://"):
        files = _list_uri(text)
    else:
        files = _list_local(_parse_file_uri(text) if text.startswith("file://") else Path(given))
    for source in files:
        yield from _expand_archive(source)


def _parse_file_uri(uri: str) -> Path:
    from urllib.request import url2pathname  # brings an HTTP client and SSL along, for 10 ms

    return Path(url2pathname(urlsplit(uri).path))


def _list_uri(uri: str) -> list[TraceSource]:
    found = archive.find_files(uri, looks_like_trace)
    kept = [file for file in found if not file.is_listed or looks_like_trace(file.name)]
    if not kept:
        raise _make_no_traces_error(archive.redact_uri(uri), len(found))
    return [
        TraceSource(_replace_unprintable(file.name), file.open, peeker=file.peek, is_listed=file.is_listed)
        for file in kept
    ]


def _list_local(path: Path) -> list[TraceSource]:
    try:
        return _list_path(path)
    except TraceError:
        raise
    except OSError as error:
        raise make_read_error(str(path), error) from error


def _make_missing_file_error(path: Path) -> TraceNotFoundError:
    """Make the error for a missing file, with the existing files of similar names."""
    name = _replace_unprintable(str(path))
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, beside)
    if not near:
        return TraceNotFoundError(traces.FILE_NOT_FOUND(path=name))
    similar = [_replace_unprintable(str(path.parent / one)) for one in near]
    return TraceNotFoundError(traces.FILE_NAME_MISTYPED(path=name, similar=similar))


def _list_path(path: Path) -> list[TraceSource]:
    if (path / NSIGHT_FOLDER_MARK).is_file():
        return [_make_folder_source(path)]
    if path.is_dir() and (folders := sorted(mark.parent for mark in path.glob(f"*/{NSIGHT_FOLDER_MARK}"))):
        return [replace(_make_folder_source(folder), is_listed=True) for folder in folders]
    if path.is_dir():
        return _split_by_name(str(path), _walk_directory(path))
    if path.exists() or not glob.has_magic(str(path)):
        return [make_file_source(path)]
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    if not matches:
        raise TraceNotFoundError(traces.GLOB_WITHOUT_MATCH(path=str(path)))
    found = [file for match in matches for file in (_walk_directory(match) if match.is_dir() else [match])]
    return _split_by_name(str(path), [file for file in found if file.is_file()])


def _make_folder_source(path: Path) -> TraceSource:
    """Make the source of a folder of tables that Nsight Systems exported."""
    return TraceSource(_replace_unprintable(str(path)), partial(_open_path, path), path=path, can_reopen=False)


def _walk_directory(directory: Path) -> list[Path]:
    """List the files of a directory and of its subdirectories."""
    inside = sorted(directory.iterdir())
    below = [child for entry in inside if entry.is_dir() for child in entry.iterdir()]
    return [entry for entry in (*inside, *below) if entry.is_file()]


def _split_by_name(where: str, files: Sequence[Path]) -> list[TraceSource]:
    kept = sorted(file for file in files if looks_like_trace(file.name))
    if not kept:
        raise _make_no_traces_error(where, len(files))
    others = sorted(file for file in set(files) - set(kept) if file.is_file() and not file.name.startswith("."))
    return [
        *(replace(make_file_source(file), is_listed=True) for file in kept),
        *(replace(make_file_source(file), is_other=True) for file in others),
    ]


def _make_no_traces_error(where: str, files: int) -> TraceNotFoundError:
    return TraceNotFoundError(traces.TRACES_NOT_FOUND(path=where, others=files))


def list_trace_files(directory: Path) -> list[TraceSource]:
    """List the files of a directory that may be traces, by their names."""
    return [
        make_file_source(path) for path in sorted(directory.iterdir()) if path.is_file() and looks_like_trace(path.name)
    ]


def make_file_source(path: Path) -> TraceSource:
    """Make the source of a local file."""
    name = _replace_unprintable(str(path))
    if path.exists() and not path.is_file():
        return _make_pipe_source(path.open("rb"), name)
    return TraceSource(name, partial(_open_path, path), path=path)


def _open_path(path: Path) -> ReadableFile:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise _make_missing_file_error(path) from None


def _make_stdin_source() -> TraceSource:
    if sys.stdin is None or sys.stdin.isatty():
        raise TraceNotFoundError(traces.STDIN_EMPTY())
    return _make_pipe_source(sys.stdin.buffer, "<stdin>")


def _make_pipe_source(file: ReadableFile, name: str) -> TraceSource:
    """Make the source of an input that can be read only once; an archive is copied."""
    magic = file.read(MAGIC_BYTES)
    pipe = PartlyReadFile(magic, file)
    return (
        TraceSource(name, TemporaryCopy(pipe))
        if magic in ZIP_MAGIC
        else TraceSource(name, lambda: pipe, can_reopen=False)
    )


def _expand_archive(source: TraceSource) -> list[TraceSource]:
    """Expand an archive to its traces and other members; return any other source unchanged.

    An unreadable archive among other files is returned unchanged too: reading it gives the error.
    """
    try:
        if source.is_other or not source.can_reopen or not _may_be_archive(source):
            return [source]
        opener = source.opener if source.path is not None else _copy_archive(source)
        inside, has_more = archive.read_content(opener, source.name)
    except DamagedTraceError:
        if not source.is_listed:
            raise
        return [source]
    kept = {each.filename for each in inside if _ARCHIVED_NAME.search(each.filename) or len(inside) == 1}
    if not kept and source.is_listed:
        return [replace(source, is_other=True)]
    if not kept:
        raise _make_no_traces_error(source.name, len(inside))
    doubt = traces.ARCHIVES_JOINED(path=source.name)
    return [
        TraceSource(
            _replace_unprintable(f"{source.name}:{member.filename}"),
            archive.make_opener(opener, source.name, member),
            path=source.path,
            member=member.filename,
            is_listed=True,
            is_other=member.filename not in kept,
            doubt=doubt if has_more else None,
        )
        for member in inside
    ]


def _copy_archive(source: TraceSource) -> TemporaryCopy:
    """Copy a remote archive to this machine, as its table of contents is at its end."""
    if isinstance(source.opener, TemporaryCopy):
        return source.opener
    try:
        return TemporaryCopy(source.opener())
    except Exception as error:
        raise make_read_error(source.name, error) from error


def _may_be_archive(source: TraceSource) -> bool:
    """Return whether the source begins like a zip archive; of many remote files only those named ``.zip`` are read."""
    if source.path is None and source.is_listed and not source.name.lower().endswith(".zip"):
        return False
    return source.read_magic() in ZIP_MAGIC


def _replace_unprintable(name: str) -> str:
    """Replace unprintable characters, which could manipulate a terminal."""
    return "".join(char if char.isprintable() else "?" for char in name)
