"""Read traces in zip archives."""

import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tracekit.bounds import MAX_ARCHIVE_TABLE_BYTES, MAX_FILES, MAX_UNPACK_RATIO, MIN_UNPACKED_BYTES
from tracekit.errors import DamagedTraceError, TraceNotFoundError, TraceTooLargeError
from tracekit.ingest.stream import ReadableFile, make_bomb_error
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
