"""Decompress files block by block, and keep copies of inputs that can be read only once.

Compression is detected by the first bytes, not by the name.
"""

import io
import sys
import tempfile
import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import IO, Any, Protocol, Self

from tracekit.bounds import MAX_REASON_CHARS, MAX_TEXT_BYTES, MAX_UNPACK_RATIO, MIN_UNPACKED_BYTES
from tracekit.errors import DamagedTraceError, TraceError, TraceNotFoundError, TraceTooLargeError
from tracekit.messages import Message, Template, traces

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
MAGIC_BYTES = 4

# Reads grow, so that reading the first lines is cheap.
FIRST_BLOCK_BYTES = 1 << 16
BLOCK_BYTES = 1 << 20

# Damage discards the rest of a piece of compressed data, so pieces are small. The checksum at the end is a separate
# piece.
PIECE_BYTES = 4096
TRAILER_BYTES = 8


class ReadableFile(Protocol):
    """The file that a stream reads."""

    def read(self, size: int, /) -> bytes:
        """Read up to ``size`` bytes; empty at the end."""

    def close(self) -> None:
        """Close the file."""


class RawFile:
    """A file's bytes as stored.

    Args:
        file: The open file.
        name: Its name in messages.

    Raises:
        DamagedTraceError: It is empty.
        TraceNotFoundError: It cannot be read.
    """

    def __init__(self, file: ReadableFile, name: str) -> None:
        self.name = name
        self.damage: Message | None = None
        self.pulled_bytes = 0
        self._file = file
        self._front = b""
        try:
            self._front = self.pull(MAGIC_BYTES)
            if not self._front:
                raise self._make_empty_error()
        except BaseException:
            self.close()
            raise

    @property
    def magic(self) -> bytes:
        """The first bytes, until more is read."""
        return self._front

    def pull(self, size: int) -> bytes:
        """Read exactly ``size`` bytes; fewer only at the end."""
        parts = [self._front[:size]] if self._front else []
        missing = size - sum(map(len, parts))
        self._front = self._front[size:]
        while missing and (part := self._read(missing)):
            parts.append(part)
            missing -= len(part)
            self.pulled_bytes += len(part)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except DamagedTraceError as error:
            self.damage = error.catalogue_message
            return b""
        except TraceError:
            raise
        # Each protocol of fsspec has its own errors.
        except Exception as error:
            raise make_read_error(self.name, error) from error

    def _make_empty_error(self) -> DamagedTraceError:
        if self.damage is not None:
            return DamagedTraceError(traces.FILE_DAMAGED(path=self.name, damage=self.damage))
        return DamagedTraceError(traces.FILE_EMPTY(path=self.name))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TextStream:
    """A file's text, from start to end; this class reads uncompressed files.

    Attributes:
        damage: Set at the end if the compressed data was truncated or corrupt: a message with the position. The text
            before that position was delivered.
    """

    def __init__(self, raw: RawFile) -> None:
        self._raw = raw
        self._given = 0
        self.damage: Message | None = None

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        """Fill the buffer; fewer bytes than its size are returned only at the end."""
        data = self._raw.pull(len(buffer))
        buffer[: len(data)] = data
        self._count(len(data))
        self.damage = self._raw.damage
        return len(data)

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end."""
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])

    def _count(self, size: int) -> None:
        """Count text that is given.

        Raises:
            TraceTooLargeError: It is more than any trace has.
        """
        self._given += size
        if self._given > MAX_TEXT_BYTES:
            raise TraceTooLargeError(traces.FILE_ENDLESS(path=self._raw.name, limit_bytes=MAX_TEXT_BYTES))

    def finish(self) -> None:
        """Read a little beyond the text, so that the checksum behind it is checked."""
        self.read(BLOCK_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()


class _CompressedStream(TextStream):
    """Compressed text of one or several consecutive members.

    Args:
        raw: The compressed data.
        word: Name of the compression.
        magic: First bytes of a member.
        decoder: Makes a decoder for one member.
    """

    def __init__(self, raw: RawFile, word: str, magic: bytes, decoder: Callable[[], Any]) -> None:
        super().__init__(raw)
        self._word, self._magic, self._new_decoder = word, magic, decoder
        self._decoder = decoder()
        self._block, self._at = b"", 0
        self._block_bytes = FIRST_BLOCK_BYTES
        self._following = raw.pull(self._block_bytes)
        self._is_over = False

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        """Fill the buffer; fewer bytes than its size are returned only at the end."""
        filled = 0
        while filled < len(buffer) and not self._is_over:
            text = self._decompress_piece(len(buffer) - filled)
            buffer[filled : filled + len(text)] = text
            filled += len(text)
        return filled

    def _decompress_piece(self, room: int) -> bytes:
        piece = self._take_piece() if self._decoder.needs_input else b""
        if self._decoder.needs_input and not piece:
            self._stop(traces.COMPRESSED_DATA_CUT)
            return b""
        try:
            text: bytes = self._decoder.decompress(piece, room)
        # isal's error is not a subclass of ValueError or OSError, and each package has its own.
        except Exception:
            self._stop(traces.COMPRESSED_DATA_CORRUPT)
            return b""
        self._count(len(text))
        if self._given > max(MIN_UNPACKED_BYTES, MAX_UNPACK_RATIO * self._raw.pulled_bytes):
            raise make_bomb_error(self._raw.name)
        if self._decoder.eof:
            self._start_next_member(self._decoder.unused_data)
        return text

    def _take_piece(self) -> bytes:
        left = len(self._block) - self._at
        if not left:
            self._advance(b"")
            left = len(self._block)
        size = min(PIECE_BYTES, left)
        if not self._following and left > TRAILER_BYTES:
            size = min(size, left - TRAILER_BYTES)
        self._at += size
        return self._block[self._at - size : self._at]

    def _advance(self, kept: bytes) -> None:
        self._block, self._at = kept + self._following, 0
        self._block_bytes = min(2 * self._block_bytes, BLOCK_BYTES)
        self._following = self._raw.pull(self._block_bytes) if self._following else b""

    def _start_next_member(self, unused: bytes) -> None:
        if len(unused) <= self._at:
            self._at -= len(unused)
        else:
            self._block, self._at = unused + self._block[self._at :], 0
        self._skip_padding()
        head = self._block[self._at : self._at + len(self._magic)]
        if head == self._magic:
            self._decoder = self._new_decoder()
        elif head:
            self._stop(traces.COMPRESSED_DATA_FOLLOWED)
        else:
            self._is_over = True

    def _skip_padding(self) -> None:
        """Skip zeros between members. Afterwards the block holds a complete magic, if there is one."""
        while True:
            while self._block[self._at : self._at + 1] == b"\0":
                self._at += 1
            if len(self._block) - self._at >= len(self._magic) or not self._following:
                return
            self._advance(self._block[self._at :])

    def _stop(self, template: Template) -> None:
        self._is_over = True
        self.damage = self._raw.damage or template(compression=self._word, decompressed=self._given)


def open_stream(file: ReadableFile, name: str) -> TextStream:
    """Open the text of a file.

    Raises:
        DamagedTraceError: It is empty, or a zip archive where none is expected.
        TraceNotFoundError: It cannot be read.
        TraceTooLargeError: When read: it has more text than any trace, or unpacks to far more than traces do.
    """
    raw = RawFile(file, name)
    try:
        return _make_stream(raw)
    except BaseException:
        raw.close()
        raise


def _make_stream(raw: RawFile) -> TextStream:
    if raw.magic.startswith(GZIP_MAGIC):
        from isal import igzip_lib

        return _CompressedStream(raw, "gzip", GZIP_MAGIC, lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP))
    if raw.magic == ZSTD_MAGIC:
        return _CompressedStream(raw, "zstd", ZSTD_MAGIC, _get_zstd_decoder())
    if raw.magic in ZIP_MAGIC:
        raise DamagedTraceError(traces.ARCHIVE_IN_FILE(path=raw.name))
    return TextStream(raw)


def _get_zstd_decoder() -> Callable[[], Any]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor


def make_bomb_error(name: str) -> TraceTooLargeError:
    """Make the error for a file that unpacks to far more than traces do."""
    return TraceTooLargeError(traces.FILE_UNPACKS_TOO_FAR(path=name, ratio=MAX_UNPACK_RATIO))


def make_read_error(name: str, error: Exception) -> TraceNotFoundError:
    """Make the error for a file that cannot be opened or read."""
    if isinstance(error, TraceNotFoundError):
        return error
    # fsspec also reports unreachable hosts as "not found".
    while isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, FileNotFoundError):
        return TraceNotFoundError(traces.FILE_NOT_FOUND(path=name))
    reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    shown = " ".join(reason.split())[:MAX_REASON_CHARS].rstrip(".")
    return TraceNotFoundError(traces.FILE_UNREADABLE(path=name, reason=shown))


class PartlyReadFile:
    """A file of which the first bytes were already read."""

    def __init__(self, front: bytes, rest: ReadableFile) -> None:
        self._front, self._rest = io.BytesIO(front), rest

    def read(self, size: int, /) -> bytes:
        """Read up to ``size`` bytes; empty at the end."""
        return self._front.read(size) or self._rest.read(size)

    def close(self) -> None:
        """Close the file, except for standard input."""
        if self._rest is not sys.stdin.buffer:
            self._rest.close()


class TemporaryCopy:
    """Opens a temporary copy of a file, which is deleted with the last reference to this object.

    Args:
        file: The file to copy; it is closed.
    """

    def __init__(self, file: ReadableFile) -> None:
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the finalizer
        weakref.finalize(self, self._copy.close)
        try:
            self._copy.writelines(iter(partial(file.read, BLOCK_BYTES), b""))
        finally:
            file.close()

    def __call__(self) -> ReadableFile:
        """Open the copy at its start; one reader at a time."""
        return _ReusableFile(self._copy)


class _ReusableFile(io.RawIOBase):
    """A file that stays open for the next reader."""

    def __init__(self, file: IO[bytes]) -> None:
        self._shared = file
        self._shared.seek(0)

    def read(self, size: int = -1, /) -> bytes:
        return self._shared.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._shared.seek(offset, whence)

    def tell(self) -> int:
        return self._shared.tell()

    def seekable(self) -> bool:
        return True
