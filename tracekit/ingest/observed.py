"""Which execution trace and which traces of graph captures belong to a profiler trace."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tracekit.errors import TraceError, TraceTooLargeError
from tracekit.ingest import ranks
from tracekit.ingest.execution_trace import join
from tracekit.ingest.source import Source, files_in, of_file
from tracekit.ingest.stream import BLOCK_BYTES
from tracekit.trace import RankTrace

_SUFFIX = re.compile(r"(\.pt\.trace)?\.json(?=\.|$)")
LONGEST = 1 << 30
CAPTURES = "capture_traces"


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
    # Unlike Path.is_file it takes a name that is too long for one that isn't there.
    return of_file(other) if other != path and os.path.isfile(other) else None


def captures_of(rank: RankTrace, source: Source, given: Sequence[Source]) -> list[Source]:
    """The traces in which the CUDA graphs of ``rank`` may have been captured, as :func:`with_execution_trace` looks.

    They lie beside the trace in ``capture_traces``, where vLLM and SGLang write them. Servers may record one rank only;
    its graphs are those of all.
    """
    found = list(given) or _in_directory_beside(source)
    same = [each for each in found if ranks.of_name(each.name) in (rank.rank, None)]
    return same or found


def _in_directory_beside(source: Source) -> list[Source]:
    directory = Path(source.path).with_name(CAPTURES) if source.path is not None and source.member is None else None
    return files_in(directory) if directory is not None and directory.is_dir() else []


def _text(source: Source) -> bytes:
    pieces, size = [], 0
    with source.open() as stream:
        while piece := stream.read(BLOCK_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > LONGEST:
                raise TraceTooLargeError(f"{source.name} holds more than {LONGEST >> 30} GiB.")
    return b"".join(pieces)
