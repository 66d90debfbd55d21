"""A dictionary of texts, compiled: every distinct text once, and a number for it."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.ingest.jsontext import SLACK, Bytes, compiled, eight_bytes, inlined, upto_eight_bytes

_FREE = -1
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)

Ints = npt.NDArray[np.int64]


class Texts(NamedTuple):
    """Texts by number; open addressing, so that a look-up is a hash and a comparison.

    Attributes:
        slots: Number of the text in each slot, a power of two of them; at most half are taken.
        starts: Where each text starts in the arena; one more entry than there may be texts.
        arena: The texts, one behind the other.
        used: How many there are (one element, so that compiled code can change it).
    """

    slots: Ints
    starts: Ints
    arena: Bytes
    used: Ints


@inlined
def _mixed(value: np.uint64) -> np.uint64:
    """A hash with its high bits, the better ones, brought down."""
    return value ^ (value >> np.uint64(32))


@inlined
def hash_text(buffer: Bytes, start: int, stop: int) -> np.uint64:
    """A hash of a part of the buffer: FNV-1a, taking eight bytes at a time."""
    value = _OFFSET ^ np.uint64(stop - start)
    at = start
    while at + 8 < stop:
        value = _mixed((value ^ eight_bytes(buffer, at)) * _PRIME)
        at += 8
    if at < stop:
        value = _mixed((value ^ upto_eight_bytes(buffer, at, stop - at)) * _PRIME)
    return value


@inlined
def _same(left: Bytes, first: int, right: Bytes, second: int, size: int) -> bool:
    at = 0
    while at + 8 < size:
        if eight_bytes(left, first + at) != eight_bytes(right, second + at):
            return False
        at += 8
    rest = size - at
    return rest == 0 or upto_eight_bytes(left, first + at, rest) == upto_eight_bytes(right, second + at, rest)


@inlined
def hash_word(buffer: Bytes, start: int, stop: int) -> np.uint64:
    """A hash of length and beginning: enough for the few words of a fixed vocabulary, and quicker."""
    size = stop - start
    if size == 0:
        return _OFFSET
    return _mixed((upto_eight_bytes(buffer, start, min(size, 8)) ^ np.uint64(size)) * _PRIME)


@inlined
def slot_of(
    slots: Ints, starts: Ints, arena: Bytes, buffer: Bytes, start: int, stop: int, hashed: np.uint64
) -> np.uint64:
    """The slot that holds a text of that hash, or the free one where it belongs."""
    mask = np.uint64(slots.size - 1)
    slot = hashed & mask
    while slots[slot] != _FREE:
        number = slots[slot]
        first = starts[number]
        size = starts[number + 1] - first
        if size == stop - start and _same(arena, first, buffer, start, size):
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@inlined
def number_of(slots: Ints, starts: Ints, arena: Bytes, count: Ints, buffer: Bytes, start: int, stop: int) -> int:
    """The number of a text, which is added if it is new; the caller sees to it that there is room."""
    slot = slot_of(slots, starts, arena, buffer, start, stop, hash_text(buffer, start, stop))
    if slots[slot] == _FREE:
        number = count[0]
        first = starts[number]
        for i in range(stop - start):
            arena[first + i] = buffer[start + i]
        starts[number + 1] = first + stop - start
        slots[slot] = number
        count[0] = number + 1
    return slots[slot]


@compiled
def _fill_slots(slots: Ints, starts: Ints, arena: Bytes, count: int) -> None:
    for number in range(count):
        start, stop = starts[number], starts[number + 1]
        slots[slot_of(slots, starts, arena, arena, start, stop, hash_text(arena, start, stop))] = number


@compiled
def _add_word(slots: Ints, starts: Ints, arena: Bytes, count: Ints, word: Bytes, size: int) -> None:
    number, start = count[0], starts[count[0]]
    arena[start : start + size] = word[:size]
    starts[number + 1] = start + size
    count[0] = number + 1
    slots[slot_of(slots, starts, arena, word, 0, size, hash_word(word, 0, size))] = number


def empty(room: int = 1 << 15, size: int = 1 << 22) -> Texts:
    """A dictionary with room for that many texts, of that many bytes together."""
    return Texts(
        np.full(2 * room, _FREE, np.int64),
        np.zeros(room + 1, np.int64),
        np.empty(size + SLACK, np.uint8),
        np.zeros(1, np.int64),
    )


def grown(texts: Texts, more: int, size: int) -> Texts:
    """The same texts under the same numbers, with at least that much more room."""
    room = texts.starts.size - 1
    while room < texts.used[0] + more:
        room *= 2
    used = int(texts.starts[texts.used[0]])
    larger = empty(room, max(2 * used, used + size))
    larger.starts[: texts.used[0] + 1] = texts.starts[: texts.used[0] + 1]
    larger.arena[:used] = texts.arena[:used]
    larger.used[0] = texts.used[0]
    _fill_slots(larger.slots, larger.starts, larger.arena, larger.used[0])
    return larger


def vocabulary(words: list[str]) -> Texts:
    """A dictionary of distinct words, numbered in order, for look-ups by ``hash_word``."""
    texts = empty(64, 4096)
    for word in words:
        text = word.encode()
        _add_word(*texts, np.frombuffer(text + bytes(SLACK), np.uint8), len(text))
    return texts


def to_list(texts: Texts) -> list[bytes]:
    """The texts, by number."""
    arena, starts = texts.arena.tobytes(), texts.starts[: texts.used[0] + 1].tolist()
    return [arena[start:stop] for start, stop in pairwise(starts)]
