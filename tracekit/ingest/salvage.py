"""Repair damaged events, and find where the next event begins."""

import re

from tracekit.ingest import event_decoder
from tracekit.ingest.fields import ACTIVITY_KINDS, CATEGORIES, select_categories

TYPICAL_EVENT_BYTES = 500

# Events have their phase among their first keys, unlike objects within events.
_EVENT_START = re.compile(rb'\{\s*(?:"[^"\\{}]{1,40}"\s*:\s*[^{}]{1,300}?,\s*)?"ph"\s*:')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([a-zA-Z0-9_]{1,40})"')
_PHASE = re.compile(rb'"ph"\s*:\s*"([a-zA-Z])"')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_LONE_BACKSLASH = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_PAIR = re.compile(rb"\\\\")
_NOT_FINITE = re.compile(rb"([:\[,]\s*)[-+]?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_LAST_COMMA = re.compile(rb",(\s*[}\]])")
_COMMA_NUMBER = re.compile(rb'"(?:ts|dur)"\s*:\s*"?(-?\d{1,18},\d{1,9})"?(?=\s*[,}])')
_SPACES = re.compile(rb" {2,}")
# Kineto writes an event's name and process on one line (libkineto, output_json.cpp), and escapes nothing in the name.
_NAME = re.compile(rb'("cat": ?"\w{1,40}", ?"name": ?")([^\n]*?)(", ?"pid": ?[^\n]{1,80}?, ?"tid": ?)')
_REST_OF_NAME = re.compile(rb'[^\n{]*?", ?"pid": ?[^\n{]{1,80}?, ?"tid": ?')
_UNESCAPED_QUOTE = re.compile(rb'(?<!\\)((?:\\\\)*)"')
# A quote where a string can neither begin nor end.
_INNER_QUOTE = re.compile(rb'(?<![:,{\[] )(?<![:,{\[\\])"(?! ?[:,}\]])')


def is_read(text: bytes, stacks: bool) -> bool:
    """Return whether an unreadable text may hold events that are read, by its categories."""
    named = _CATEGORY.findall(text)
    return not named or any(name.decode() in select_categories(stacks) for name in named)


def find_category(text: bytes) -> str | None:
    """Find the category of the event that an unreadable text begins with."""
    found = _CATEGORY.search(text)
    return found.group(1).decode() if found else None


def find_phase(text: bytes) -> str:
    """Find the phase of the event that an unreadable text begins with; empty if there is none."""
    found = _PHASE.search(text)
    return found.group(1).decode() if found else ""


def estimate_activities(text: bytes) -> int:
    """Estimate how many kernels, copies and memsets an unreadable text holds: by its categories, else by its length."""
    named = _CATEGORY.findall(text)
    if named:
        return sum(CATEGORIES.get(name.decode()) in ACTIVITY_KINDS for name in named)
    return 1 + len(text) // TYPICAL_EVENT_BYTES


def find_comma_number(text: bytes) -> str | None:
    """Find a time with a decimal comma, such as ``1000,5``; ``None`` if there is none."""
    found = _COMMA_NUMBER.search(text)
    return found.group(1).decode() if found else None


def find_next_event(text: bytes) -> int:
    """Return where the next event begins after the start of ``text``; -1 without one."""
    found = _EVENT_START.search(text, 1)
    return found.start() if found else -1


def is_rest_of_name(text: bytes) -> bool:
    """Return whether a text goes on with the end of an event's name and its process, as Kineto writes them."""
    return _REST_OF_NAME.match(text) is not None


def repair_names(text: bytes) -> bytes:
    """Escape what Kineto leaves unescaped in names: quotes, control characters and lone backslashes.

    The layout of Kineto's events says where a name ends, whatever it holds.
    """
    return _NAME.sub(_repair_name, text)


def _repair_name(found: re.Match[bytes]) -> bytes:
    before, name, after = found.groups()
    whole = _LONE_BACKSLASH.sub(rb"\\\\", _ESCAPE_PAIR.sub(rb"\\u005c", _CONTROL.sub(b" ", name)))
    return before + _UNESCAPED_QUOTE.sub(rb'\1\\"', whole) + after


def repair_event(text: bytes) -> event_decoder.KinetoEvent | None:
    """Repair the event in a damaged text; ``None`` if that fails.

    Repaired are known errors of profilers and editors: control characters, lone backslashes (Windows paths), NaN and
    infinity, trailing commas, broken UTF-8, quotes in names.
    """
    text = repair_names(text.decode("utf-8", errors="replace").encode())
    text = _CONTROL.sub(b" ", text)
    text = _ESCAPE_PAIR.sub(rb"\\u005c", text)
    text = _LONE_BACKSLASH.sub(rb"\\\\", text)
    text = _NOT_FINITE.sub(rb"\1null", text)
    text = _LAST_COMMA.sub(rb"\1", text)
    return _try_decode(text) or _try_decode(_INNER_QUOTE.sub(rb'\\"', _SPACES.sub(b" ", text)))


def _try_decode(text: bytes) -> event_decoder.KinetoEvent | None:
    try:
        return event_decoder.decode_event(text)
    except event_decoder.JSON_ERRORS:
        return None
