"""Compressed files that hold far too much are told before anything is decoded."""

from collections.abc import Sequence

from tracekit.errors import DamagedTraceError
from tracekit.ingest.source import Source
from tracekit.ingest.stream import GZIP_MAGIC, ZIP_MAGIC, ZSTD_MAGIC
from tracekit.units import byte_count
from tracekit.web.errors import TooLargeError

BLOCK_BYTES = 1 << 20

# JSON of traces packs 10 to 30 times; a file of one repeated byte a thousand times and more.
LARGEST_RATIO = 200
SUSPICIOUS_BYTES = 64 << 20

HINT = "Whoever runs the server sets the limit ({option})."


def check(sources: Sequence[Source], packed_bytes: int, *, most_bytes: int, most_files: int) -> None:
    """Unpack everything once, keeping nothing, and stop as soon as it is too much.

    Args:
        sources: What is to be read.
        packed_bytes: The size of the files that they are in.
        most_bytes: Most text that they may hold.
        most_files: Most files.

    Raises:
        TooLargeError: They are too many, or hold more than that, or far more than traces of their size do.
    """
    if len(sources) > most_files:
        raise TooLargeError(
            f"{len(sources):,} files are more than the {most_files:,} that this server takes.",
            HINT.format(option="--max-files"),
        )
    left, limit = most_bytes, max(SUSPICIOUS_BYTES, LARGEST_RATIO * packed_bytes)
    for source in sources:
        used = _size_if_readable(source, min(left, limit))
        left, limit = left - used, limit - used
        if left < 0:
            raise TooLargeError(
                f"{source.name} unpacks to more than this server takes: {byte_count(most_bytes)}.",
                HINT.format(option="--max-unpacked"),
            )
        if limit < 0:
            raise TooLargeError(
                f"{source.name} unpacks to more than {LARGEST_RATIO} times its size, which no trace does.",
                "Compress the trace that the profiler wrote.",
            )


def _size_if_readable(source: Source, most_bytes: int) -> int:
    """As below; of several files one that can't be unpacked is left out later, which says so."""
    try:
        return _size(source, most_bytes)
    except DamagedTraceError:
        if not source.is_listed:
            raise
        return 0


def _size(source: Source, most_bytes: int) -> int:
    """How much text it holds; counting ends soon after ``most_bytes``. What isn't packed can't hold more than it is."""
    if source.member is None and source.magic()[:2] not in (GZIP_MAGIC, ZSTD_MAGIC[:2], *(m[:2] for m in ZIP_MAGIC)):
        return 0
    total = 0
    with source.open() as stream:
        while total <= most_bytes and (block := stream.read(BLOCK_BYTES)):
            total += len(block)
    return total
