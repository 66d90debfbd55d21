"""One file to a rank's trace, by the decoder that suits it."""

import codecs
import io
from collections.abc import Callable

from tracekit.errors import NotATraceError
from tracekit.ingest import foreign
from tracekit.ingest.build import build
from tracekit.ingest.kineto import BAD_JSON
from tracekit.ingest.memory import to_bytes
from tracekit.ingest.native import loops
from tracekit.ingest.walk import Walk, whole
from tracekit.ingest.window import Stream
from tracekit.trace import RankTrace

# Up to here the careful decoder takes less time than loading the compiled one.
SMALL_BYTES = 8 << 20


def decode(
    stream: Stream,
    source: str,
    memory_bytes: int | None = None,
    small_bytes: int = SMALL_BYTES,
    *,
    needs_gpu: bool = True,
    stacks: bool = False,
    progress: Callable[[str], None] = lambda stage: None,
) -> RankTrace:
    """Read one rank's trace.

    Args:
        stream: Its JSON text.
        source: What to call it in messages.
        memory_bytes: The most that its tables may take; by default half of the machine's memory.
        small_bytes: Up to which size it is decoded at once.
        needs_gpu: Whether it is refused if nothing in it ran on a GPU.
        stacks: Whether Python's calls are read.
        progress: Called with what is being done, if that takes long.

    Raises:
        TraceError: It is no profiler trace, too damaged, too large, or holds no GPU activity.
    """
    head = _read(stream, max(small_bytes + 1, foreign.HEAD_BYTES)).removeprefix(codecs.BOM_UTF8)
    if other := foreign.no_trace(head):
        raise NotATraceError(f"{source} is {other[0]}.", other[1])
    tool = foreign.tool(head, source)
    if tool is not None:
        raise NotATraceError(f"{source} was written by {tool}, not by PyTorch's profiler.", foreign.HINT)
    if len(head) <= small_bytes:
        try:
            return build(whole(head, stacks), source, needs_gpu=needs_gpu)
        except BAD_JSON:
            pass
    loops(progress)
    decoded = Walk(_Joined(head, stream), source, memory_bytes or to_bytes(None), stacks).run()
    return build(decoded, source, needs_gpu=needs_gpu)


def _read(stream: Stream, size: int) -> bytes:
    """Up to that many bytes."""
    buffer = bytearray(size)
    filled = 0
    while filled < size and (got := stream.readinto(memoryview(buffer)[filled:])):
        filled += got
    return bytes(buffer[:filled])


class _Joined:
    """What was read already, and the rest."""

    def __init__(self, head: bytes, rest: Stream) -> None:
        self._head = io.BytesIO(head)
        self._rest = rest

    def readinto(self, buffer: memoryview, /) -> int:
        return self._head.readinto(buffer) or self._rest.readinto(buffer)
