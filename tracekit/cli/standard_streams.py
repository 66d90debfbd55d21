"""Prepare the standard streams for a command, also where some are closed."""

import errno
import io
import os
import sys
from typing import NoReturn

STDOUT = 1


class ClosedOutput(io.TextIOBase):
    """Stands for a closed standard output: whatever is written fails, as it would be lost."""

    encoding = "utf-8"

    @property
    def buffer(self) -> "ClosedOutput":
        """The stream of bytes, which is closed too."""
        return self

    def write(self, text: str | bytes, /) -> NoReturn:
        """Refuse to write."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")


def prepare_streams() -> None:
    """Let standard streams take every text, and keep files from taking the place of closed ones."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = sys.stdout or ClosedOutput()
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """Drop what standard output doesn't take, if anything, so that Python's exit doesn't fail at it again."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDOUT)
        os.close(null)
