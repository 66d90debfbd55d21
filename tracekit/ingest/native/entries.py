"""Entry points of the inner loops for Python: arrays are passed as addresses, and so are further results."""

from typing import Any

import numba

from tracekit.ingest.fields import INTS, TEXTS
from tracekit.ingest.native import events, jsontext
from tracekit.ingest.native.constants import MAX_ROWS, MAX_SKIPPED

carray: Any = numba.carray  # type: ignore[attr-defined]  # missing from numba's list of exports
_N_ROLES = 3


def skip_value(buffer: Any, at: int, end: int) -> int:
    """Return the position behind any value, or a negative status."""
    return jsontext.skip_value(carray(buffer, end), at, end)


def scan(
    buffer: Any,
    place: Any,
    word_slots: Any,
    n_word_slots: int,
    word_starts: Any,
    word_arena: Any,
    meaning: Any,
    slots: Any,
    n_slots: int,
    starts: Any,
    arena: Any,
    arena_size: int,
    count: Any,
    tables: Any,
    ints: Any,
    texts: Any,
    spans: Any,
    event_of: Any,
    skipped: Any,
) -> int:
    """Decode the events at ``place`` into rows.

    ``place`` holds start position, end of the text, rows filled and events passed so far, and is updated.

    Returns:
        Why it stopped.
    """
    status, place[0], place[2], place[3] = events.scan_events(
        carray(buffer, place[1]),
        place[0],
        place[1],
        carray(word_slots, n_word_slots),
        carray(word_starts, n_word_slots // 2 + 1),
        carray(word_arena, n_word_slots),
        carray(meaning, (n_word_slots, _N_ROLES)),
        carray(slots, n_slots),
        carray(starts, n_slots // 2 + 1),
        carray(arena, arena_size),
        carray(count, 1),
        carray(tables, MAX_ROWS),
        carray(ints, (MAX_ROWS, len(INTS))),
        carray(texts, (MAX_ROWS, len(TEXTS))),
        carray(spans, events.N_SPANS),
        carray(event_of, MAX_ROWS),
        carray(skipped, (MAX_SKIPPED + 1, 4)),
        place[2],
        place[3],
    )
    return status


def transposed(table: Any, width: int, rows: Any, n_rows: int, columns: Any, n_columns: int, result: Any) -> int:
    """Copy some rows of some columns of a table, column by column."""
    for i in range(n_rows):
        for j in range(n_columns):
            result[j * n_rows + i] = table[rows[i] * width + columns[j]]
    return 0


def fill_slots(slots: Any, n_slots: int, starts: Any, arena: Any, count: int, are_words: int) -> int:
    """Fill the slots of a hash table with its first texts; a fixed vocabulary is hashed by the words' first bytes."""
    return events.insert_texts(
        carray(slots, n_slots), carray(starts, count + 1), carray(arena, starts[count]), count, are_words
    )
