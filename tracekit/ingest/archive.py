"""Traces in zip archives, and at URIs, which fsspec reads; only the given URIs are accessed."""

import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tracekit.bounds import MAX_ARCHIVE_TABLE_BYTES, MAX_FILES, MAX_UNPACK_RATIO, MIN_UNPACKED_BYTES
from tracekit.errors import DamagedTraceError, TraceNotFoundError, TraceTooLargeError
from tracekit.ingest.stream import ReadableFile, make_bomb_error, make_read_error
from tracekit.messages import traces

# A member's last checksum error takes what was read with it.
PIECE_BYTES = 1 << 16
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError)
_END = b"PK\5\6"
_EMPTY = _END + bytes(18)

# An archive that was to be split begins with a mark of this length.
_SPLIT_MARK_BYTES = 4


class ArchiveContent(NamedTuple):
    """What an archive holds.

    Attributes:
        members: Its files by name, but for those that archivers add.
        has_more: Whether data lies in front of or behind them, such as another archive.
    """

    members: list[zipfile.ZipInfo]
    has_more: bool


def read_content(opener: Callable[[], ReadableFile], name: str) -> ArchiveContent:
    """Read an archive's table of contents.

    Args:
        opener: Opens the archive.
        name: Name of the archive in messages.

    Raises:
        DamagedTraceError: Its table of contents is unreadable.
        TraceNotFoundError: It holds no file.
        TraceTooLargeError: It holds more files than are read.
    """
    file = opener()
    try:
        bounded = _BoundedFile(file, name)
        with _open_archive(bounded, name) as archive:
            entries = archive.infolist()
            has_more = _has_more(bounded, entries, len(archive.comment))
    finally:
        file.close()
    found = {info.filename: info for info in entries if not info.is_dir()}
    if len(found) > MAX_FILES:
        raise _make_too_many_error(name)
    kept = [info for member, info in sorted(found.items()) if _is_content(member)]
    if not kept:
        raise TraceNotFoundError(traces.ARCHIVE_EMPTY(path=name))
    return ArchiveContent(kept, has_more)


def _has_more(file: "_BoundedFile", entries: Sequence[zipfile.ZipInfo], comment_bytes: int) -> bool:
    file.seek(-len(_EMPTY) - comment_bytes, io.SEEK_END)
    is_behind = file.read(len(_END)) != _END
    return is_behind or min((info.header_offset for info in entries), default=0) > _SPLIT_MARK_BYTES


def make_opener(opener: Callable[[], ReadableFile], name: str, member: zipfile.ZipInfo) -> Callable[[], ReadableFile]:
    """What opens one member of an archive, without reading the table of contents again."""
    return partial(_ZipMember, opener, name, member)


def _is_content(member: str) -> bool:
    return not member.startswith("__MACOSX/") and not _get_base_name(member).startswith(".")


def _make_too_many_error(name: str) -> TraceTooLargeError:
    return TraceTooLargeError(traces.ARCHIVE_TOO_LONG(path=name, files=MAX_FILES))


def _get_base_name(member: str) -> str:
    return member.rsplit("/", 1)[-1]


def _open_archive(file: ReadableFile, name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)  # type: ignore[call-overload,no-any-return]  # its own protocol, not ours
    except (*_DAMAGE_ERRORS, OSError, ValueError, NotImplementedError) as error:
        raise DamagedTraceError(traces.ARCHIVE_DAMAGED(path=name, reason=str(error))) from error


class _BoundedFile(io.RawIOBase):
    """An archive whose table of contents is refused before it is read if it is too long."""

    def __init__(self, file: ReadableFile, name: str) -> None:
        self._file: Any = file
        self._name = name

    def read(self, size: int = -1, /) -> bytes:
        if size > MAX_ARCHIVE_TABLE_BYTES:
            raise _make_too_many_error(self._name)
        data: bytes = self._file.read(size)
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        place: int = self._file.seek(offset, whence)
        return place

    def tell(self) -> int:
        place: int = self._file.tell()
        return place

    def seekable(self) -> bool:
        return True


class _ZipMember:
    """A file of an archive, decompressed as it is read."""

    def __init__(self, opener: Callable[[], ReadableFile], name: str, member: zipfile.ZipInfo) -> None:
        self._file = opener()
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(_EMPTY))
            self._archive.fp = self._file  # type: ignore[assignment]  # its own protocol, not ours
            self._member = self._open_member(f"{name}:{member.filename}", member)
        except BaseException:
            self._file.close()
            raise
        self._given = 0

    def _open_member(self, name: str, member: zipfile.ZipInfo) -> ReadableFile:
        if member.file_size > max(MIN_UNPACKED_BYTES, MAX_UNPACK_RATIO * member.compress_size):
            raise make_bomb_error(name)
        try:
            return self._archive.open(member)
        except RuntimeError as error:
            if "encrypted" in str(error):
                raise DamagedTraceError(traces.ARCHIVE_ENCRYPTED(path=name)) from error
            raise DamagedTraceError(traces.ARCHIVE_METHOD_UNKNOWN(path=name, reason=str(error))) from error
        except (*_DAMAGE_ERRORS, KeyError) as error:
            raise DamagedTraceError(traces.ARCHIVED_FILE_DAMAGED(path=name, reason=str(error))) from error

    def read(self, size: int, /) -> bytes:
        try:
            data = self._member.read(min(size, PIECE_BYTES))
        except _DAMAGE_ERRORS as error:
            raise DamagedTraceError(traces.ZIP_DATA_DAMAGED(decompressed=self._given)) from error
        self._given += len(data)
        return data

    def close(self) -> None:
        self._member.close()
        self._archive.close()
        self._file.close()


_PROTOCOL_PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp",
    "https": "aiohttp", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "hf": "huggingface_hub",
    "sftp": "paramiko", "ssh": "paramiko", "hdfs": "pyarrow",
}  # fmt: skip
HEAD_BYTES = 1 << 16
_WEB_PREFIXES = ("http://", "https://")


def is_uri(text: str) -> bool:
    """Return whether the text names a file by protocol rather than by path."""
    return "://" in text


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file behind a URI.

    Attributes:
        name: Its name in messages.
        system: The fsspec file system that holds it.
        path: Its path there.
        is_listed: Whether it was found in a directory or by a glob.
    """

    name: str
    system: Any = field(repr=False)
    path: str
    is_listed: bool

    def open(self) -> ReadableFile:
        """Open the file to read all of it."""
        return self._open_in_blocks(None)

    def peek(self) -> ReadableFile:
        """Open the file to read only its beginning."""
        return self._open_in_blocks(HEAD_BYTES)

    def _open_in_blocks(self, block_bytes: int | None) -> ReadableFile:
        # 0 streams a web page: many servers do not support range requests.
        block_bytes = 0 if self.path.startswith(_WEB_PREFIXES) else block_bytes
        file: ReadableFile = self.system.open(self.path, "rb", block_size=block_bytes)
        return file


def find_files(uri: str, looks_like_trace: Callable[[str], bool]) -> list[RemoteFile]:
    """Find the files that a URI names.

    Args:
        uri: A file, a directory (listed two levels deep) or a glob.
        looks_like_trace: Returns whether a name is that of a trace.

    Raises:
        TraceNotFoundError: A package is missing, the protocol is unknown, or there is nothing.
    """
    protocol = uri.split("://", 1)[0]
    try:
        system, path = _open_filesystem(uri)
        paths = _list_files(system, path, looks_like_trace)
    except ImportError as error:
        package = _PROTOCOL_PACKAGES.get(protocol)
        shown = {"uri": redact_uri(uri), "protocol": protocol}
        if package:
            raise TraceNotFoundError(traces.PROTOCOL_NEEDS_PACKAGE(**shown, package=package)) from error
        raise TraceNotFoundError(traces.PROTOCOL_UNREADABLE(**shown, reason=str(error))) from error
    except Exception as error:
        raise make_read_error(redact_uri(uri), error) from error
    found = [path] if paths is None else paths
    return [RemoteFile(redact_uri(system.unstrip_protocol(p)), system, p, paths is not None) for p in found]


def redact_uri(uri: str) -> str:
    """Remove possible secrets from a URI: user, password, signature."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rsplit('@', 1)[-1]}{parts.path}"


def _open_filesystem(uri: str) -> tuple[Any, str]:
    import fsspec

    system, path = fsspec.core.url_to_fs(uri)
    return system, str(path)


def _list_files(system: Any, path: str, looks_like_trace: Callable[[str], bool]) -> list[str] | None:
    """List the files of a directory or glob; ``None`` for a file."""
    if "*" in path:
        return sorted(str(p) for p in system.glob(path))
    on_web = path.startswith(_WEB_PREFIXES)
    if looks_like_trace(urlsplit(path).path if on_web else path):
        return None
    # Asking a web server whether something is a directory would download it.
    is_listing = path.endswith("/") if on_web else system.isdir(path)
    return sorted(str(p) for p in system.find(path, maxdepth=2)) if is_listing else None
