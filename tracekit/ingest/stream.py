"""Raw bytes to text, block by block: compression is told by its first bytes, never by a name."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from tracekit.errors import DamagedTraceError, TraceNotFoundError

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
LONGEST_MAGIC = 4

# Reads grow, so that a look at the first lines is cheap.
FIRST_BLOCK_BYTES = 1 << 16
BLOCK_BYTES = 1 << 20

# What follows damage in one piece of compressed data is lost with it, so pieces are small; the checksum at the end is
# a piece of its own.
PIECE_BYTES = 4096
TRAILER_BYTES = 8


class File(Protocol):
    """What a stream is read from."""

    def read(self, size: int, /) -> bytes:
        """Up to that many bytes; none at the end."""

    def close(self) -> None:
        """Let go of it."""


class Raw:
    """A file's bytes as they are stored.

    Args:
        file: The open file.
        name: What to call it in messages.

    Raises:
        DamagedTraceError: It is empty.
        TraceNotFoundError: It can't be read.
    """

    def __init__(self, file: File, name: str) -> None:
        self.name = name
        self.damage: str | None = None
        self._file = file
        self._front = b""
        try:
            self._front = self.pull(LONGEST_MAGIC)
            if not self._front:
                raise self._nothing()
        except BaseException:
            self.close()
            raise

    @property
    def magic(self) -> bytes:
        """The first bytes, until more is read."""
        return self._front

    def pull(self, size: int) -> bytes:
        """That many bytes; fewer at the end only."""
        parts = [self._front[:size]] if self._front else []
        missing = size - sum(map(len, parts))
        self._front = self._front[size:]
        while missing and (part := self._read(missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except DamagedTraceError as error:
            self.damage = error.message
            return b""
        # Every protocol of fsspec has errors of its own.
        except Exception as error:
            raise unreadable(self.name, error) from error

    def _nothing(self) -> DamagedTraceError:
        if self.damage is not None:
            return DamagedTraceError(f"{self.name} is damaged: {self.damage}.", "Copy the file again.")
        return DamagedTraceError(f"{self.name} is empty.", "Was the profiler stopped before the job ended?")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Stream:
    """A file's text, from front to back; this one is stored as it is.

    Attributes:
        damage: Set at the end if the compressed data was cut short or corrupt: one clause with the place. What could
            be decompressed in front of that was delivered.
    """

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.damage: str | None = None

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        """Fill the buffer; fewer bytes than it holds are given only at the end, none behind it."""
        data = self._raw.pull(len(buffer))
        buffer[: len(data)] = data
        self.damage = self._raw.damage
        return len(data)

    def read(self, size: int) -> bytes:
        """Up to that many bytes; fewer at the end only."""
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])

    def finish(self) -> None:
        """Look a little further than the text went, so that the checksum behind it is checked."""
        self.read(BLOCK_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()


class _Packed(Stream):
    """Compressed text: one or several members, one behind the other.

    Args:
        raw: The compressed data.
        word: What the compression is called.
        magic: How a member begins.
        decoder: Makes a decoder for one member.
    """

    def __init__(self, raw: Raw, word: str, magic: bytes, decoder: Callable[[], Any]) -> None:
        super().__init__(raw)
        self._word, self._magic, self._new_decoder = word, magic, decoder
        self._decoder = decoder()
        self._block, self._at = b"", 0
        self._block_bytes = FIRST_BLOCK_BYTES
        self._following = raw.pull(self._block_bytes)
        self._given = 0
        self._is_over = False

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        """Fill the buffer; fewer bytes than it holds are given only at the end, none behind it."""
        filled = 0
        while filled < len(buffer) and not self._is_over:
            text = self._step(len(buffer) - filled)
            buffer[filled : filled + len(text)] = text
            filled += len(text)
        return filled

    def _step(self, room: int) -> bytes:
        piece = self._piece() if self._decoder.needs_input else b""
        if self._decoder.needs_input and not piece:
            self._stop("ends early")
            return b""
        try:
            text: bytes = self._decoder.decompress(piece, room)
        # isal's error is no subclass of ValueError or OSError, and each package has one of its own.
        except Exception:
            self._stop("is corrupt")
            return b""
        self._given += len(text)
        if self._decoder.eof:
            self._next_member(self._decoder.unused_data)
        return text

    def _piece(self) -> bytes:
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

    def _next_member(self, unused: bytes) -> None:
        if len(unused) <= self._at:
            self._at -= len(unused)
        else:
            self._block, self._at = unused + self._block[self._at :], 0
        self._skip_padding()
        head = self._block[self._at : self._at + len(self._magic)]
        if head == self._magic:
            self._decoder = self._new_decoder()
        elif head:
            self._stop("is followed by something else")
        else:
            self._is_over = True

    def _skip_padding(self) -> None:
        """Zeros between members; afterwards a whole magic is in the block, if there is one."""
        while True:
            while self._block[self._at : self._at + 1] == b"\0":
                self._at += 1
            if len(self._block) - self._at >= len(self._magic) or not self._following:
                return
            self._advance(self._block[self._at :])

    def _stop(self, what: str) -> None:
        self._is_over = True
        self.damage = self._raw.damage or f"the {self._word} data {what} (after {self._given:,} decompressed bytes)"


def open_stream(file: File, name: str) -> Stream:
    """The text of an open file.

    Raises:
        DamagedTraceError: It is empty, or a zip archive where none is expected.
        TraceNotFoundError: It can't be read.
    """
    raw = Raw(file, name)
    try:
        return _stream(raw)
    except BaseException:
        raw.close()
        raise


def _stream(raw: Raw) -> Stream:
    if raw.magic.startswith(GZIP_MAGIC):
        from isal import igzip_lib

        return _Packed(raw, "gzip", GZIP_MAGIC, lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP))
    if raw.magic == ZSTD_MAGIC:
        return _Packed(raw, "zstd", ZSTD_MAGIC, _zstd_decoder())
    if raw.magic in ZIP_MAGIC:
        raise DamagedTraceError(f"{raw.name} is a zip archive inside another file.", "Unpack it first.")
    return Stream(raw)


def _zstd_decoder() -> Callable[[], Any]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor


def unreadable(name: str, error: Exception) -> TraceNotFoundError:
    """The error for a file that can't be opened or read."""
    if isinstance(error, TraceNotFoundError):
        return error
    # fsspec says "not found" of a host that can't be reached, too.
    while isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, FileNotFoundError):
        return TraceNotFoundError(f"{name}: no such file.")
    reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return TraceNotFoundError(f"{name} can't be read: {' '.join(reason.split())[:300].rstrip('.')}.")
