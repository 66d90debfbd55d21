"""The careful decoder: a JSON library decodes each event, and all known spellings of a value are accepted.

It decodes files that are too small for the fast decoder (:mod:`scan`), and events that the fast decoder leaves.
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
from tracekit.ingest.columns import DecodedColumns
from tracekit.ingest.fields import ARGUMENTS, INTS, NO_TEXT, NULL, STACK_FIELDS, TABLES, ArgumentKind, select_categories

READ_PHASES = ("X", "i")
"""Phases of events that are read: with a duration, and instant."""

JsonScalar = int | float | str | bool | None

MAX_INT_DIGITS = len(str(-(2**63)))

JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding text that is not JSON, or not of the requested form."""

EventArgs: Any = defstruct(
    "Args",
    [
        (f"argument_{i}", Raw, field(default=Raw(), name=key))
        if kind is ArgumentKind.RAW
        else (f"argument_{i}", JsonScalar, field(default=None, name=key))
        for i, (key, (_, kind)) in enumerate(ARGUMENTS.items())
    ],
    gc=False,
)
_ARGUMENT_SPELLINGS: dict[str, list[str]] = defaultdict(list)
for _i, (_field, _) in enumerate(ARGUMENTS.values()):
    _ARGUMENT_SPELLINGS[_field].append(f"argument_{_i}")
_KIND_OF_FIELD = dict(ARGUMENTS.values())
_NO_ARGS = EventArgs()


class KinetoEvent(Struct, gc=False):
    """An entry of ``traceEvents``. Times are microseconds."""

    ph: str = ""
    cat: str | None = None
    name: JsonScalar = None
    pid: JsonScalar = None
    tid: JsonScalar = None
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: EventArgs | None = None


_EVENT_DECODER = msgspec.json.Decoder(KinetoEvent)
_EVENT_LIST_DECODER = msgspec.json.Decoder(list[KinetoEvent])
_KEYS_DECODER = msgspec.json.Decoder(dict[str, Raw])


class NumberedTexts:
    """Texts of carefully decoded events; numbered downwards from -2, while the scanner's texts count up from 0."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def assign_number(self, text: bytes) -> int:
        """Return the number of a text, a new one if needed."""
        return -2 - self._numbers.setdefault(text, len(self._numbers))

    def to_list(self) -> list[bytes]:
        """List all texts; the last has the number -2, so that negative numbers index a list that they end."""
        return list(self._numbers)[::-1]


def decode_event(text: bytes) -> KinetoEvent:
    """Decode an event.

    Raises:
        msgspec.DecodeError: It is not JSON, or not an event.
    """
    return _EVENT_DECODER.decode(text)


def decode_document(text: bytes) -> tuple[dict[str, bytes], list[KinetoEvent]]:
    """Decode a whole file: its top-level keys without the events, as JSON, and the events.

    Raises:
        msgspec.DecodeError: It is invalid JSON, or not of this form.
    """
    with _disable_garbage_collection():
        if text.lstrip()[:1] == b"[":
            return {}, _EVENT_LIST_DECODER.decode(text)
        keys = _KEYS_DECODER.decode(text)
        events = _EVENT_LIST_DECODER.decode(keys.pop("traceEvents")) if "traceEvents" in keys else None
    if events is None:
        raise msgspec.ValidationError("Object missing required field `traceEvents`")
    return {key: bytes(value) for key, value in keys.items()}, events


def add_events(
    events: Iterable[KinetoEvent], columns: DecodedColumns, words: NumberedTexts, stacks: bool = False
) -> None:
    """Convert events to rows. Unknown categories are skipped; without ``stacks`` Python calls too."""
    table_of = select_categories(stacks)
    tables: dict[str, list[KinetoEvent]] = defaultdict(list)
    for one in events:
        if one.ph in READ_PHASES and one.cat in table_of:
            tables[table_of[one.cat]].append(one)
        elif one.ph == "X" and one.cat:
            columns.unread[one.cat] += 1
    for table, rows in tables.items():
        unread = () if stacks else STACK_FIELDS
        columns.add(
            table,
            {
                name: np.full(len(rows), NO_TEXT, np.int64) if name in unread else _build_column(name, rows, words)
                for name in TABLES[table]
            },
        )


def _build_column(name: str, events: Sequence[KinetoEvent], words: NumberedTexts) -> Ints:
    if name in ("ts_ns", "dur_ns"):
        return np.array([_to_ns(one.ts) if name == "ts_ns" else _to_duration_ns(one) for one in events], np.int64)
    if name == "name":
        return np.array([words.assign_number(str(one.name).encode()) for one in events], np.int64)
    if name in ("pid", "tid"):
        return np.array([_to_int(getattr(one, name)) for one in events], np.int64)
    values = _read_arguments(name, events)
    if name in INTS:
        return np.array([_to_int(value) for value in values], np.int64)
    encode = bytes if _KIND_OF_FIELD[name] is ArgumentKind.RAW else lambda value: str(value).encode()
    return np.array([NO_TEXT if _is_missing(v) else words.assign_number(encode(v)) for v in values], np.int64)


def _read_arguments(name: str, events: Sequence[KinetoEvent]) -> list[Any]:
    """Read the values of a field; the first spelling takes precedence."""
    first, *others = _ARGUMENT_SPELLINGS[name]
    args: list[Any] = [one.args or _NO_ARGS for one in events]
    values = [getattr(one, first) for one in args]
    for spelling in others:
        values = [getattr(one, spelling) if _is_missing(v) else v for one, v in zip(args, values, strict=True)]
    return values


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, Raw) and bytes(value) in (b"", b"null"))


def _to_ns(microseconds: Decimal | None) -> int:
    """Convert to whole nanoseconds; ``NULL`` without a time, or if it does not fit."""
    if microseconds is None or not microseconds.is_finite() or not -(2**53) < microseconds < 2**53:
        return NULL
    return round(microseconds * 1000)


def _to_duration_ns(one: KinetoEvent) -> int:
    """Return the duration of an event; 0 for an instant event without one."""
    return 0 if one.ph == "i" and one.dur is None else _to_ns(one.dur)


def _to_int(value: JsonScalar) -> int:
    """Parse an id or count in any spelling: 7, 7.0, "7", "stream 7"; ``NULL`` for anything else."""
    if isinstance(value, str):
        digits = re.search(r"-?[0-9]+$", value)
        value = int(digits.group()) if digits and len(digits.group()) <= MAX_INT_DIGITS else None
    if value is None or not -(2**63) <= value < 2**63:
        return NULL
    return int(value)


@contextmanager
def _disable_garbage_collection() -> Iterator[None]:
    # Decoding allocates millions of objects and frees none: collecting garbage meanwhile nearly doubles the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
