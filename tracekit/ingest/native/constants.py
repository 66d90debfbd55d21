"""What the inner loops and those who call them agree on."""

MORE = -1
"""The text ends before what was asked for does."""

UNUSUAL = -2
"""The text is not JSON, or JSON that a careful decoder has to judge."""

CLOSED = -3
"""The list of events has ended."""

FULL = -4
"""There is no more room for rows or for texts."""

ROWS = 8192
"""Rows that there is room for."""

SLACK = 8
"""Bytes that a buffer has behind its text, whatever they hold: it is looked at eight bytes at a time."""

FREE = -1
"""A slot of a dictionary that holds no text."""
