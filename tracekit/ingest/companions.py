"""Find the companion files of a profiler trace: its execution trace and the traces of its graph captures."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tracekit.bounds import MAX_EXECUTION_TRACE_BYTES
from tracekit.errors import TraceError, TraceTooLargeError
from tracekit.ingest import ranks
from tracekit.ingest.execution_trace import join_execution_trace
from tracekit.ingest.source import TraceSource, list_trace_files, make_file_source
from tracekit.ingest.stream import BLOCK_BYTES
from tracekit.messages import traces as messages
from tracekit.trace import RankTrace

_TRACE_SUFFIX = re.compile(r"(\.pt\.trace)?\.json(?=\.|$)")
CAPTURE_DIRECTORY = "capture_traces"


def add_execution_trace(rank: RankTrace, source: TraceSource, given: Sequence[TraceSource]) -> RankTrace:
    """Join the execution trace of ``rank``, if there is one.

    It is the given one of the same rank, or the file ``NAME.et.json`` beside the trace. One that does not fit is
    skipped with a warning.
    """
    found = _find_given(rank, given) or _find_beside(source)
    if found is None:
        return rank
    try:
        return join_execution_trace(rank, read_execution_text(found), found.name)
    except TraceError as error:
        return replace(rank, warnings=(*rank.warnings, messages.EXECUTION_TRACE_SKIPPED(error=error.catalogue_message)))


def _find_given(rank: RankTrace, given: Sequence[TraceSource]) -> TraceSource | None:
    told = [source for source in given if ranks.parse_rank_from_name(source.name) in (rank.rank, None)]
    return told[0] if len(told) == 1 else None


def _find_beside(source: TraceSource) -> TraceSource | None:
    if source.path is None or source.member is not None:
        return None
    path = Path(source.path)
    other = path.with_name(_TRACE_SUFFIX.sub(".et.json", path.name, count=1))
    # Unlike Path.is_file it takes a name that is too long for one that isn't there.
    return make_file_source(other) if other != path and os.path.isfile(other) else None


def find_capture_files(rank: RankTrace, source: TraceSource, given: Sequence[TraceSource]) -> list[TraceSource]:
    """Find the traces in which the CUDA graphs of ``rank`` may have been captured.

    They were given, or lie beside the trace in ``capture_traces``, where vLLM and SGLang write them. A server may
    record one rank only; its graphs are those of all ranks.
    """
    found = list(given) or _list_capture_directory(source)
    same = [each for each in found if ranks.parse_rank_from_name(each.name) in (rank.rank, None)]
    return same or found


def _list_capture_directory(source: TraceSource) -> list[TraceSource]:
    directory = (
        Path(source.path).with_name(CAPTURE_DIRECTORY) if source.path is not None and source.member is None else None
    )
    return list_trace_files(directory) if directory is not None and directory.is_dir() else []


def read_execution_text(source: TraceSource) -> bytes:
    """Read the text of an execution trace.

    Raises:
        TraceTooLargeError: It is.
    """
    pieces, size = [], 0
    with source.open() as stream:
        while piece := stream.read(BLOCK_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_EXECUTION_TRACE_BYTES:
                raise TraceTooLargeError(
                    messages.EXECUTION_TRACE_TOO_LARGE(path=source.name, limit_bytes=MAX_EXECUTION_TRACE_BYTES)
                )
    return b"".join(pieces)
