"""What the inner loops and their callers share: constants, words of an event, and the functions' parameters."""

from tracekit.compiled.units import BYTE_ARRAY, INT8_ARRAY, INT_ARRAY, INTEGER, Parameters
from tracekit.ingest.fields import ArgumentKind

NEEDS_MORE = -1
"""Status: the text ends before the requested item does."""

UNUSUAL = -2
"""Status: the text is not JSON, or JSON for the careful decoder."""

LIST_CLOSED = -3
"""Status: the list of events has ended."""

BUFFERS_FULL = -4
"""Status: no room is left for rows or texts."""

MAX_ROWS = 8192
"""Number of rows in the buffers."""

SLACK_BYTES = 8
"""Bytes of a buffer behind its text, of any content: text is read eight bytes at a time."""

FREE_SLOT = -1
"""A slot of a hash table without a text."""

MAX_SKIPPED = 1024
"""Slots of the table that counts skipped events; a power of two, at most half of them used."""


ENTRY_POINTS: Parameters = {
    "skip_value": (BYTE_ARRAY, INTEGER, INTEGER),
    "scan": (
        *(BYTE_ARRAY, INT_ARRAY),
        *(INT_ARRAY, INTEGER, INT_ARRAY, BYTE_ARRAY, INT_ARRAY),
        *(INT_ARRAY, INTEGER, INT_ARRAY, BYTE_ARRAY, INTEGER, INT_ARRAY),
        *(INT8_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY),
    ),
    "transposed": (INT_ARRAY, INTEGER, INT_ARRAY, INTEGER, INT_ARRAY, INTEGER, INT_ARRAY),
    "fill_slots": (INT_ARRAY, INTEGER, INT_ARRAY, BYTE_ARRAY, INTEGER, INTEGER),
}
"""Parameters of the functions in :mod:`entries`; an array is followed by its length where that is unknown."""


EVENT_KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]

KEY_ROLE, CATEGORY_ROLE, ARGUMENT_ROLE = range(3)
"""Roles of a word: the key of an event, a category's table, an argument's field."""

NO_WORD = -1
KIND_OFFSETS = {ArgumentKind.INT: 0, ArgumentKind.TEXT: 100, ArgumentKind.RAW: 200}
