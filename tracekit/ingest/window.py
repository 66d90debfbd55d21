"""The part of a stream that is in memory."""

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tracekit.bounds import MAX_BLANK_BYTES, MAX_TRAILING_BYTES
from tracekit.ingest.native import get_loops
from tracekit.ingest.native.constants import SLACK_BYTES

BLOCK_BYTES = 1 << 20

# The compiled code accepts these characters as white space too.
_NOT_SPACE = re.compile(rb"[^\x00-\x20]")


class FillableStream(Protocol):
    """The source of the text."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer from its start; return 0 at the end."""


@dataclass(slots=True)
class StreamWindow:
    """The part of a stream that is in memory: ``buffer[at:end]`` is still to be read."""

    stream: FillableStream
    buffer: Any = field(default_factory=lambda: np.empty(BLOCK_BYTES + SLACK_BYTES, np.uint8))
    at: int = 0
    end: int = 0
    passed: int = 0
    is_last: bool = False

    def read_more(self) -> bool:
        """Read more of the stream behind the unread part; false at the end of the stream."""
        if self.is_last:
            return False
        rest = self.end - self.at
        room = self.buffer.size - SLACK_BYTES
        target = np.empty(2 * room + SLACK_BYTES, np.uint8) if rest > room // 2 else self.buffer
        target[:rest] = self.buffer[self.at : self.end].copy()
        self.passed += self.at
        self.buffer, self.at, self.end = target, 0, rest
        size = self.stream.readinto(memoryview(self.buffer)[rest:-SLACK_BYTES])
        self.end += size
        self.is_last = size == 0
        return not self.is_last

    def copy_text(self) -> bytes:
        """Return the unread text in memory."""
        content: bytes = self.buffer[self.at : self.end].tobytes()
        return content

    def find_value_end(self) -> int:
        """Return where the next value ends, or a negative status."""
        return int(get_loops()["skip_value"](self.buffer, self.at, self.end))

    def peek_byte(self) -> int:
        """Return the next byte that is not white space; -1 at the end, or after much white space."""
        limit = self.passed + self.at + MAX_BLANK_BYTES
        while self.passed < limit:
            found = _NOT_SPACE.search(self.buffer, self.at, self.end)
            self.at = found.start() if found else self.end
            if found:
                return int(self.buffer[self.at])
            if not self.read_more():
                break
        return -1

    def find_end(self) -> int:
        """Go to the end of the stream, at most ``MAX_TRAILING_BYTES`` further, and return how long it is."""
        limit = self.offset + MAX_TRAILING_BYTES
        self.at = self.end
        while self.offset < limit and self.read_more():
            self.at = self.end
        return self.offset

    @property
    def offset(self) -> int:
        """Position in the stream of the next byte."""
        return self.passed + self.at
