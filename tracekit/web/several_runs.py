"""Traces of several runs that were uploaded at once: each run becomes a job of its own."""

from collections.abc import Sequence

from tracekit.errors import TraceError
from tracekit.messages import Message
from tracekit.messages import traces as messages
from tracekit.web.uploads import Upload

NO_RANKS_OF_ONE_JOB = (messages.RANKS_AMBIGUOUS.code, messages.RANK_GIVEN_TWICE.code)
"""Errors of files that can't be the ranks of one job."""
HARDLY_ONE_JOB = (messages.WORLD_SIZES_DIFFER.code, messages.GPUS_DIFFER.code)
"""Warnings about files that would be an odd job."""

MAX_RUNS = 8


class SeveralRunsError(Exception):
    """Raised within a worker to split a job.

    Attributes:
        parts: Ids of the uploads of each run.
    """

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        super().__init__(parts)
        self.parts = parts


def split_refused(error: TraceError, uploads: Sequence[Upload]) -> None:
    """Raise :class:`SeveralRunsError` if an error shows that the uploads are of several runs."""
    if error.code in NO_RANKS_OF_ONE_JOB:
        _split(uploads)


def split_doubtful(warnings: Sequence[Message], uploads: Sequence[Upload]) -> None:
    """Raise :class:`SeveralRunsError` if warnings show that ranks differ as those of one job hardly do."""
    if any(warning.code in HARDLY_ONE_JOB for warning in warnings):
        _split(uploads)


def _split(uploads: Sequence[Upload]) -> None:
    """Split by folder, or by file where there are no folders; within limits."""
    folders: dict[str, list[str]] = {}
    for upload in uploads:
        folders.setdefault(upload.name.partition("/")[0] if "/" in upload.name else upload.id, []).append(upload.id)
    if 1 < len(folders) <= MAX_RUNS:
        raise SeveralRunsError([*folders.values()])
