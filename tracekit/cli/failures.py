"""Say why a command failed in one line, and with which exit code."""

import errno
import os
from typing import NamedTuple

from tracekit.errors import RequestError, TracekitError
from tracekit.messages import front_ends

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
