"""What can be read only once, and copies of it that can be read again."""

import io
import sys
import tempfile
import weakref
from functools import partial
from typing import IO

from tracekit.ingest.stream import BLOCK_BYTES, File


class Pipe:
    """A file of which a part was read already.

    Args:
        front: That part.
        rest: The file.
    """

    def __init__(self, front: bytes, rest: File) -> None:
        self._front, self._rest = io.BytesIO(front), rest

    def read(self, size: int, /) -> bytes:
        """Up to that many bytes; none at the end."""
        return self._front.read(size) or self._rest.read(size)

    def close(self) -> None:
        """Let go of it; standard input isn't ours to close."""
        if self._rest is not sys.stdin.buffer:
            self._rest.close()


class Copy:
    """Opens a temporary copy of a file; it goes away with the last who can open it.

    Args:
        file: What to copy; it is closed.
    """

    def __init__(self, file: File) -> None:
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the finalizer
        weakref.finalize(self, self._copy.close)
        try:
            self._copy.writelines(iter(partial(file.read, BLOCK_BYTES), b""))
        finally:
            file.close()

    def __call__(self) -> File:
        """The copy, from its start; one reader at a time."""
        return _Shared(self._copy)


class _Shared(io.RawIOBase):
    """A file that stays open for the next one who reads it."""

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
