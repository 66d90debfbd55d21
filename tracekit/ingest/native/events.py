"""The fast decoder: compiled code that turns the text of plain events into rows of numbers.

It takes what profilers write nearly always, checks it as JSON, and stops at an event that is anything else: an escape
or a non-ASCII letter in a name, a float where an id belongs, damage. That event is for :mod:`kineto` to judge.
"""

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.fields import INTS, NO_TEXT, NULL, TEXTS, Kind
from tracekit.ingest.native.constants import CLOSED, FULL, MORE, ROWS, SLACK, UNUSUAL
from tracekit.ingest.native.dictionary import hash_word, number_of, slot_of
from tracekit.ingest.native.jsontext import (
    compiled,
    inlined,
    is_ascii,
    skip_key,
    skip_members,
    skip_plain_string,
    skip_space,
    skip_value,
    word_and_mask,
)
from tracekit.ingest.native.numbers import read_int, read_time
from tracekit.ingest.vocabulary import ARGUMENT, CATEGORY, KEY, KEYS, KINDS, NO_WORD

_NOT_READ = -1
_PH, _CAT, _NAME, _PID, _TID, _TS, _DUR, _ARGS = range(len(KEYS))
_TS_FIELD, _DUR_FIELD, _PID_FIELD, _TID_FIELD = (INTS.index(name) for name in ("ts_ns", "dur_ns", "pid", "tid"))
_NAME_FIELD = TEXTS.index("name")
_N_TEXTS = len(TEXTS)
_TEXT, _RAW = KINDS[Kind.TEXT], KINDS[Kind.RAW]
_COMPLETE, _INSTANT = ord("X"), ord("i")
# Of a key that comes twice the last one counts: for that the careful decoder is asked.
(_PH_WORD, _PH_MASK), (_CAT_WORD, _CAT_MASK) = word_and_mask("ph"), word_and_mask("cat")
_QUOTE, _COMMA = ord('"'), ord(",")
_OPEN, _CLOSE, _CLOSE_LIST = (ord(c) for c in "{}]")
_NULL_WORD = ord("n")


@compiled
def scan(
    buffer: Bytes,
    at: int,
    end: int,
    word_slots: Ints,
    word_starts: Ints,
    word_arena: Bytes,
    meaning: Ints,
    slots: Ints,
    starts: Ints,
    arena: Bytes,
    count: Ints,
    tables: npt.NDArray[np.int8],
    ints: Ints,
    texts: Ints,
    spans: Ints,
    filled: int,
) -> tuple[int, int, int, int]:
    """Rows for the events from ``at`` on, as :func:`tracekit.ingest.scan.scan` says."""
    events = 0
    while True:
        at = skip_space(buffer, at, end)
        while at < end and buffer[at] == _COMMA:
            at = skip_space(buffer, at + 1, end)
        if at >= end:
            return MORE, at, filled, events
        if buffer[at] == _CLOSE_LIST:
            return CLOSED, at + 1, filled, events
        if buffer[at] != _OPEN:
            return UNUSUAL, at, filled, events
        if filled == ROWS:
            return FULL, at, filled, events
        stop, table = _event(buffer, at, end, word_slots, word_starts, word_arena, meaning, ints, filled, spans)
        if stop < 0:
            return stop, at, filled, events
        if table != _NOT_READ:
            if count[0] + _N_TEXTS >= starts.size or starts[count[0]] + stop - at > arena.size - SLACK:
                return FULL, at, filled, events
            for field in range(_N_TEXTS):
                first, last = spans[2 * field], spans[2 * field + 1]
                if first < 0:
                    texts[filled, field] = NO_TEXT
                    continue
                if not is_ascii(buffer, first, last):
                    return UNUSUAL, at, filled, events
                texts[filled, field] = number_of(slots, starts, arena, count, buffer, first, last)
            tables[filled] = table
            filled += 1
        events += 1
        at = stop


@inlined
def _meaning(
    buffer: Bytes, start: int, stop: int, slots: Ints, starts: Ints, arena: Bytes, meaning: Ints, role: int
) -> int:
    """What a word stands for in a role; negative if it isn't one of the vocabulary."""
    number = slots[slot_of(slots, starts, arena, buffer, start, stop, hash_word(buffer, start, stop))]
    return meaning[number, role] if number >= 0 else NO_WORD


@compiled
def _event(
    buffer: Bytes,
    at: int,
    end: int,
    slots: Ints,
    starts: Ints,
    arena: Bytes,
    meaning: Ints,
    ints: Ints,
    row: int,
    spans: Ints,
) -> tuple[int, int]:
    """One event: where it ends, and its table if it is one that is read."""
    for field in range(ints.shape[1]):
        ints[row, field] = NULL
    for i in range(spans.size):
        spans[i] = -1
    table, complete, instant, has_args = _NOT_READ, False, False, False
    at = skip_space(buffer, at + 1, end)
    if at < end and buffer[at] == _CLOSE:
        return at + 1, _NOT_READ
    while at < end:
        start = at + 1
        value = skip_key(buffer, at, end)
        if value < 0:
            return value, _NOT_READ
        key = _meaning(buffer, start, _key_end(buffer, value), slots, starts, arena, meaning, KEY)
        at = value
        if key == _PH:
            instant = at + 1 < end and buffer[at + 1] == _INSTANT
            known = at + 2 < end and (buffer[at + 1] == _COMPLETE or instant)
            complete = known and buffer[at + 2] == _QUOTE
            at = _string(buffer, at, end)
            if at >= 0 and not complete:
                return skip_members(buffer, at, end, _PH_WORD, _PH_MASK), _NOT_READ
        elif key == _CAT:
            at = _string(buffer, at, end)
            if at < 0:
                return at, _NOT_READ
            table = _meaning(buffer, value + 1, at - 1, slots, starts, arena, meaning, CATEGORY)
            if table < 0:
                return skip_members(buffer, at, end, _CAT_WORD, _CAT_MASK), _NOT_READ
        elif key < 0:
            at = skip_value(buffer, at, end)
        elif key == _NAME:
            at = _string(buffer, at, end)
            spans[2 * _NAME_FIELD], spans[2 * _NAME_FIELD + 1] = value + 1, at - 1
        elif key == _PID:
            at = read_int(buffer, at, end, ints, row, _PID_FIELD)
        elif key == _TID:
            at = read_int(buffer, at, end, ints, row, _TID_FIELD)
        elif key == _TS:
            at = read_time(buffer, at, end, ints, row, _TS_FIELD)
        elif key == _DUR:
            at = read_time(buffer, at, end, ints, row, _DUR_FIELD)
        elif has_args:
            return UNUSUAL, _NOT_READ
        else:
            has_args = True
            at = _arguments(buffer, at, end, slots, starts, arena, meaning, ints, row, spans)
        if at < 0:
            return at, _NOT_READ
        at = skip_space(buffer, at, end)
        if at >= end:
            return MORE, _NOT_READ
        if buffer[at] == _CLOSE:
            if complete and table != _NOT_READ and spans[2 * _NAME_FIELD] < 0:
                return UNUSUAL, _NOT_READ
            if instant and ints[row, _DUR_FIELD] == NULL:
                ints[row, _DUR_FIELD] = 0
            return at + 1, table if complete else _NOT_READ
        if buffer[at] != _COMMA:
            return UNUSUAL, _NOT_READ
        at = skip_space(buffer, at + 1, end)
    return MORE, _NOT_READ


@compiled
def _arguments(
    buffer: Bytes,
    at: int,
    end: int,
    slots: Ints,
    starts: Ints,
    arena: Bytes,
    meaning: Ints,
    ints: Ints,
    row: int,
    spans: Ints,
) -> int:
    """The object of an event's arguments."""
    if buffer[at] != _OPEN:
        return UNUSUAL
    at = skip_space(buffer, at + 1, end)
    if at < end and buffer[at] == _CLOSE:
        return at + 1
    while at < end:
        start = at + 1
        value = skip_key(buffer, at, end)
        if value < 0:
            return value
        argument = _meaning(buffer, start, _key_end(buffer, value), slots, starts, arena, meaning, ARGUMENT)
        at = value
        if argument < 0:
            at = skip_value(buffer, at, end)
        elif argument < _TEXT:
            at = read_int(buffer, at, end, ints, row, argument)
        else:
            field = argument - _TEXT if argument < _RAW else argument - _RAW
            null = buffer[at] == _NULL_WORD
            quoted = argument < _RAW and not null
            at = _string(buffer, at, end) if quoted else skip_value(buffer, at, end)
            spans[2 * field] = -1 if null else value + quoted
            spans[2 * field + 1] = at - quoted
        if at < 0:
            return at
        at = skip_space(buffer, at, end)
        if at >= end:
            return MORE
        if buffer[at] == _CLOSE:
            return at + 1
        if buffer[at] != _COMMA:
            return UNUSUAL
        at = skip_space(buffer, at + 1, end)
    return MORE


@inlined
def _key_end(buffer: Bytes, value: int) -> int:
    """The closing quote of the key in front of a value."""
    at = value - 1
    while buffer[at] != _QUOTE:
        at -= 1
    return at


@inlined
def _string(buffer: Bytes, at: int, end: int) -> int:
    return skip_plain_string(buffer, at, end) if buffer[at] == _QUOTE else UNUSUAL
