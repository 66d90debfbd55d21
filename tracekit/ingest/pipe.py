"""Inputs that can be read only once, and copies of them that can be reopened."""

import io
import sys
import tempfile
import weakref
from functools import partial
from typing import IO

from tracekit.ingest.stream import BLOCK_BYTES, ReadableFile


class PartlyReadFile:
    """A file of which the first bytes were already read.

    Args:
        front: These bytes.
        rest: The file.
    """

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
