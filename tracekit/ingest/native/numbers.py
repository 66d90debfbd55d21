"""Compiled conversion of numbers in JSON text to integers in a table."""

import numpy as np

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.fields import NULL
from tracekit.ingest.native.constants import NEEDS_MORE, UNUSUAL
from tracekit.ingest.native.jsontext import (
    jit,
    jit_inline,
    load_up_to_eight_bytes,
    skip_digits,
    skip_plain_string,
    skip_value,
)

_QUOTE, _COMMA, _MINUS, _POINT, _SPACE, _CLOSE = (ord(c) for c in '",-. }')
_ZERO, _NINE, _FIVE, _NULL_WORD = (ord(c) for c in "095n")
_ZEROS = np.uint64(0x3030303030303030)
_PAIRS, _FOURS, _EIGHT = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)
_TEN, _HUNDRED, _TEN_THOUSAND = np.uint64(10), np.uint64(100), np.uint64(10_000)
_POWERS = 10 ** np.arange(9)
_MAX_DIGITS = 18
_MAX_TIME_DIGITS = 16


@jit_inline
def _parse_digits(buffer: Bytes, start: int, stop: int) -> int:
    """Parse digits eight at a time: neighbours become pairs, pairs fours, fours the number.

    "1 2 3 4 5 6 7 8"  ->  12 34 56 78  ->  1234 5678  ->  12345678
    """
    value = 0
    while start < stop:
        size = min(stop - start, 8)
        digits = load_up_to_eight_bytes(buffer, start, size) - (_ZEROS << np.uint64(64 - 8 * size))
        pairs = (digits * _TEN + (digits >> np.uint64(8))) & _PAIRS
        fours = (pairs * _HUNDRED + (pairs >> np.uint64(16))) & _FOURS
        value = value * _POWERS[size] + np.int64((fours * _TEN_THOUSAND + (fours >> np.uint64(32))) & _EIGHT)
        start += size
    return value


@jit_inline
def _can_end_value(buffer: Bytes, at: int) -> bool:
    """Return whether a value may end here."""
    byte = buffer[at]
    return byte == _COMMA or byte == _CLOSE or byte <= _SPACE


@jit_inline
def read_int(buffer: Bytes, at: int, end: int, ints: Ints, row: int, field: int) -> int:
    """Read an integer; of a string, its trailing integer ("stream 7"); null stays missing."""
    if buffer[at] == _QUOTE:
        return _read_quoted_int(buffer, at, end, ints, row, field)
    if buffer[at] == _NULL_WORD:
        ints[row, field] = NULL
        return skip_value(buffer, at, end)
    first = at + (buffer[at] == _MINUS)
    stop = skip_digits(buffer, first, end)
    if stop == end:
        return NEEDS_MORE
    size = stop - first
    if size == 0 or size > _MAX_DIGITS or (buffer[first] == _ZERO and size > 1) or not _can_end_value(buffer, stop):
        return UNUSUAL
    value = _parse_digits(buffer, first, stop)
    ints[row, field] = -value if first > at else value
    return stop


@jit
def _read_quoted_int(buffer: Bytes, at: int, end: int, ints: Ints, row: int, field: int) -> int:
    stop = skip_plain_string(buffer, at, end)
    if stop < 0:
        return stop
    last = stop - 1
    first = last
    while _ZERO <= buffer[first - 1] <= _NINE:
        first -= 1
    if last - first > _MAX_DIGITS:
        return UNUSUAL
    value = _parse_digits(buffer, first, last)
    if last == first:
        value = NULL
    elif buffer[first - 1] == _MINUS:
        value = -value
    ints[row, field] = value
    return stop


@jit_inline
def read_time(buffer: Bytes, at: int, end: int, ints: Ints, row: int, field: int) -> int:
    """Convert microseconds to whole nanoseconds, exactly; halves round to even."""
    if buffer[at] == _NULL_WORD:
        ints[row, field] = NULL
        return skip_value(buffer, at, end)
    first = at + (buffer[at] == _MINUS)
    stop = skip_digits(buffer, first, end)
    if stop == end:
        return NEEDS_MORE
    size = stop - first
    if size == 0 or size > _MAX_TIME_DIGITS or (buffer[first] == _ZERO and size > 1):
        return UNUSUAL
    value = _parse_digits(buffer, first, stop) * 1000
    if buffer[stop] == _POINT:
        start = stop + 1
        stop = skip_digits(buffer, start, end)
        if stop == end:
            return NEEDS_MORE
        if stop == start:
            return UNUSUAL
        value += _round_to_ns(buffer, start, stop)
    if not _can_end_value(buffer, stop):
        return UNUSUAL
    ints[row, field] = -value if first > at else value
    return stop


@jit
def _round_to_ns(buffer: Bytes, start: int, stop: int) -> int:
    """Return the digits behind a decimal point in thousandths, rounded."""
    third = min(start + 3, stop)
    value = _parse_digits(buffer, start, third)
    for _ in range(third, start + 3):
        value *= 10
    if third == stop or buffer[third] < _FIVE:
        return value
    if buffer[third] > _FIVE:
        return value + 1
    for i in range(third + 1, stop):
        if buffer[i] != _ZERO:
            return value + 1
    return value + (value & 1)
