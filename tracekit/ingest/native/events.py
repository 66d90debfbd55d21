"""The fast decoder: compiled code that converts the text of plain events to rows of numbers.

It handles what profilers nearly always write, checks it as JSON, and stops at an event that is anything else: an escape
or a non-ASCII letter in a name, a float where an id belongs, a begin or an end, the name of a thread, damage.
:mod:`tracekit.ingest.event_decoder` decodes that event. Events that aren't read are counted by phase and category.
"""

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.fields import INTS, NO_TEXT, NULL, PYTHON_CATEGORY, TEXTS, WORKER_FUNCTIONS, ArgumentKind
from tracekit.ingest.native.constants import (
    ARGUMENT_ROLE,
    BUFFERS_FULL,
    CATEGORY_ROLE,
    EVENT_KEYS,
    FREE_SLOT,
    KEY_ROLE,
    KIND_OFFSETS,
    LIST_CLOSED,
    MAX_ROWS,
    MAX_SKIPPED,
    NEEDS_MORE,
    NO_WORD,
    SLACK_BYTES,
    UNUSUAL,
)
from tracekit.ingest.native.jsontext import (
    is_ascii,
    jit,
    jit_inline,
    load_eight_bytes,
    load_up_to_eight_bytes,
    make_key_pattern,
    read_int,
    read_time,
    skip_key,
    skip_plain_string,
    skip_rest_of_object,
    skip_space,
    skip_value,
)

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


_NOT_READ = -1
_PH, _CAT, _NAME, _PID, _TID, _TS, _DUR, _ARGS = range(len(EVENT_KEYS))
_TS_FIELD, _DUR_FIELD, _PID_FIELD, _TID_FIELD = (INTS.index(name) for name in ("ts_ns", "dur_ns", "pid", "tid"))
_NAME_FIELD = TEXTS.index("name")
_N_TEXTS = len(TEXTS)
_TEXT, _RAW = KIND_OFFSETS[ArgumentKind.TEXT], KIND_OFFSETS[ArgumentKind.RAW]
_CATEGORY_SPAN, _PHASE_PLACE = 2 * _N_TEXTS, 2 * _N_TEXTS + 2
N_SPANS = 2 * _N_TEXTS + 3
"""Positions of an event's texts and of its category, and its phase."""
_COMPLETE, _INSTANT, _BEGIN, _END, _METADATA = (ord(phase) for phase in "XiBEM")
_THREAD_NAME = tuple(b'"thread_name"')
_PYTHON_LENGTH, _PYTHON_FIRST = len(PYTHON_CATEGORY), ord(PYTHON_CATEGORY[0])
_WORKER_TEXT = np.frombuffer("".join(f' {name}"' for name in WORKER_FUNCTIONS).encode(), np.uint8)
_WORKER_ENDS = np.cumsum([len(name) + 2 for name in WORKER_FUNCTIONS])
_WORKER_LETTERS = np.isin(np.arange(256), [ord(name[-1]) for name in WORKER_FUNCTIONS])
"""Whether each byte is the last letter of such a function."""
_NO_PHASE = 0
_NO_CATEGORY = -1
# If a key occurs twice, the last one counts. The careful decoder handles that.
(_PH_WORD, _PH_MASK), (_CAT_WORD, _CAT_MASK) = make_key_pattern("ph"), make_key_pattern("cat")
_QUOTE, _COMMA = ord('"'), ord(",")
_OPEN, _CLOSE, _CLOSE_LIST = (ord(c) for c in "{}]")
_NULL_WORD = ord("n")
_LAST_ASCII = 126


@jit
def scan_events(
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
    event_of: Ints,
    skipped: Ints,
    filled: int,
    events: int,
) -> tuple[int, int, int, int]:
    """Decode the events from ``at`` on into rows, as :func:`tracekit.ingest.native.scan.scan_events` describes."""
    while True:
        at = skip_space(buffer, at, end)
        while at < end and buffer[at] == _COMMA:
            at = skip_space(buffer, at + 1, end)
        if at >= end:
            return NEEDS_MORE, at, filled, events
        if buffer[at] == _CLOSE_LIST:
            return LIST_CLOSED, at + 1, filled, events
        if buffer[at] != _OPEN:
            return UNUSUAL, at, filled, events
        if filled == MAX_ROWS:
            return BUFFERS_FULL, at, filled, events
        stop, table = _read_event(buffer, at, end, word_slots, word_starts, word_arena, meaning, ints, filled, spans)
        if stop < 0:
            return stop, at, filled, events
        if count[0] + _N_TEXTS >= starts.size or starts[count[0]] + stop - at > arena.size - SLACK_BYTES:
            return BUFFERS_FULL, at, filled, events
        if table == _NOT_READ:
            if spans[_PHASE_PLACE] == _METADATA and _names_thread(buffer, at, stop):
                return UNUSUAL, at, filled, events
            phase, first, last = spans[_PHASE_PLACE], spans[_CATEGORY_SPAN], spans[_CATEGORY_SPAN + 1]
            is_python = last - first == _PYTHON_LENGTH and buffer[first] == _PYTHON_FIRST
            if is_python and _names_worker(buffer, at, stop):
                return UNUSUAL, at, filled, events
            category = _NO_CATEGORY
            if first >= 0:
                category = find_or_add_text(slots, starts, arena, count, buffer, first, last)
            if not _count_skipped(skipped, phase, category, events):
                return BUFFERS_FULL, at, filled, events
        else:
            for field in range(_N_TEXTS):
                first, last = spans[2 * field], spans[2 * field + 1]
                if first < 0:
                    texts[filled, field] = NO_TEXT
                    continue
                if not is_ascii(buffer, first, last):
                    return UNUSUAL, at, filled, events
                texts[filled, field] = find_or_add_text(slots, starts, arena, count, buffer, first, last)
            tables[filled] = table
            event_of[filled] = events
            filled += 1
        events += 1
        at = stop


@jit_inline
def _names_thread(buffer: Bytes, at: int, stop: int) -> bool:
    """Return whether a label may be the name of a thread: its text holds ``"thread_name"``."""
    length = len(_THREAD_NAME)
    for start in range(at, stop - length):
        matched = 0
        while matched < length and buffer[start + matched] == _THREAD_NAME[matched]:
            matched += 1
        if matched == length:
            return True
    return False


@jit_inline
def _names_worker(buffer: Bytes, at: int, stop: int) -> bool:
    """Return whether a Python call may run a batch: its text holds a string that ends with such a function."""
    for quote in range(at + _PYTHON_LENGTH, stop):
        if buffer[quote] != _QUOTE or not _WORKER_LETTERS[buffer[quote - 1]]:
            continue
        first = 0
        for end in _WORKER_ENDS:
            start = quote + 1 - (end - first)
            matched = 0
            while matched < end - first and start >= at and buffer[start + matched] == _WORKER_TEXT[first + matched]:
                matched += 1
            if matched == end - first:
                return True
            first = end
    return False


@jit_inline
def _count_skipped(skipped: Ints, phase: int, category: int, event: int) -> bool:
    """Count an event that isn't read; false if the table of them is full.

    A row of the table is phase, category, count and first event. Its last row holds the number of rows in use.
    """
    used = skipped[MAX_SKIPPED, 0]
    slot = (category * 31 + phase) & (MAX_SKIPPED - 1)
    while skipped[slot, 2] and (skipped[slot, 0] != phase or skipped[slot, 1] != category):
        slot = (slot + 1) & (MAX_SKIPPED - 1)
    if not skipped[slot, 2]:
        if 2 * used >= MAX_SKIPPED:
            return False
        skipped[MAX_SKIPPED, 0] = used + 1
        skipped[slot, 0], skipped[slot, 1], skipped[slot, 3] = phase, category, event
    skipped[slot, 2] += 1
    return True


@jit_inline
def _look_up_meaning(
    buffer: Bytes, start: int, stop: int, slots: Ints, starts: Ints, arena: Bytes, meaning: Ints, role: int
) -> int:
    """Look up the meaning of a word in a role; negative if it is not in the vocabulary."""
    number = slots[find_slot(slots, starts, arena, buffer, start, stop, hash_word(buffer, start, stop))]
    return meaning[number, role] if number >= 0 else NO_WORD


@jit
def _read_event(
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
    """Read an event: return where it ends, and its table if it is one that is read."""
    for field in range(ints.shape[1]):
        ints[row, field] = NULL
    for i in range(spans.size):
        spans[i] = -1
    spans[_PHASE_PLACE] = _NO_PHASE
    table, complete, instant, has_args = _NOT_READ, False, False, False
    at = skip_space(buffer, at + 1, end)
    if at < end and buffer[at] == _CLOSE:
        return at + 1, _NOT_READ
    while at < end:
        start = at + 1
        value = skip_key(buffer, at, end)
        if value < 0:
            return value, _NOT_READ
        key = _look_up_meaning(buffer, start, _find_key_end(buffer, value), slots, starts, arena, meaning, KEY_ROLE)
        at = value
        if key == _PH:
            at = _skip_ascii_string(buffer, at, end)
            if at >= 0 and not _note_phase(buffer, value, at, spans):
                return UNUSUAL, _NOT_READ
            instant = spans[_PHASE_PLACE] == _INSTANT
            complete = instant or spans[_PHASE_PLACE] == _COMPLETE
            if at >= 0 and not complete:
                at, first, last = skip_rest_of_object(buffer, at, end, _PH_WORD, _PH_MASK, _CAT_WORD, _CAT_MASK)
                if at >= 0 and first >= 0 and not _note_category(buffer, first, last, spans):
                    return UNUSUAL, _NOT_READ
                return at, _NOT_READ
        elif key == _CAT:
            at = _skip_ascii_string(buffer, at, end)
            if at < 0:
                return at, _NOT_READ
            spans[_CATEGORY_SPAN], spans[_CATEGORY_SPAN + 1] = value + 1, at - 1
            table = _look_up_meaning(buffer, value + 1, at - 1, slots, starts, arena, meaning, CATEGORY_ROLE)
            if table < 0:
                at, first, last = skip_rest_of_object(buffer, at, end, _CAT_WORD, _CAT_MASK, _PH_WORD, _PH_MASK)
                if at >= 0 and first >= 0 and not _note_phase(buffer, first, last, spans):
                    return UNUSUAL, _NOT_READ
                return at, _NOT_READ
        elif key < 0:
            at = skip_value(buffer, at, end)
        elif key == _NAME:
            at = _skip_ascii_string(buffer, at, end)
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
            at = _read_arguments(buffer, at, end, slots, starts, arena, meaning, ints, row, spans)
        if at < 0:
            return at, _NOT_READ
        at = skip_space(buffer, at, end)
        if at >= end:
            return NEEDS_MORE, _NOT_READ
        if buffer[at] == _CLOSE:
            if complete and table != _NOT_READ and spans[2 * _NAME_FIELD] < 0:
                return UNUSUAL, _NOT_READ
            if instant and ints[row, _DUR_FIELD] == NULL:
                ints[row, _DUR_FIELD] = 0
            return at + 1, table if complete else _NOT_READ
        if buffer[at] != _COMMA:
            return UNUSUAL, _NOT_READ
        at = skip_space(buffer, at + 1, end)
    return NEEDS_MORE, _NOT_READ


@jit_inline
def _note_phase(buffer: Bytes, first: int, last: int, spans: Ints) -> bool:
    """Note the phase, a letter in quotes; false if it is anything else, or the careful decoder's."""
    if last - first != 3 or buffer[first] != _QUOTE or buffer[first + 1] > _LAST_ASCII:
        return False
    spans[_PHASE_PLACE] = buffer[first + 1]
    return buffer[first + 1] != _BEGIN and buffer[first + 1] != _END


@jit_inline
def _note_category(buffer: Bytes, first: int, last: int, spans: Ints) -> bool:
    """Note where the category is; false if it is no plain text."""
    if _skip_ascii_string(buffer, first, last) != last:
        return False
    spans[_CATEGORY_SPAN], spans[_CATEGORY_SPAN + 1] = first + 1, last - 1
    return True


@jit
def _read_arguments(
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
    """Read the object of an event's arguments."""
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
        argument = _look_up_meaning(
            buffer, start, _find_key_end(buffer, value), slots, starts, arena, meaning, ARGUMENT_ROLE
        )
        at = value
        if argument < 0:
            at = skip_value(buffer, at, end)
        elif argument < _TEXT:
            at = read_int(buffer, at, end, ints, row, argument)
        else:
            field = argument - _TEXT if argument < _RAW else argument - _RAW
            null = buffer[at] == _NULL_WORD
            quoted = argument < _RAW and not null
            at = _skip_ascii_string(buffer, at, end) if quoted else skip_value(buffer, at, end)
            spans[2 * field] = -1 if null else value + quoted
            spans[2 * field + 1] = at - quoted
        if at < 0:
            return at
        at = skip_space(buffer, at, end)
        if at >= end:
            return NEEDS_MORE
        if buffer[at] == _CLOSE:
            return at + 1
        if buffer[at] != _COMMA:
            return UNUSUAL
        at = skip_space(buffer, at + 1, end)
    return NEEDS_MORE


@jit_inline
def _find_key_end(buffer: Bytes, value: int) -> int:
    """Find the closing quote of the key before a value."""
    at = value - 1
    while buffer[at] != _QUOTE:
        at -= 1
    return at


@jit_inline
def _skip_ascii_string(buffer: Bytes, at: int, end: int) -> int:
    return skip_plain_string(buffer, at, end) if buffer[at] == _QUOTE else UNUSUAL
