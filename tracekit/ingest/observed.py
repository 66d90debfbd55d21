"""Which execution trace belongs to which profiler trace, and what becomes of it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tracekit.errors import TraceError, TraceTooLargeError
from tracekit.ingest import ranks
from tracekit.ingest.execution_trace import join
from tracekit.ingest.source import Source, of_file
from tracekit.ingest.stream import BLOCK_BYTES
from tracekit.trace import RankTrace

_SUFFIX = re.compile(r"(\.pt\.trace)?\.json(?=\.|$)")
LONGEST = 1 << 30


def with_execution_trace(rank: RankTrace, source: Source, given: Sequence[Source]) -> RankTrace:
    """``rank`` with what its execution trace adds, if there is one.

    It is the one that was given of the same rank, or one that lies beside the trace as ``NAME.et.json``. One that
    doesn't fit is left out, with a warning.

    Args:
        rank: A trace as it was read.
        source: Where it was read from.
        given: The execution traces that were given.
    """
    found = _of_rank(rank, given) or _beside(source)
    if found is None:
        return rank
    try:
        return join(rank, _text(found), found.name)
    except TraceError as error:
        return replace(rank, warnings=(*rank.warnings, f"the execution trace was left out: {error}"))


def _of_rank(rank: RankTrace, given: Sequence[Source]) -> Source | None:
    told = [source for source in given if ranks.of_name(source.name) in (rank.rank, None)]
    return told[0] if len(told) == 1 else None


def _beside(source: Source) -> Source | None:
    if source.path is None or source.member is not None:
        return None
    path = Path(source.path)
    other = path.with_name(_SUFFIX.sub(".et.json", path.name, count=1))
    return of_file(other) if other != path and other.is_file() else None


def _text(source: Source) -> bytes:
    pieces, size = [], 0
    with source.open() as stream:
        while piece := stream.read(BLOCK_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > LONGEST:
                raise TraceTooLargeError(f"{source.name} holds more than {LONGEST >> 30} GiB.")
    return b"".join(pieces)
