"""What was given to read: files, directories, globs, archives, URIs or standard input, as a list of sources."""

import glob
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tracekit.errors import DamagedTraceError, TraceError, TraceNotFoundError
from tracekit.ingest import archive, execution_trace, remote
from tracekit.ingest.pipe import Copy, Pipe
from tracekit.ingest.stream import LONGEST_MAGIC, ZIP_MAGIC, File, Raw, Stream, open_stream, unreadable
from tracekit.units import many

STDIN = "-"

_TRACE_NAME = re.compile(r"\.json(\.(gz|gzip|zst|zip))?$|\.(zip|gz|zst)$", re.IGNORECASE)
_ARCHIVED_NAME = re.compile(r"\.json(\.(gz|gzip|zst))?$", re.IGNORECASE)
_CAPTURE_NAME = re.compile(
    r"(?:^|[/\\:])(?:capture_traces[/\\:][^/\\:]*|[^/\\:]*capture_(?:trace|rank)[^/\\:]*)$", re.IGNORECASE
)
_EXECUTION_TRACE_NAME = re.compile(r"\.et\.json(\.|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read.

    Attributes:
        name: What to call it in messages: path, URI, ``archive.zip:member.json`` or ``<stdin>``.
        opener: Opens it as it is stored.
        peeker: Opens it to read only its beginning, where that is cheaper.
        path: The local file that it is, or is a member of.
        member: The member's name, in an archive.
        is_listed: Whether it was found in a directory, a glob or an archive, rather than named.
        can_reopen: Whether it can be opened more than once.
        is_other: Whether it was found in a directory or an archive, and its name says that it is no trace.
        doubt: What a reader should know about the archive that it is in.
    """

    name: str
    opener: Callable[[], File] = field(repr=False)
    peeker: Callable[[], File] | None = field(default=None, repr=False)
    path: Path | None = None
    member: str | None = None
    is_listed: bool = False
    can_reopen: bool = True
    is_other: bool = False
    doubt: str | None = None

    def open(self) -> Stream:
        """Its text, decompressed as it is read.

        Raises:
            TraceNotFoundError: It can't be read.
            DamagedTraceError: It is empty.
        """
        return open_stream(self._file(), self.name)

    def head(self) -> bytes:
        """The first part of its text; empty if that can't be read, or can't be read again."""
        if not self.can_reopen:
            return b""
        try:
            with open_stream(self._file(self.peeker), self.name) as stream:
                return stream.read(remote.HEAD_BYTES)
        except TraceError:
            return b""

    def magic(self) -> bytes:
        """Its first bytes as stored."""
        raw = Raw(self._file(self.peeker), self.name)
        raw.close()
        return raw.magic

    def _file(self, peeker: Callable[[], File] | None = None) -> File:
        try:
            return (peeker or self.opener)()
        except TraceError:
            raise
        except Exception as error:
            raise unreadable(self.name, error) from error


Input = str | Path | Source
Inputs = Input | Sequence[Input]


class Given(NamedTuple):
    """What was given to read.

    Attributes:
        traces: Profiler traces, at least one.
        observed: Execution traces (PyTorch's or Chakra's).
        captures: Traces of CUDA graphs being captured.
        others: Files beside them whose names say that they are no traces.
        doubts: What a reader should know about the archives that they are in.
    """

    traces: list[Source]
    observed: list[Source]
    captures: list[Source]
    others: Sequence[Source] = ()
    doubts: Sequence[str] = ()


def expand(inputs: Inputs) -> Given:
    """The traces that the inputs name, told apart; what is given alone is a trace.

    Args:
        inputs: A file, a directory, a glob, a URI, ``-`` for standard input, or several of them.

    Raises:
        TraceNotFoundError: One of them names nothing.
        DamagedTraceError: An archive can't be read, or a file is empty.
    """
    given = _all(inputs)
    others = [source for source in given if source.is_other]
    found = [source for source in given if not source.is_other]
    observed = [source for source in found if is_execution_trace(source)] if len(found) > 1 else []
    captures = [source for source in found if is_capture(source)]
    told = {source.name for source in (*observed, *captures)}
    traces = [source for source in found if source.name not in told]
    doubts = list(dict.fromkeys(source.doubt for source in given if source.doubt))
    return Given(traces, observed, captures, others, doubts) if traces else Given(found, [], [], others, doubts)


def files_of(inputs: Sequence[str]) -> list[Path]:
    """The files of this machine that the inputs name; of those in a directory, a glob or an archive what holds events.

    Raises:
        TraceNotFoundError: One of them names nothing.
        DamagedTraceError: An archive can't be read.
    """
    here = [one for one in inputs if one != STDIN and (not remote.is_uri(one) or one.startswith("file://"))]
    found = [source for source in _all(here) if source.path and not source.is_other] if here else []
    return [one.path for one in found if one.path and (not one.is_listed or b'"traceEvents"' in one.head())]


def is_execution_trace(source: Source) -> bool:
    """Whether it is an execution trace, by its name or (on this machine) by how it begins."""
    if _EXECUTION_TRACE_NAME.search(source.name):
        return True
    return source.path is not None and execution_trace.is_execution_trace(source.head())


def is_capture(source: Source) -> bool:
    """Whether it is a trace of CUDA graphs being captured, by its name or its directory's."""
    return _CAPTURE_NAME.search(source.name) is not None


def looks_like_trace(name: str) -> bool:
    """Whether a file in a directory may be a trace, by its name."""
    return _TRACE_NAME.search(name) is not None and not name.rsplit("/", 1)[-1].startswith(".")


def _all(inputs: Inputs) -> list[Source]:
    given = [inputs] if isinstance(inputs, (str, Path, Source)) else list(inputs)
    if not given:
        raise TraceNotFoundError("No trace was given.")
    by_name = {source.name: source for each in given for source in _of_input(each)}
    return list(by_name.values())


def _of_input(given: Input) -> Iterator[Source]:
    text = str(given)
    if isinstance(given, Source):
        files: Iterable[Source] = [given]
    elif not text:
        raise TraceNotFoundError("An empty name was given for a trace.", "Is a variable of the shell unset?")
    elif text == STDIN:
        files = [_stdin()]
    elif remote.is_uri(text) and not text.startswith("file://"):
        files = _of_uri(text)
    else:
        path = Path(url2pathname(urlsplit(text).path)) if text.startswith("file://") else Path(given)
        files = _of_local(path)
    for source in files:
        yield from _unzipped(source)


def _of_uri(uri: str) -> list[Source]:
    found = remote.find(uri, looks_like_trace)
    kept = [file for file in found if not file.is_listed or looks_like_trace(file.name)]
    if not kept:
        raise _nothing_in(remote.shown(uri), len(found))
    return [Source(_printable(file.name), file.open, peeker=file.peek, is_listed=file.is_listed) for file in kept]


def _of_local(path: Path) -> list[Source]:
    try:
        return _of_path(path)
    except TraceError:
        raise
    except OSError as error:
        raise unreadable(str(path), error) from error


def _alike(path: Path) -> str:
    """What to try in place of a file that isn't there: those beside it whose names are nearly its own."""
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, beside)
    return f"Did you mean {', '.join(str(path.parent / name) for name in near)}?" if near else ""


def _of_path(path: Path) -> list[Source]:
    if path.is_dir():
        return _listed(str(path), _files_in(path))
    if path.exists() or not glob.has_magic(str(path)):
        return [of_file(path)]
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    if not matches:
        raise TraceNotFoundError(f"{path}: nothing matches.")
    return _listed(str(path), [file for match in matches for file in (_files_in(match) if match.is_dir() else [match])])


def _files_in(directory: Path) -> list[Path]:
    """A directory's files, and those of the directories in it."""
    inside = sorted(directory.iterdir())
    below = [child for entry in inside if entry.is_dir() for child in entry.iterdir()]
    return [entry for entry in (*inside, *below) if entry.is_file()]


def _listed(where: str, files: Sequence[Path]) -> list[Source]:
    kept = sorted(file for file in files if looks_like_trace(file.name))
    if not kept:
        raise _nothing_in(where, len(files))
    others = sorted(file for file in set(files) - set(kept) if file.is_file() and not file.name.startswith("."))
    return [
        *(replace(of_file(file), is_listed=True) for file in kept),
        *(replace(of_file(file), is_other=True) for file in others),
    ]


def _nothing_in(where: str, files: int) -> TraceNotFoundError:
    return TraceNotFoundError(
        f"{where} holds no traces ({many(files, 'other file')}).",
        "Their names end in .json, .json.gz, .json.zst or .zip; in a directory they may lie one level down.",
    )


def files_in(directory: Path) -> list[Source]:
    """The files of a directory that may be traces, by their names."""
    return [of_file(path) for path in sorted(directory.iterdir()) if path.is_file() and looks_like_trace(path.name)]


def of_file(path: Path) -> Source:
    """A file of this machine."""
    name = _printable(str(path))
    if path.exists() and not path.is_file():
        return _of_pipe(path.open("rb"), name)
    return Source(name, partial(_open, path), path=path)


def _open(path: Path) -> File:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise TraceNotFoundError(f"{_printable(str(path))}: no such file.", _alike(path)) from None


def _stdin() -> Source:
    if sys.stdin is None or sys.stdin.isatty():
        raise TraceNotFoundError("Nothing comes from standard input.", "Pipe a trace into it, or name a file.")
    return _of_pipe(sys.stdin.buffer, "<stdin>")


def _of_pipe(file: File, name: str) -> Source:
    """What can be read only once; of an archive a copy is kept."""
    magic = file.read(LONGEST_MAGIC)
    pipe = Pipe(magic, file)
    return Source(name, Copy(pipe)) if magic in ZIP_MAGIC else Source(name, lambda: pipe, can_reopen=False)


def _unzipped(source: Source) -> list[Source]:
    """The traces in an archive, and what else is in it; anything else as it is.

    So is one that can't be read, where it stands among others: reading it tells why.
    """
    try:
        if source.is_other or not source.can_reopen or not _may_be_archive(source):
            return [source]
        opener = source.opener if source.path is not None else _copied(source)
        inside, has_more = archive.read_content(opener, source.name)
    except DamagedTraceError:
        if not source.is_listed:
            raise
        return [source]
    kept = {each.filename for each in inside if _ARCHIVED_NAME.search(each.filename) or len(inside) == 1}
    if not kept and source.is_listed:
        return [replace(source, is_other=True)]
    if not kept:
        raise _nothing_in(source.name, len(inside))
    doubt = f"{source.name} holds more than one archive: what isn't in the last table of contents was not read"
    return [
        Source(
            _printable(f"{source.name}:{member.filename}"),
            archive.opener_of(opener, source.name, member),
            path=source.path,
            member=member.filename,
            is_listed=True,
            is_other=member.filename not in kept,
            doubt=doubt if has_more else None,
        )
        for member in inside
    ]


def _copied(source: Source) -> Copy:
    """An archive that isn't on this machine, on it: its table of contents is at its end."""
    if isinstance(source.opener, Copy):
        return source.opener
    try:
        return Copy(source.opener())
    except Exception as error:
        raise unreadable(source.name, error) from error


def _may_be_archive(source: Source) -> bool:
    """Whether it begins like a zip archive; of many files behind a URI only those named so are asked."""
    if source.path is None and source.is_listed and not source.name.lower().endswith(".zip"):
        return False
    return source.magic() in ZIP_MAGIC


def _printable(name: str) -> str:
    """A name that can't play tricks on a terminal."""
    return "".join(char if char.isprintable() else "?" for char in name)
