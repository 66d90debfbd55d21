"""Refuse compressed files that unpack to more text than a server takes, before any decoding."""

from collections.abc import Sequence

from tracekit.errors import DamagedTraceError
from tracekit.ingest.source import TraceSource
from tracekit.ingest.stream import GZIP_MAGIC, ZIP_MAGIC, ZSTD_MAGIC
from tracekit.messages import front_ends
from tracekit.web.errors import TooLargeError

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
