"""Decode one file into a rank's trace, with the decoder that suits its size."""

import codecs
import io
from collections.abc import Callable

from tracekit.compiled.announcing import announce_compilation
from tracekit.errors import NotATraceError
from tracekit.ingest import foreign
from tracekit.ingest.build import build_rank_trace
from tracekit.ingest.event_decoder import JSON_ERRORS
from tracekit.ingest.memory import parse_memory_size
from tracekit.ingest.stream_decoder import StreamDecoder, decode_small
from tracekit.ingest.window import FillableStream
from tracekit.messages import trace_files
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
    progress: Callable[[str], None] = lambda stage: None,
) -> RankTrace:
    """Read one rank's trace.

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
    tool = foreign.identify_tool(head, source)
    if tool is not None:
        raise NotATraceError(trace_files.TRACE_OF_OTHER_TOOL(path=source, tool=tool))
    if len(head) <= small_bytes:
        try:
            return build_rank_trace(decode_small(head, stacks), source, needs_gpu=needs_gpu)
        except JSON_ERRORS:
            pass
    with announce_compilation(progress):
        decoded = StreamDecoder(
            _PrefixedStream(head, stream), source, memory_bytes or parse_memory_size(None), stacks
        ).decode()
    return build_rank_trace(decoded, source, needs_gpu=needs_gpu)


def _read_up_to(stream: FillableStream, size: int) -> bytes:
    """Read up to ``size`` bytes."""
    buffer = bytearray(size)
    filled = 0
    while filled < size and (got := stream.readinto(memoryview(buffer)[filled:])):
        filled += got
    return bytes(buffer[:filled])


class _PrefixedStream:
    """A stream that first repeats the bytes that were already read."""

    def __init__(self, head: bytes, rest: FillableStream) -> None:
        self._head = io.BytesIO(head)
        self._rest = rest

    def readinto(self, buffer: memoryview, /) -> int:
        return self._head.readinto(buffer) or self._rest.readinto(buffer)
