"""The careful decoder: a JSON library decodes each event, and all known spellings of a value are accepted.

It decodes files that are too small for the fast decoder (:mod:`scan`), and events that the fast decoder leaves.
"""

import gc
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import Raw, Struct, defstruct, field

from tracekit.arrays import Ints, fill_nulls
from tracekit.bounds import MAX_INT_DIGITS
from tracekit.ingest.columns import DecodedColumns
from tracekit.ingest.event_counts import EventCounts
from tracekit.ingest.event_times import convert_to_ns
from tracekit.ingest.fields import (
    ARGUMENTS,
    INTS,
    NO_TEXT,
    NULL,
    PYTHON_CATEGORY,
    STACK_FIELDS,
    TABLES,
    WORKER_TABLE,
    ArgumentKind,
    select_categories,
)
from tracekit.ingest.worker_calls import is_worker_call
from tracekit.messages.traces import CATEGORY_NOT_READ, PHASE_NOT_READ

READ_PHASES = ("X", "i")
"""Phases of events that are read: with a duration, and instant."""

BEGIN, END = "B", "E"
"""Phases that together make an event with a duration."""

SPAN_PHASES = (*READ_PHASES, BEGIN, END)

METADATA = "M"
"""Phase of labels, such as the name of a thread."""
THREAD_NAME = "thread_name"

JsonScalar = int | float | str | bool | None

JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding text that is not JSON, or not of the requested form."""

_NO_RAW = Raw()

EventArgs: Any = defstruct(
    "Args",
    [
        *(
            (f"argument_{i}", Raw, field(default=_NO_RAW, name=key))
            if kind is ArgumentKind.RAW
            else (f"argument_{i}", JsonScalar, field(default=None, name=key))
            for i, (key, (_, kind)) in enumerate(ARGUMENTS.items())
        ),
        ("label", Raw, field(default=_NO_RAW, name="name")),
    ],
    gc=False,
)
_ARGUMENT_SPELLINGS: dict[str, list[Callable[[Any], Any]]] = defaultdict(list)
for _i, (_field, _) in enumerate(ARGUMENTS.values()):
    _ARGUMENT_SPELLINGS[_field].append(attrgetter(f"argument_{_i}"))
_MISSING = (b"", b"null")
_KIND_OF_FIELD = dict(ARGUMENTS.values())
_NO_ARGS = EventArgs()


class KinetoEvent(Struct, gc=False):
    """An entry of ``traceEvents``. Times are microseconds, as JSON."""

    ph: str = ""
    cat: str | None = None
    name: JsonScalar = None
    pid: JsonScalar = None
    tid: JsonScalar = None
    ts: Raw = _NO_RAW
    dur: Raw = _NO_RAW
    args: EventArgs | None = None


_EVENT_DECODER = msgspec.json.Decoder(KinetoEvent)
_EVENT_LIST_DECODER = msgspec.json.Decoder(list[KinetoEvent])
_KEYS_DECODER = msgspec.json.Decoder(dict[str, Raw])


class NumberedTexts:
    """Texts of carefully decoded events; numbered downwards from -2, while the scanner's texts count up from 0."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def assign_numbers(self, texts: Sequence[bytes | str | None]) -> Ints:
        """Return the number of each text, new ones if needed; ``NO_TEXT`` where there is none."""
        numbers = {text: self._assign_number(text) for text in dict.fromkeys(texts)}
        return np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))

    def _assign_number(self, text: bytes | str | None) -> int:
        if text is None:
            return NO_TEXT
        encoded = text.encode() if isinstance(text, str) else text
        return -2 - self._numbers.setdefault(encoded, len(self._numbers))

    def to_list(self) -> list[bytes]:
        """List all texts; the last has the number -2, so that negative numbers index a list that they end."""
        return list(self._numbers)[::-1]


def decode_event(text: bytes) -> KinetoEvent:
    """Decode an event.

    Raises:
        msgspec.DecodeError: It is not JSON, or not an event.
    """
    event = _EVENT_DECODER.decode(text)
    convert_to_ns([bytes(event.ts), bytes(event.dur)])
    return event


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
    events: Sequence[KinetoEvent],
    columns: DecodedColumns,
    words: NumberedTexts,
    stacks: bool = False,
    numbers: Ints | None = None,
) -> None:
    """Convert events to rows. Others than the read ones are counted; without ``stacks`` Python calls too.

    Args:
        events: The events; begins and ends are spans by now.
        columns: Where the rows go.
        words: The texts.
        stacks: Whether to read Python calls.
        numbers: Number of each event in the file; by default from 0 on.

    Raises:
        msgspec.DecodeError: A time is none, even of an event that is skipped.
    """
    table_of = select_categories(stacks)
    numbers = np.arange(len(events)) if numbers is None else numbers
    durations = [bytes(one.dur) for one in events]
    tables: dict[str, list[int]] = defaultdict(list)
    skipped: list[int] = []
    for row, one in enumerate(events):
        table = _choose_table(one, table_of) if one.ph in READ_PHASES else None
        if table is not None:
            tables[table].append(row)
            if one.ph == "i" and durations[row] in _MISSING:
                durations[row] = b"0"
        else:
            skipped.append(row)
    for row in skipped:
        count_skipped(columns.counts, events[row].cat, events[row].ph, int(numbers[row]))
        if events[row].ph == METADATA and events[row].name == THREAD_NAME:
            _note_thread_name(events[row], columns)
    start_ns, dur_ns = convert_to_ns([bytes(one.ts) for one in events]), convert_to_ns(durations)
    for table, rows in tables.items():
        found = [events[row] for row in rows]
        args = [one.args or _NO_ARGS for one in found]
        built = {"ts_ns": start_ns[rows], "dur_ns": dur_ns[rows]}
        for name in TABLES[table]:
            if name in STACK_FIELDS and not stacks:
                built[name] = np.full(len(rows), NO_TEXT, np.int64)
            elif name not in built:
                built[name] = _build_column(name, found, args, words)
        columns.add(table, built, numbers[rows])


def _choose_table(event: KinetoEvent, table_of: Mapping[str, str]) -> str | None:
    """Return the table of an event; none if it isn't read."""
    if event.cat == PYTHON_CATEGORY and event.cat not in table_of and is_worker_call(event.name):
        return WORKER_TABLE
    return table_of.get(event.cat or "")


def count_skipped(counts: EventCounts, category: str | None, phase: str, first: int, count: int = 1) -> None:
    """Count events that aren't read, for their phase or else for their category."""
    template = CATEGORY_NOT_READ if phase in SPAN_PHASES else PHASE_NOT_READ
    counts.add(template, category or "", phase, count=count, first=first)


def _note_thread_name(event: KinetoEvent, columns: DecodedColumns) -> None:
    """Note the name of a thread; one that isn't text, or of no numbered thread, is left out."""
    pid, tid = _convert_to_ints([event.pid, event.tid]).tolist()
    with suppress(*JSON_ERRORS):
        if event.args is not None and NULL not in (pid, tid):
            columns.thread_names[pid, tid] = msgspec.json.decode(event.args.label, type=str).strip()


def _build_column(name: str, events: Sequence[KinetoEvent], args: Sequence[Any], words: NumberedTexts) -> Ints:
    if name == "name":
        return words.assign_numbers([str(one.name) for one in events])
    if name in ("pid", "tid"):
        return _convert_to_ints(list(map(attrgetter(name), events)))
    if name in INTS:
        return _convert_to_ints(_read_arguments(name, args, None))
    if _KIND_OF_FIELD[name] is ArgumentKind.RAW:
        raw = _read_arguments(name, args, _NO_RAW)
        if raw.count(_NO_RAW) == len(raw):
            return np.full(len(raw), NO_TEXT, np.int64)
        return words.assign_numbers([None if text in _MISSING else text for text in map(bytes, raw)])
    return words.assign_numbers([None if v is None else str(v) for v in _read_arguments(name, args, None)])


def _read_arguments(name: str, args: Sequence[Any], missing: Raw | None) -> list[Any]:
    """Read the values of a field; the first spelling takes precedence."""
    first, *others = _ARGUMENT_SPELLINGS[name]
    values = list(map(first, args))
    for spelling in others:
        more = list(map(spelling, args))
        if more.count(missing) < len(more):
            values = [other if _is_missing(v) else v for v, other in zip(values, more, strict=True)]
    return values


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, Raw) and bytes(value) in _MISSING)


def _convert_to_ints(values: Sequence[JsonScalar]) -> Ints:
    """Parse ids or counts in any spelling: 7, 7.0, "7", "stream 7"; ``NULL`` for anything else."""
    if values.count(None) == len(values):
        return np.full(len(values), NULL)
    try:
        return fill_nulls(pl.Series(values, dtype=pl.Int64, strict=True), NULL)
    except (TypeError, OverflowError):
        known = {value: _to_int(value) for value in set(values)}
        return np.fromiter(map(known.__getitem__, values), np.int64, len(values))


def _to_int(value: JsonScalar) -> int:
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
