"""Compiled hash table of texts: each distinct text once, with a number. :mod:`texts` allocates it."""

import numpy as np

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.native.constants import FREE_SLOT
from tracekit.ingest.native.jsontext import jit, jit_inline, load_eight_bytes, load_up_to_eight_bytes

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@jit_inline
def _mix_bits(value: np.uint64) -> np.uint64:
    """Mix the high bits of a hash, which are better, into its low bits."""
    return value ^ (value >> np.uint64(32))


@jit_inline
def hash_text(buffer: Bytes, start: int, stop: int) -> np.uint64:
    """Hash a part of the buffer: FNV-1a over eight bytes at a time."""
    value = _OFFSET ^ np.uint64(stop - start)
    at = start
    while at + 8 < stop:
        value = _mix_bits((value ^ load_eight_bytes(buffer, at)) * _PRIME)
        at += 8
    if at < stop:
        value = _mix_bits((value ^ load_up_to_eight_bytes(buffer, at, stop - at)) * _PRIME)
    return value


@jit_inline
def _compare_texts(left: Bytes, first: int, right: Bytes, second: int, size: int) -> bool:
    at = 0
    while at + 8 < size:
        if load_eight_bytes(left, first + at) != load_eight_bytes(right, second + at):
            return False
        at += 8
    rest = size - at
    return rest == 0 or load_up_to_eight_bytes(left, first + at, rest) == load_up_to_eight_bytes(
        right, second + at, rest
    )


@jit_inline
def hash_word(buffer: Bytes, start: int, stop: int) -> np.uint64:
    """Hash length and first bytes only: sufficient for a small fixed vocabulary, and faster."""
    size = stop - start
    if size == 0:
        return _OFFSET
    return _mix_bits((load_up_to_eight_bytes(buffer, start, min(size, 8)) ^ np.uint64(size)) * _PRIME)


@jit_inline
def find_slot(
    slots: Ints, starts: Ints, arena: Bytes, buffer: Bytes, start: int, stop: int, hashed: np.uint64
) -> np.uint64:
    """Return the slot of a text with this hash, or the free slot where it belongs."""
    mask = np.uint64(slots.size - 1)
    slot = hashed & mask
    while slots[slot] != FREE_SLOT:
        number = slots[slot]
        first = starts[number]
        size = starts[number + 1] - first
        if size == stop - start and _compare_texts(arena, first, buffer, start, size):
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@jit_inline
def find_or_add_text(slots: Ints, starts: Ints, arena: Bytes, count: Ints, buffer: Bytes, start: int, stop: int) -> int:
    """Return the number of a text, which is added if new; the caller ensures that there is room."""
    slot = find_slot(slots, starts, arena, buffer, start, stop, hash_text(buffer, start, stop))
    if slots[slot] == FREE_SLOT:
        number = count[0]
        first = starts[number]
        for i in range(stop - start):
            arena[first + i] = buffer[start + i]
        starts[number + 1] = first + stop - start
        slots[slot] = number
        count[0] = number + 1
    return slots[slot]


@jit
def insert_texts(slots: Ints, starts: Ints, arena: Bytes, count: int, are_words: int) -> int:
    """Insert the first ``count`` texts into their slots."""
    for number in range(count):
        start, stop = starts[number], starts[number + 1]
        hashed = hash_word(arena, start, stop) if are_words else hash_text(arena, start, stop)
        slots[find_slot(slots, starts, arena, arena, start, stop, hashed)] = number
    return 0
