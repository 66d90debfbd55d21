"""The words that the scanner knows: keys of an event, categories and arguments, as described by :mod:`fields`."""

from tracekit.ingest.fields import ArgumentKind

EVENT_KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]

KEY_ROLE, CATEGORY_ROLE, ARGUMENT_ROLE = range(3)
"""Roles of a word: the key of an event, a category's table, an argument's field."""

NO_WORD = -1
KIND_OFFSETS = {ArgumentKind.INT: 0, ArgumentKind.TEXT: 100, ArgumentKind.RAW: 200}
