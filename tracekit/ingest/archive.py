"""Traces in zip archives."""

import zipfile
import zlib
from collections.abc import Callable
from functools import partial

from tracekit.errors import DamagedTraceError, TraceNotFoundError
from tracekit.ingest.stream import File

# A member's last checksum error takes what was read with it.
PIECE_BYTES = 1 << 16
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError)


def members(opener: Callable[[], File], name: str) -> list[str]:
    """The files in an archive, but for those that archivers add.

    Args:
        opener: Opens the archive.
        name: What to call it in messages.

    Raises:
        DamagedTraceError: Its table of contents can't be read.
        TraceNotFoundError: It holds no file.
    """
    file = opener()
    try:
        with _archive(file, name) as archive:
            found = [info.filename for info in archive.infolist() if not info.is_dir()]
    finally:
        file.close()
    found = [member for member in found if not member.startswith("__MACOSX/") and not _base(member).startswith(".")]
    if not found:
        raise TraceNotFoundError(f"{name} holds no files.")
    return sorted(set(found))


def opener_of(opener: Callable[[], File], name: str, member: str) -> Callable[[], File]:
    """What opens one member of an archive."""
    return partial(_Member, opener, name, member)


def _base(member: str) -> str:
    return member.rsplit("/", 1)[-1]


def _archive(file: File, name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)  # type: ignore[call-overload,no-any-return]  # its own protocol, not ours
    except (*_DAMAGE, OSError, ValueError, NotImplementedError) as error:
        raise DamagedTraceError(
            f"{name}: the zip archive is cut short or corrupt ({error}).", "Copy the file again."
        ) from error


class _Member:
    """One file of an archive, decompressed as it is read."""

    def __init__(self, opener: Callable[[], File], name: str, member: str) -> None:
        self._file = opener()
        try:
            self._archive = _archive(self._file, name)
            self._member = self._open(f"{name}:{member}", member)
        except BaseException:
            self._file.close()
            raise
        self._given = 0

    def _open(self, name: str, member: str) -> File:
        try:
            return self._archive.open(member)
        except RuntimeError as error:
            reason = "is encrypted" if "encrypted" in str(error) else f"can't be unpacked ({error})"
            raise DamagedTraceError(f"{name} {reason}.", "Unpack the archive first.") from error
        except (*_DAMAGE, KeyError) as error:
            raise DamagedTraceError(f"{name} is corrupt ({error}).", "Copy the file again.") from error

    def read(self, size: int, /) -> bytes:
        try:
            data = self._member.read(min(size, PIECE_BYTES))
        except _DAMAGE as error:
            raise DamagedTraceError(
                f"the zip data is cut short or corrupt (after {self._given:,} decompressed bytes)"
            ) from error
        self._given += len(data)
        return data

    def close(self) -> None:
        self._member.close()
        self._archive.close()
        self._file.close()
