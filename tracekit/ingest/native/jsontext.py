"""Compiled steps over JSON text: each takes a position in a buffer and returns the position behind what it read.

A negative result is a status: the buffer ends first, or the text is unusual (not JSON, or JSON for the careful
decoder). Text is read eight bytes at a time: the buffer has ``SLACK_BYTES`` more bytes of any content behind its end.
Numbers become integers in a table.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.fields import NULL
from tracekit.ingest.native.constants import NEEDS_MORE, UNUSUAL

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _PLUS, _POINT = (ord(c) for c in '"\\,:-+.')
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = (ord(c) for c in "{}[]")
_ZERO, _NINE, _SPACE = (ord(c) for c in "09 ")
_ONES, _NO_BITS, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _SPACES, _ZEROS = (_ONES * np.uint64(byte) for byte in (_QUOTE, _BACKSLASH, _SPACE, _ZERO))
# Added to a byte, this exceeds 127 if the byte is more than a digit's value.
_OVER_NINE = _ONES * np.uint64(127 - 9)
_SMALL_E, _LARGE_E = ord("e"), ord("E")
_TRUE, _FALSE, _NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))
_MAX_DEPTH = 60

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile a function."""
    dispatcher: Any = njit(function)
    return cast("Function", dispatcher)


def jit_inline(function: Function) -> Function:
    """Compile a function, inlined into its callers."""
    dispatcher: Any = njit(forceinline=True)(function)
    return cast("Function", dispatcher)


def _emit_load(typing_context: Any, buffer: Any, at: Any) -> Any:
    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(buffer, types.int64), load


load_eight_bytes: Any = intrinsic(_emit_load)
"""Load the eight bytes of a buffer from a position on as one number, the first byte in its lowest bits."""


def _emit_trailing_zeros(typing_context: Any, word: Any) -> Any:
    def count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), count


_count_trailing_zeros: Any = intrinsic(_emit_trailing_zeros)


@jit_inline
def load_up_to_eight_bytes(buffer: Bytes, at: int, size: int) -> np.uint64:
    """Load the next one to eight bytes as one number, the last in its highest bits."""
    return load_eight_bytes(buffer, at) << np.uint64(64 - 8 * size)


@jit_inline
def _find_special_byte(buffer: Bytes, at: int, end: int, high: np.uint64, more: np.uint64) -> int:
    """Find the first byte that ends a string or is not a plain part of one; ``end`` or later without one.

    Such bytes get their high bit set: quotes, backslashes, control characters, and, with ``high`` and ``more`` set to
    all high bits and ones, bytes above ``~`` too. Borrows and carries only reach bytes behind a found one.
    """
    while at < end:
        word = load_eight_bytes(buffer, at)
        quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
        found = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - _SPACES) & ~word)
        found = (found | ((word | (word + more)) & high)) & _HIGH_BITS
        if found:
            return at + (_count_trailing_zeros(found) >> 3)
        at += 8
    return at


@jit_inline
def skip_space(buffer: Bytes, at: int, end: int) -> int:
    """Skip white space, and control characters taken for it; ``end`` if there is nothing else."""
    while at < end and buffer[at] <= _SPACE:
        at += 1
    return at


@jit_inline
def skip_string(buffer: Bytes, at: int, end: int) -> int:
    """Skip a string whose opening quote is at ``at``."""
    at = _find_special_byte(buffer, at + 1, end, _NO_BITS, _NO_BITS)
    while at < end:
        if buffer[at] == _QUOTE:
            return at + 1
        if buffer[at] != _BACKSLASH:
            return UNUSUAL
        at = _find_special_byte(buffer, at + 2, end, _NO_BITS, _NO_BITS)
    return NEEDS_MORE


@jit_inline
def skip_plain_string(buffer: Bytes, at: int, end: int) -> int:
    """Skip a string of ASCII without escapes."""
    at = _find_special_byte(buffer, at + 1, end, _HIGH_BITS, _ONES)
    if at >= end:
        return NEEDS_MORE
    return at + 1 if buffer[at] == _QUOTE else UNUSUAL


@jit_inline
def is_ascii(buffer: Bytes, start: int, stop: int) -> bool:
    """Return whether a part of the buffer holds no byte above 127."""
    while start + 8 < stop:
        if load_eight_bytes(buffer, start) & _HIGH_BITS:
            return False
        start += 8
    return start == stop or not load_up_to_eight_bytes(buffer, start, stop - start) & _HIGH_BITS


@jit_inline
def skip_digits(buffer: Bytes, at: int, end: int) -> int:
    """Skip the digits at ``at``, if any."""
    while at < end:
        word = load_eight_bytes(buffer, at) ^ _ZEROS
        others = (word | (word + _OVER_NINE)) & _HIGH_BITS
        if others:
            return min(at + (_count_trailing_zeros(others) >> 3), end)
        at += 8
    return end


@jit_inline
def skip_number(buffer: Bytes, at: int, end: int) -> int:
    """Skip a number, as RFC 8259 spells it."""
    if buffer[at] == _MINUS:
        at += 1
    start = at
    at = skip_digits(buffer, at, end)
    if at == start or (buffer[start] == _ZERO and at > start + 1):
        return NEEDS_MORE if at == end else UNUSUAL
    if at < end and buffer[at] == _POINT:
        start = at + 1
        at = skip_digits(buffer, start, end)
        if at == start:
            return NEEDS_MORE if at == end else UNUSUAL
    if at < end and (buffer[at] == _SMALL_E or buffer[at] == _LARGE_E):
        at += 1
        if at < end and (buffer[at] == _MINUS or buffer[at] == _PLUS):
            at += 1
        start = at
        at = skip_digits(buffer, at, end)
        if at == start:
            return NEEDS_MORE if at == end else UNUSUAL
    return NEEDS_MORE if at == end else at


@jit_inline
def skip_literal(buffer: Bytes, at: int, end: int, word: Bytes) -> int:
    """Skip a literal."""
    if at + word.size > end:
        return NEEDS_MORE
    for i in range(word.size):
        if buffer[at + i] != word[i]:
            return UNUSUAL
    return at + word.size


@jit_inline
def skip_scalar(buffer: Bytes, at: int, end: int) -> int:
    """Skip a string, number or literal."""
    byte = buffer[at]
    if byte == _QUOTE:
        return skip_string(buffer, at, end)
    if byte == _MINUS or _ZERO <= byte <= _NINE:
        return skip_number(buffer, at, end)
    if byte == _NULL[0]:
        return skip_literal(buffer, at, end, _NULL)
    if byte == _TRUE[0]:
        return skip_literal(buffer, at, end, _TRUE)
    if byte == _FALSE[0]:
        return skip_literal(buffer, at, end, _FALSE)
    return UNUSUAL


@jit_inline
def skip_key(buffer: Bytes, at: int, end: int) -> int:
    """Skip a key and its colon, to its value."""
    at = skip_space(buffer, at, end)
    if at >= end:
        return NEEDS_MORE
    if buffer[at] != _QUOTE:
        return UNUSUAL
    at = skip_string(buffer, at, end)
    if at < 0:
        return at
    at = skip_space(buffer, at, end)
    if at >= end:
        return NEEDS_MORE
    if buffer[at] != _COLON:
        return UNUSUAL
    at = skip_space(buffer, at + 1, end)
    return NEEDS_MORE if at >= end else at


@jit
def skip_value(buffer: Bytes, at: int, end: int) -> int:
    """Skip any value, checked; nested at most 60 levels deep."""
    objects = np.int64(0)
    depth = 0
    while True:
        at = skip_space(buffer, at, end)
        if at >= end:
            return NEEDS_MORE
        byte = buffer[at]
        if byte == _OPEN_OBJECT or byte == _OPEN_LIST:
            if depth == _MAX_DEPTH:
                return UNUSUAL
            is_object = byte == _OPEN_OBJECT
            at = skip_space(buffer, at + 1, end)
            if at >= end:
                return NEEDS_MORE
            if buffer[at] != (_CLOSE_OBJECT if is_object else _CLOSE_LIST):
                objects = (objects << 1) | is_object
                depth += 1
                if is_object:
                    at = skip_key(buffer, at, end)
                    if at < 0:
                        return at
                continue
            at += 1
        else:
            at = skip_scalar(buffer, at, end)
            if at < 0:
                return at
        while depth:
            at = skip_space(buffer, at, end)
            if at >= end:
                return NEEDS_MORE
            byte = buffer[at]
            at += 1
            in_object = objects & 1
            if byte == _COMMA:
                if in_object:
                    at = skip_key(buffer, at, end)
                    if at < 0:
                        return at
                break
            if byte != (_CLOSE_OBJECT if in_object else _CLOSE_LIST):
                return UNUSUAL
            objects >>= 1
            depth -= 1
        if depth == 0:
            return at


def make_key_pattern(key: str) -> tuple[np.uint64, np.uint64]:
    """Return a quoted key of up to six letters as its first eight bytes, and a mask of the bytes that count."""
    quoted = f'"{key}"'.encode()
    return np.uint64(int.from_bytes(quoted, "little")), np.uint64(2 ** (8 * len(quoted)) - 1)


@jit
def skip_rest_of_object(
    buffer: Bytes, at: int, end: int, key: np.uint64, mask: np.uint64, other: np.uint64, other_mask: np.uint64
) -> tuple[int, int, int]:
    """Skip the rest of an object from behind one of its values; unusual if ``key`` occurs again.

    Returns:
        The position behind the object; start and end of the last value whose key is ``other``, -1 without one.
    """
    first, last = -1, -1
    while True:
        at = skip_space(buffer, at, end)
        if at >= end:
            return NEEDS_MORE, -1, -1
        if buffer[at] == _CLOSE_OBJECT:
            return at + 1, first, last
        if buffer[at] != _COMMA:
            return UNUSUAL, -1, -1
        at = skip_space(buffer, at + 1, end)
        word = load_eight_bytes(buffer, at)
        if at < end and word & mask == key:
            return UNUSUAL, -1, -1
        is_other = word & other_mask == other
        at = skip_key(buffer, at, end)
        start = at
        if at >= 0:
            at = skip_value(buffer, at, end)
        if at < 0:
            return at, -1, -1
        if is_other:
            first, last = start, at


_FIVE, _NULL_WORD = ord("5"), ord("n")
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
    return byte == _COMMA or byte == _CLOSE_OBJECT or byte <= _SPACE


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
