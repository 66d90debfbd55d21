"""A job's traces: how much they may unpack to, whether they are of one run, and what is told of them."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracekit.doctor import examine
from tracekit.errors import DamagedTraceError, TraceError
from tracekit.ingest.source import TraceSource
from tracekit.ingest.stream import GZIP_MAGIC, ZIP_MAGIC, ZSTD_MAGIC
from tracekit.messages import Message, front_ends
from tracekit.messages import traces as messages
from tracekit.reporting import kernel_rows
from tracekit.reporting.plain import to_builtins
from tracekit.reporting.sections import groups, limits, warnings
from tracekit.reporting.sections.step import build_source_summary
from tracekit.trace import Trace
from tracekit.web.errors import TooLargeError
from tracekit.web.uploads import Upload

if TYPE_CHECKING:
    from tracekit.doctor.examine import MeasureRank
    from tracekit.run import MeasuredRun

BLOCK_BYTES = 1 << 20


def check_unpacked_size(sources: Sequence[TraceSource], *, most_bytes: int, most_files: int) -> None:
    """Unpack everything once without storing it, and stop at the limit.

    Args:
        sources: The files to read, members of archives included.
        most_bytes: Maximum total size of the unpacked text.
        most_files: Maximum number of sources.

    Raises:
        TooLargeError: There are too many sources, or they unpack to more than the limit.
        TraceTooLargeError: One unpacks to far more than traces do.
    """
    if len(sources) > most_files:
        raise TooLargeError(front_ends.FILES_TOO_MANY(files=len(sources), max_files=most_files))
    left = most_bytes
    for source in sources:
        left -= _measure_if_readable(source, left)
        if left < 0:
            raise TooLargeError(front_ends.FILES_UNPACK_TOO_LARGE(name=source.name, max_bytes=most_bytes))


def _measure_if_readable(source: TraceSource, most_bytes: int) -> int:
    """Return the unpacked size as below; 0 for one damaged file of several, which is skipped with a warning later."""
    try:
        return _measure_unpacked_bytes(source, most_bytes)
    except DamagedTraceError:
        if not source.is_listed:
            raise
        return 0


def _measure_unpacked_bytes(source: TraceSource, most_bytes: int) -> int:
    """Return the size of the text; counting ends soon after ``most_bytes``. Uncompressed files count as 0."""
    if source.member is None and source.read_magic()[:2] not in (
        GZIP_MAGIC,
        ZSTD_MAGIC[:2],
        *(m[:2] for m in ZIP_MAGIC),
    ):
        return 0
    total = 0
    with source.open() as stream:
        while total <= most_bytes and (block := stream.read(BLOCK_BYTES)):
            total += len(block)
    return total


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


def summarize_traces(
    trace: Trace,
    run: "MeasuredRun",
    lowest: "MeasuredRun",
    beside: int = 0,
    measure: "MeasureRank | None" = None,
) -> dict[str, Any]:
    """Summarize the traces: the source, the diagnosis and its grade, the modelled share of GPU time.

    Args:
        trace: The trace of all ranks read.
        run: The measured run of all these ranks.
        lowest: The measured run of the lowest rank, which the diagnosis examines.
        beside: Number of ranks whose traces were given, but are read elsewhere.
        measure: Measures another rank for the diagnosis.
    """
    rows = kernel_rows.build_kernel_rows(run, (), kernel_rows.predict_on_source(run))
    return {
        "source": dataclasses.asdict(build_source_summary(run)),
        "coverage": dataclasses.asdict(groups.build_work_coverage(rows)),
        "diagnosis": to_builtins(examine(trace, lowest, beside, measure)),
        "warnings": [one.to_dict() for one in warnings.build_warnings(run, limits.analyze_idle_time(run))],
    }
