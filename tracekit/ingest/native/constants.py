"""Constants shared by the inner loops and their callers."""

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
