"""The careful decoder: a JSON library judges each event, and every spelling of a value is understood.

It takes files that are too small to need the fast one (:mod:`scan`), and the events that one leaves.
"""

import gc
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct, defstruct, field

from tracekit.arrays import Ints
from tracekit.ingest.columns import Columns
from tracekit.ingest.fields import ARGUMENTS, INTS, NO_TEXT, NULL, STACK_FIELDS, TABLES, Kind, categories

PHASES = ("X", "i")
"""Of events that are read: with a duration, and without."""

Scalar = int | float | str | bool | None

LONGEST_INT = len(str(-(2**63)))

BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding text that is no JSON, or not of the form asked for, can raise."""

Args: Any = defstruct(
    "Args",
    [
        (f"argument_{i}", Raw, field(default=Raw(), name=key))
        if kind is Kind.RAW
        else (f"argument_{i}", Scalar, field(default=None, name=key))
        for i, (key, (_, kind)) in enumerate(ARGUMENTS.items())
    ],
    gc=False,
)
_SPELLINGS: dict[str, list[str]] = defaultdict(list)
for _i, (_field, _) in enumerate(ARGUMENTS.values()):
    _SPELLINGS[_field].append(f"argument_{_i}")
_KIND = dict(ARGUMENTS.values())
_NO_ARGS = Args()


class Event(Struct, gc=False):
    """One entry of ``traceEvents``. Times are microseconds."""

    ph: str = ""
    cat: str | None = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: Args | None = None


_EVENT = msgspec.json.Decoder(Event)
_EVENTS = msgspec.json.Decoder(list[Event])
_KEYS = msgspec.json.Decoder(dict[str, Raw])


class Words:
    """Texts of carefully decoded events; numbered downwards from -2, beside the scanner's from 0 up."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def number(self, text: bytes) -> int:
        """The number of a text."""
        return -2 - self._numbers.setdefault(text, len(self._numbers))

    def texts(self) -> list[bytes]:
        """All texts; the last has the number -2, so that negative numbers index a list that they end."""
        return list(self._numbers)[::-1]


def event(text: bytes) -> Event:
    """One event.

    Raises:
        msgspec.DecodeError: It is no JSON, or no event.
    """
    return _EVENT.decode(text)


def document(text: bytes) -> tuple[dict[str, bytes], list[Event]]:
    """A whole file: its top-level keys but for the events, as JSON, and the events.

    Raises:
        msgspec.DecodeError: It is no valid JSON, or not of this form.
    """
    with _no_garbage_collection():
        if text.lstrip()[:1] == b"[":
            return {}, _EVENTS.decode(text)
        keys = _KEYS.decode(text)
        events = _EVENTS.decode(keys.pop("traceEvents")) if "traceEvents" in keys else None
    if events is None:
        raise msgspec.ValidationError("Object missing required field `traceEvents`")
    return {key: bytes(value) for key, value in keys.items()}, events


def add(events: Iterable[Event], columns: Columns, words: Words, stacks: bool = False) -> None:
    """Events to rows; those of other kinds than tracekit reads are skipped, so is all of Python without ``stacks``."""
    table_of = categories(stacks)
    tables: dict[str, list[Event]] = defaultdict(list)
    for one in events:
        if one.ph in PHASES and one.cat in table_of:
            tables[table_of[one.cat]].append(one)
    for table, rows in tables.items():
        unread = () if stacks else STACK_FIELDS
        columns.add(
            table,
            {
                name: np.full(len(rows), NO_TEXT, np.int64) if name in unread else _column(name, rows, words)
                for name in TABLES[table]
            },
        )


def _column(name: str, events: Sequence[Event], words: Words) -> Ints:
    if name in ("ts_ns", "dur_ns"):
        return np.array([_ns(one.ts) if name == "ts_ns" else _duration(one) for one in events], np.int64)
    if name == "name":
        return np.array([words.number(str(one.name).encode()) for one in events], np.int64)
    if name in ("pid", "tid"):
        return np.array([_int(getattr(one, name)) for one in events], np.int64)
    values = _arguments(name, events)
    if name in INTS:
        return np.array([_int(value) for value in values], np.int64)
    encode = bytes if _KIND[name] is Kind.RAW else lambda value: str(value).encode()
    return np.array([NO_TEXT if _is_missing(v) else words.number(encode(v)) for v in values], np.int64)


def _arguments(name: str, events: Sequence[Event]) -> list[Any]:
    """The values of a field; its first spelling counts."""
    first, *others = _SPELLINGS[name]
    args: list[Any] = [one.args or _NO_ARGS for one in events]
    values = [getattr(one, first) for one in args]
    for spelling in others:
        values = [getattr(one, spelling) if _is_missing(v) else v for one, v in zip(args, values, strict=True)]
    return values


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, Raw) and bytes(value) in (b"", b"null"))


def _ns(microseconds: Decimal | None) -> int:
    """To whole nanoseconds; ``NULL`` where there is no time, or none that an integer holds."""
    if microseconds is None or not microseconds.is_finite() or not -(2**53) < microseconds < 2**53:
        return NULL
    return round(microseconds * 1000)


def _duration(one: Event) -> int:
    """How long an event lasts; an instant, which has no duration, no time."""
    return 0 if one.ph == "i" and one.dur is None else _ns(one.dur)


def _int(value: Scalar) -> int:
    """An id or count in any of its spellings: 7, 7.0, "7", "stream 7"; ``NULL`` for anything else."""
    if isinstance(value, str):
        digits = re.search(r"-?[0-9]+$", value)
        value = int(digits.group()) if digits and len(digits.group()) <= LONGEST_INT else None
    if value is None or not -(2**63) <= value < 2**63:
        return NULL
    return int(value)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Decoding allocates millions of objects and frees none: collecting meanwhile nearly doubles the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
