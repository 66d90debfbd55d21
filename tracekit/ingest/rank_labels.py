"""Rank labels in process ids: SGLang's merged traces write ``"pid": "[TP01-DP00-PP00-EP00] 83"``."""

import re
from collections.abc import Sequence

from tracekit.ingest.window import FillableStream

PID_BITS = 40
"""Process ids have fewer bits: above them stands the number of the label."""

_LABELLED_PID = re.compile(rb'("pid"[ \t]?:[ \t]?)"(\[[^\[\]"\\]{1,80}\]) (-?\d{1,12})"')
_UNFINISHED_PID = re.compile(rb'"(?:p(?:i(?:d(?:"[^,}]{0,120})?)?)?)?\Z')
_PARALLEL_RANK = re.compile(rb"(TP|DP|PP|EP)[-_]?(\d{1,7})")
_BLOCK_BYTES = 1 << 20


def has_rank_labels(head: bytes) -> bool:
    """Return whether processes are labelled, by the first part of a trace."""
    return _LABELLED_PID.search(head) is not None


class UnlabelledStream:
    """The text of a merged trace with numbers for labelled process ids: the label's number, then the process id."""

    def __init__(self, stream: FillableStream) -> None:
        self._numbers: dict[bytes, int] = {}
        self._stream = stream
        self._ready = memoryview(b"")
        self._held = b""
        self._is_over = False

    @property
    def labels(self) -> list[bytes]:
        """Labels in the order of their first process id."""
        return list(self._numbers)

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer from its start; return 0 at the end."""
        while not self._ready and not self._is_over:
            self._replace_block()
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _replace_block(self) -> None:
        block = bytearray(_BLOCK_BYTES)
        size = self._stream.readinto(memoryview(block))
        text = self._held + bytes(block[:size])
        self._is_over = size == 0
        unfinished = None if self._is_over else _UNFINISHED_PID.search(text, max(len(text) - 130, 0))
        stop = unfinished.start() if unfinished else len(text)
        self._held = text[stop:]
        self._ready = memoryview(_LABELLED_PID.sub(self._number_pid, text[:stop]))

    def _number_pid(self, found: re.Match[bytes]) -> bytes:
        key, label, pid = found.groups()
        number = self._numbers.setdefault(label, len(self._numbers))
        return b"%b%d" % (key, number << PID_BITS | max(int(pid), 0))


def number_ranks(labels: Sequence[bytes]) -> list[int]:
    """Return the rank of each label.

    Ranks count as in SGLang: replicas first, then pipeline stages, then tensor parallel ranks. With attention in data
    parallel (the DP rank follows from the TP rank) stage and tensor parallel rank suffice. Labels of any other kind are
    numbered in their order.
    """
    found = [{kind: int(number) for kind, number in _PARALLEL_RANK.findall(label)} for label in labels]
    sizes = {kind: 1 + max(one.get(kind, 0) for one in found) for kind in (b"DP", b"PP", b"TP", b"EP")}
    for kinds in ((b"PP", b"TP"), (b"DP", b"PP", b"TP"), (b"DP", b"PP", b"TP", b"EP")):
        numbers = [0] * len(found)
        for kind in kinds:
            numbers = [n * sizes[kind] + one.get(kind, 0) for n, one in zip(numbers, found, strict=True)]
        if len(set(numbers)) == len(numbers):
            return numbers
    return list(range(len(labels)))
