"""Decode one file into a rank's trace, with the decoder that suits its size."""

import codecs
import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracekit.compiled import announce_compilation
from tracekit.errors import NotATraceError, TraceError
from tracekit.ingest import foreign, formats, parse_memory_size
from tracekit.ingest.build import build_rank_traces
from tracekit.ingest.columns import DecodedFile
from tracekit.ingest.event_decoder import JSON_ERRORS
from tracekit.ingest.ledger import add_bytes
from tracekit.ingest.merged_ranks import UnlabelledStream, has_rank_labels, number_documents
from tracekit.ingest.stream_decoder import decode_documents, decode_small, is_list_of_documents
from tracekit.ingest.window import FillableStream
from tracekit.messages import ProgressCallback, traces
from tracekit.trace import RankTrace

# Up to this size the careful decoder takes less time than loading the compiled one.
SMALL_FILE_BYTES = 8 << 20


def decode(
    stream: FillableStream,
    source: str,
    memory_bytes: int | None = None,
    small_bytes: int = SMALL_FILE_BYTES,
    *,
    needs_gpu: bool = True,
    stacks: bool = False,
    progress: ProgressCallback = lambda stage: None,
) -> RankTrace:
    """Read a trace of one rank, as :func:`decode_ranks` does.

    Raises:
        TraceError: As there, or it holds several ranks.
    """
    ranks = decode_ranks(
        stream, source, memory_bytes, small_bytes, needs_gpu=needs_gpu, stacks=stacks, progress=progress
    )
    if len(ranks) > 1:
        raise NotATraceError(traces.TRACES_MERGED(path=source, processes=len(ranks)))
    return ranks[0]


def decode_ranks(
    stream: FillableStream,
    source: str,
    memory_bytes: int | None = None,
    small_bytes: int = SMALL_FILE_BYTES,
    *,
    needs_gpu: bool = True,
    stacks: bool = False,
    progress: ProgressCallback = lambda stage: None,
) -> list[RankTrace]:
    """Read the trace of one rank, or of the ranks that are merged into one file.

    Args:
        stream: Its JSON text.
        source: Name of the trace in messages.
        memory_bytes: Memory limit of its tables; by default half of the machine's memory.
        small_bytes: Largest size that is decoded at once.
        needs_gpu: Whether to refuse a trace without GPU activity.
        stacks: Whether to read Python calls.
        progress: Called with a description of a slow stage.

    Raises:
        TraceError: It is not a profiler trace, too damaged, too large, or holds no GPU activity.
    """
    head = _read_up_to(stream, max(small_bytes + 1, foreign.HEAD_BYTES)).removeprefix(codecs.BOM_UTF8)
    if template := foreign.identify_unread_format(head):
        raise NotATraceError(template(path=source))
    if form := formats.identify_format(head, source):
        limit = memory_bytes or parse_memory_size(None)
        return formats.read_stream(form, _PrefixedStream(head, stream), source, limit, needs_gpu=needs_gpu)
    tool = foreign.identify_tool(head, source)
    if tool == foreign.ROCPROF:
        raise NotATraceError(traces.TRACE_OF_ROCPROF_V1(path=source))
    if tool is not None:
        raise NotATraceError(traces.TRACE_OF_OTHER_TOOL(path=source, tool=tool))
    text: FillableStream = _PrefixedStream(head, stream)
    unlabelled = UnlabelledStream(text) if has_rank_labels(head[: foreign.HEAD_BYTES]) else None
    if unlabelled is None and len(head) <= small_bytes and not is_list_of_documents(head[: foreign.HEAD_BYTES]):
        try:
            return build_rank_traces(decode_small(head, stacks), source, needs_gpu=needs_gpu)
        except JSON_ERRORS:
            pass
    with announce_compilation(progress):
        limit = memory_bytes or parse_memory_size(None)
        documents = decode_documents(unlabelled or text, source, limit, stacks)
    return _build_documents(documents, source, unlabelled.labels if unlabelled else (), needs_gpu)


def _build_documents(
    documents: Sequence[DecodedFile], source: str, labels: Sequence[bytes], needs_gpu: bool
) -> list[RankTrace]:
    """Build the traces of a file's documents; only the first one's, unless they are ranks of one job."""
    first, *others = documents
    try:
        found = [build_rank_traces(each, source, labels, needs_gpu=needs_gpu) for each in others]
    except TraceError:
        found = []
    ranks = build_rank_traces(first, source, labels, needs_gpu=needs_gpu)
    told = number_documents([rank for each in (ranks, *found) for rank in each]) if found else None
    if told is not None:
        return told
    if others and first.damage.followed_at is None:
        warning = traces.DATA_BEHIND_TRACE(offset=others[0].begins_at)
        ledger = add_bytes(ranks[0].ledger, others[0].begins_at, first.ends_at - others[0].begins_at)
        ranks[0] = replace(ranks[0], warnings=(warning, *ranks[0].warnings), ledger=ledger)
    return ranks


def _read_up_to(stream: FillableStream, size: int) -> bytes:
    """Read up to ``size`` bytes; of a shorter stream no more memory is touched than it has."""
    buffer = np.empty(size, np.uint8).data
    filled = 0
    while filled < size and (got := stream.readinto(buffer[filled:])):
        filled += got
    return bytes(buffer[:filled])


class _PrefixedStream:
    """A stream that first repeats the bytes that were already read."""

    def __init__(self, head: bytes, rest: FillableStream) -> None:
        self._head = io.BytesIO(head)
        self._rest = rest

    def readinto(self, buffer: memoryview, /) -> int:
        return self._head.readinto(buffer) or self._rest.readinto(buffer)
