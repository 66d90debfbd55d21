"""The process that a command runs in: its standard streams, its memory, and how it fails."""

import codecs
import errno
import io
import os
import sys
from typing import NamedTuple, NoReturn

from tracekit.bounds import MIN_ADDRESS_SPACE_BYTES, MIN_THREAD_SPACE_BYTES
from tracekit.errors import RequestError, TracekitError
from tracekit.messages import front_ends
from tracekit.messages.front_ends import MEMORY_LIMIT_LOW
from tracekit.system import get_address_space_bytes

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


PLAIN_ERRORS = "tracekit-plain"
PLAIN_FORMS = {
    "–": "-", "−": "-", "…": "...", "→": "->", "•": "*", "·": "-", "×": "x", "≈": "~", "≤": "<=", "≥": ">=", "µ": "u",
    "’": "'", "“": '"', "”": '"',
}  # fmt: skip
"""Characters that tracekit prints, as an encoding without them shows them."""


def write_plainly(error: UnicodeError) -> tuple[str, int]:
    """Replace what an output's encoding lacks by what reads alike, or by a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(PLAIN_FORMS.get(letter, "?") for letter in lost), error.end


codecs.register_error(PLAIN_ERRORS, write_plainly)


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
            stream.reconfigure(errors=PLAIN_ERRORS)


def drop_output() -> None:
    """Drop what standard output doesn't take, if anything, so that Python's exit doesn't fail at it again."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDOUT)
        os.close(null)


def check_memory_limit() -> None:
    """Refuse a limit below which numpy and polars abort the process.

    Raises:
        TracekitError: There is such a limit.
    """
    least = MIN_ADDRESS_SPACE_BYTES + MIN_THREAD_SPACE_BYTES * max((os.cpu_count() or 1) - 2, 0)
    limit = get_address_space_bytes()
    if limit is not None and limit < least:
        raise TracekitError(MEMORY_LIMIT_LOW(limit_bytes=limit, least_bytes=least))


EXIT_FAILURE = 1
EXIT_USAGE = 2


class Failure(NamedTuple):
    """An expected failure.

    Attributes:
        text: What happened, where, and what to try; empty if there is nobody to read it.
        exit_code: The command's exit code.
    """

    text: str
    exit_code: int = EXIT_FAILURE


def explain_failure(error: Exception) -> Failure | None:
    """Explain an error; ``None`` for one that shows a bug."""
    if isinstance(error, TracekitError):
        code = EXIT_USAGE if isinstance(error, RequestError) else EXIT_FAILURE
        return Failure(f"{error} [{error.code}]", code)
    from predictors import PredictorError

    if isinstance(error, PredictorError):
        return Failure(f"{error} [{error.code}]")
    if _is_out_of_memory(error):
        return Failure(str(front_ends.MEMORY_EXHAUSTED()))
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return Failure("")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return Failure(str(front_ends.OUTPUT_DISK_FULL()))
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(str(front_ends.FILE_FAILED(path=_get_name(error), reason=os.strerror(error.errno))))
    return None


def _get_name(error: OSError) -> str:
    return "standard output or a file" if error.filename is None else os.fsdecode(error.filename)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether memory ran out, also where a library could not be loaded for want of it."""
    if error is None:
        return False
    ran_out = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    return ran_out or "failed to map segment" in str(error) or _is_out_of_memory(error.__cause__ or error.__context__)
