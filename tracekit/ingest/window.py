"""The part of a stream that is in memory."""

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tracekit.ingest.native import loops
from tracekit.ingest.native.constants import SLACK

BLOCK = 1 << 20
LARGEST_VALUE = 256 << 20

# What the compiled code takes for white space as well.
_NOT_SPACE = re.compile(rb"[^\x00-\x20]")


class Stream(Protocol):
    """Where the text comes from."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer from the front; 0 at the end."""


@dataclass(slots=True)
class Window:
    """The part of a stream that is in memory: ``buffer[at:end]`` is still to be read."""

    stream: Stream
    buffer: Any = field(default_factory=lambda: np.empty(BLOCK + SLACK, np.uint8))
    at: int = 0
    end: int = 0
    passed: int = 0
    is_last: bool = False

    def more(self) -> bool:
        """Read on, behind what is still to be read; false at the end of the stream."""
        if self.is_last:
            return False
        rest = self.end - self.at
        room = self.buffer.size - SLACK
        target = np.empty(2 * room + SLACK, np.uint8) if rest > room // 2 else self.buffer
        target[:rest] = self.buffer[self.at : self.end].copy()
        self.passed += self.at
        self.buffer, self.at, self.end = target, 0, rest
        size = self.stream.readinto(memoryview(self.buffer)[rest:-SLACK])
        self.end += size
        self.is_last = size == 0
        return not self.is_last

    def text(self) -> bytes:
        """What is in memory and still to be read."""
        content: bytes = self.buffer[self.at : self.end].tobytes()
        return content

    def behind_value(self) -> int:
        """Where the value that comes next ends, or why that can't be told."""
        return int(loops().skip_value(self.buffer, self.at, self.end))

    def byte(self) -> int:
        """The next byte that isn't white space; -1 at the end, or if nothing else comes for long."""
        limit = self.passed + self.at + LARGEST_VALUE
        while self.passed < limit:
            found = _NOT_SPACE.search(self.buffer, self.at, self.end)
            self.at = found.start() if found else self.end
            if found:
                return int(self.buffer[self.at])
            if not self.more():
                break
        return -1

    @property
    def place(self) -> int:
        """Bytes of the stream in front of the next one."""
        return self.passed + self.at
