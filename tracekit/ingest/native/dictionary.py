"""A dictionary of texts, compiled: every distinct text once, and a number for it. It is made in :mod:`texts`."""

import numpy as np

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.native.constants import FREE
from tracekit.ingest.native.jsontext import compiled, eight_bytes, inlined, upto_eight_bytes

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


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
    while slots[slot] != FREE:
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
    if slots[slot] == FREE:
        number = count[0]
        first = starts[number]
        for i in range(stop - start):
            arena[first + i] = buffer[start + i]
        starts[number + 1] = first + stop - start
        slots[slot] = number
        count[0] = number + 1
    return slots[slot]


@compiled
def fill(slots: Ints, starts: Ints, arena: Bytes, count: int, are_words: int) -> int:
    """Put the first texts into their slots."""
    for number in range(count):
        start, stop = starts[number], starts[number + 1]
        hashed = hash_word(arena, start, stop) if are_words else hash_text(arena, start, stop)
        slots[slot_of(slots, starts, arena, arena, start, stop, hashed)] = number
    return 0
