"""Steps over JSON text, compiled: each takes a position in a buffer and gives the position behind what it read.

A negative result says why it could not: the buffer ends first, or the text is unusual (not JSON, or JSON that a
careful decoder has to judge). Text is looked at eight bytes at a time: behind the end of it the buffer has ``SLACK``
more, whatever they hold.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tracekit.arrays import Bytes
from tracekit.ingest.native.constants import MORE, UNUSUAL

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _PLUS, _POINT = (ord(c) for c in '"\\,:-+.')
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = (ord(c) for c in "{}[]")
_ZERO, _NINE, _SPACE = (ord(c) for c in "09 ")
_ONES, _NO_BITS, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _SPACES, _ZEROS = (_ONES * np.uint64(byte) for byte in (_QUOTE, _BACKSLASH, _SPACE, _ZERO))
# What takes a byte over 127 that is more than a digit's value.
_OVER_NINE = _ONES * np.uint64(127 - 9)
_SMALL_E, _LARGE_E = ord("e"), ord("E")
_TRUE, _FALSE, _NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))
_DEEPEST = 60

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function."""
    dispatcher: Any = njit(function)
    return cast("Function", dispatcher)


def inlined(function: Function) -> Function:
    """Compile a function into those that call it."""
    dispatcher: Any = njit(forceinline=True)(function)
    return cast("Function", dispatcher)


def _load(typing_context: Any, buffer: Any, at: Any) -> Any:
    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(buffer, types.int64), load


eight_bytes: Any = intrinsic(_load)
"""The eight bytes of a buffer from some place on, as one number, the first in its lowest bits."""


def _cttz(typing_context: Any, word: Any) -> Any:
    def count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), count


_zeros_below: Any = intrinsic(_cttz)


@inlined
def upto_eight_bytes(buffer: Bytes, at: int, size: int) -> np.uint64:
    """The next one to eight bytes as one number, the last in its highest bits."""
    return eight_bytes(buffer, at) << np.uint64(64 - 8 * size)


@inlined
def _behind_plain(buffer: Bytes, at: int, end: int, high: np.uint64, more: np.uint64) -> int:
    """The first byte from ``at`` on that ends a string or is no plain part of one; ``end`` or later if there is none.

    Such bytes get their high bit: quotes, backslashes, control characters, and with ``high`` and ``more`` set to
    all high bits and ones, those above ``~`` too. Borrows and carries only reach bytes behind one that is found.
    """
    while at < end:
        word = eight_bytes(buffer, at)
        quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
        found = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - _SPACES) & ~word)
        found = (found | ((word | (word + more)) & high)) & _HIGH_BITS
        if found:
            return at + (_zeros_below(found) >> 3)
        at += 8
    return at


@inlined
def skip_space(buffer: Bytes, at: int, end: int) -> int:
    """Behind white space, and control characters taken for it; ``end`` if there is nothing else."""
    while at < end and buffer[at] <= _SPACE:
        at += 1
    return at


@inlined
def skip_string(buffer: Bytes, at: int, end: int) -> int:
    """Behind a string whose opening quote is at ``at``."""
    at = _behind_plain(buffer, at + 1, end, _NO_BITS, _NO_BITS)
    while at < end:
        if buffer[at] == _QUOTE:
            return at + 1
        if buffer[at] != _BACKSLASH:
            return UNUSUAL
        at = _behind_plain(buffer, at + 2, end, _NO_BITS, _NO_BITS)
    return MORE


@inlined
def skip_plain_string(buffer: Bytes, at: int, end: int) -> int:
    """Behind a string of ASCII without escapes."""
    at = _behind_plain(buffer, at + 1, end, _HIGH_BITS, _ONES)
    if at >= end:
        return MORE
    return at + 1 if buffer[at] == _QUOTE else UNUSUAL


@inlined
def is_ascii(buffer: Bytes, start: int, stop: int) -> bool:
    """Whether a part of the buffer holds no byte above 127."""
    while start + 8 < stop:
        if eight_bytes(buffer, start) & _HIGH_BITS:
            return False
        start += 8
    return start == stop or not upto_eight_bytes(buffer, start, stop - start) & _HIGH_BITS


@inlined
def skip_digits(buffer: Bytes, at: int, end: int) -> int:
    """Behind the digits at ``at``, if any."""
    while at < end:
        word = eight_bytes(buffer, at) ^ _ZEROS
        others = (word | (word + _OVER_NINE)) & _HIGH_BITS
        if others:
            return min(at + (_zeros_below(others) >> 3), end)
        at += 8
    return end


@inlined
def skip_number(buffer: Bytes, at: int, end: int) -> int:
    """Behind a number, as RFC 8259 spells it."""
    if buffer[at] == _MINUS:
        at += 1
    start = at
    at = skip_digits(buffer, at, end)
    if at == start or (buffer[start] == _ZERO and at > start + 1):
        return MORE if at == end else UNUSUAL
    if at < end and buffer[at] == _POINT:
        start = at + 1
        at = skip_digits(buffer, start, end)
        if at == start:
            return MORE if at == end else UNUSUAL
    if at < end and (buffer[at] == _SMALL_E or buffer[at] == _LARGE_E):
        at += 1
        if at < end and (buffer[at] == _MINUS or buffer[at] == _PLUS):
            at += 1
        start = at
        at = skip_digits(buffer, at, end)
        if at == start:
            return MORE if at == end else UNUSUAL
    return MORE if at == end else at


@inlined
def skip_word(buffer: Bytes, at: int, end: int, word: Bytes) -> int:
    """Behind a literal."""
    if at + word.size > end:
        return MORE
    for i in range(word.size):
        if buffer[at + i] != word[i]:
            return UNUSUAL
    return at + word.size


@inlined
def skip_scalar(buffer: Bytes, at: int, end: int) -> int:
    """Behind a string, number or literal."""
    byte = buffer[at]
    if byte == _QUOTE:
        return skip_string(buffer, at, end)
    if byte == _MINUS or _ZERO <= byte <= _NINE:
        return skip_number(buffer, at, end)
    if byte == _NULL[0]:
        return skip_word(buffer, at, end, _NULL)
    if byte == _TRUE[0]:
        return skip_word(buffer, at, end, _TRUE)
    if byte == _FALSE[0]:
        return skip_word(buffer, at, end, _FALSE)
    return UNUSUAL


@inlined
def skip_key(buffer: Bytes, at: int, end: int) -> int:
    """Behind a key and its colon, to its value."""
    at = skip_space(buffer, at, end)
    if at >= end:
        return MORE
    if buffer[at] != _QUOTE:
        return UNUSUAL
    at = skip_string(buffer, at, end)
    if at < 0:
        return at
    at = skip_space(buffer, at, end)
    if at >= end:
        return MORE
    if buffer[at] != _COLON:
        return UNUSUAL
    at = skip_space(buffer, at + 1, end)
    return MORE if at >= end else at


@compiled
def skip_value(buffer: Bytes, at: int, end: int) -> int:
    """Behind any value, checked; nested no deeper than 60."""
    objects = np.int64(0)
    depth = 0
    while True:
        at = skip_space(buffer, at, end)
        if at >= end:
            return MORE
        byte = buffer[at]
        if byte == _OPEN_OBJECT or byte == _OPEN_LIST:
            if depth == _DEEPEST:
                return UNUSUAL
            is_object = byte == _OPEN_OBJECT
            at = skip_space(buffer, at + 1, end)
            if at >= end:
                return MORE
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
                return MORE
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


def word_and_mask(key: str) -> tuple[np.uint64, np.uint64]:
    """A quoted key of up to six letters as its first eight bytes, and which of these count."""
    quoted = f'"{key}"'.encode()
    return np.uint64(int.from_bytes(quoted, "little")), np.uint64(2 ** (8 * len(quoted)) - 1)


@compiled
def skip_members(buffer: Bytes, at: int, end: int, key: np.uint64, mask: np.uint64) -> int:
    """Behind the object that a position behind one of its values lies in; unusual if a key comes that came before."""
    while True:
        at = skip_space(buffer, at, end)
        if at >= end:
            return MORE
        if buffer[at] == _CLOSE_OBJECT:
            return at + 1
        if buffer[at] != _COMMA:
            return UNUSUAL
        at = skip_space(buffer, at + 1, end)
        if at < end and eight_bytes(buffer, at) & mask == key:
            return UNUSUAL
        at = skip_key(buffer, at, end)
        if at >= 0:
            at = skip_value(buffer, at, end)
        if at < 0:
            return at
