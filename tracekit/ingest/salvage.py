"""Damaged events: where the next one begins, and what can be put right."""

import re

from tracekit.ingest import kineto
from tracekit.ingest.fields import ACTIVITY_KINDS, CATEGORIES

# One event is a few hundred bytes; with shapes, ranks and stacks some thousand.
LONGEST_EVENT = 16 << 20
USUAL_BYTES = 500

# Events begin with their phase or have it among their first keys, which tells them from objects inside of events.
_EVENT_START = re.compile(rb'\{\s*(?:"[^"\\{}]{1,40}"\s*:\s*[^{}]{1,300}?,\s*)?"ph"\s*:')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([a-zA-Z0-9_]{1,40})"')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_LONE_BACKSLASH = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_PAIR = re.compile(rb"\\\\")
_NOT_FINITE = re.compile(rb"([:\[,]\s*)[-+]?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_LAST_COMMA = re.compile(rb",(\s*[}\]])")
_SPACES = re.compile(rb" {2,}")
# Neither where a string can begin nor where one can end.
_INNER_QUOTE = re.compile(rb'(?<![:,{\[] )(?<![:,{\[\\])"(?! ?[:,}\]])')


def activities(text: bytes) -> int:
    """How many kernels, copies and sets a text that can't be read may hold: by its categories, else by its length."""
    named = _CATEGORY.findall(text)
    if named:
        return sum(CATEGORIES.get(name.decode()) in ACTIVITY_KINDS for name in named)
    return 1 + len(text) // USUAL_BYTES


def next_event(text: bytes) -> int:
    """Where the next event begins behind the start of ``text``; -1 if none does."""
    found = _EVENT_START.search(text, 1)
    return found.start() if found else -1


def repair(text: bytes) -> kineto.Event | None:
    """The event that a damaged text stands for, or ``None`` if that can't be told.

    Put right are what profilers and editors are known to get wrong: control characters, lone backslashes (Windows
    paths), NaN and infinity, a comma too many, broken UTF-8, quotes in names.
    """
    text = text.decode("utf-8", errors="replace").encode()
    text = _CONTROL.sub(b" ", text)
    text = _ESCAPE_PAIR.sub(rb"\\u005c", text)
    text = _LONE_BACKSLASH.sub(rb"\\\\", text)
    text = _NOT_FINITE.sub(rb"\1null", text)
    text = _LAST_COMMA.sub(rb"\1", text)
    return _event(text) or _event(_INNER_QUOTE.sub(rb'\\"', _SPACES.sub(b" ", text)))


def _event(text: bytes) -> kineto.Event | None:
    try:
        return kineto.event(text)
    except kineto.BAD_JSON:
        return None
