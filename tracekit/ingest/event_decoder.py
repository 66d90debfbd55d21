"""The careful decoder: a JSON library decodes each event, and all known spellings of a value are accepted.

It decodes files that are too small for the fast decoder (:mod:`.native.scan`), and events that the fast decoder leaves.
Damaged events are repaired where the error is a known one of profilers and editors, or else passed over.
"""

import gc
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import Raw, Struct, defstruct, field

from tracekit.arrays import Ints, fill_nulls
from tracekit.bounds import MAX_INT_DIGITS
from tracekit.ingest.columns import DecodedColumns
from tracekit.ingest.fields import (
    ACTIVITY_KINDS,
    ARGUMENTS,
    CATEGORIES,
    INTS,
    NO_TEXT,
    NULL,
    PYTHON_CATEGORY,
    STACK_FIELDS,
    TABLES,
    WORKER_TABLE,
    ArgumentKind,
    is_worker_call,
    select_categories,
)
from tracekit.ingest.ledger import EventCounts
from tracekit.messages.traces import CATEGORY_NOT_READ, PHASE_NOT_READ

MAX_TIME_US = 2**53
"""Times of this size or more are taken for missing."""

_FEW_TIMES = 64
"""Up to so many times are converted one by one."""

_FRACTION_DIGITS = 9
_FRACTION_OF_NS = 10 ** (_FRACTION_DIGITS - 3)
_PLAIN_TIME = rf"^(?:0|[1-9][0-9]{{0,15}})(?:\.[0-9]{{1,{_FRACTION_DIGITS}}})?$"
_DECIMAL_DECODER = msgspec.json.Decoder(Decimal | None)


def convert_to_ns(times: Sequence[bytes]) -> Ints:
    """Convert times to whole nanoseconds, half ones to even ones; ``NULL`` without a time, or if it does not fit.

    Args:
        times: JSON numbers, or strings that hold one; empty where there is none.

    Raises:
        msgspec.DecodeError: One is something else.
    """
    if len(times) <= _FEW_TIMES:
        return np.array([_convert_one(time) for time in times], np.int64)
    texts = pl.Series([time.decode("latin-1") for time in times])
    is_absent = texts.is_in(["", "null"])
    is_plain = is_absent | texts.str.contains(_PLAIN_TIME)
    plain = pl.select(texts.set(is_absent | ~is_plain, "0").alias("time").str.splitn(".", 2)).unnest("time")
    whole = plain["field_0"].cast(pl.Int64).to_numpy()
    fraction = plain["field_1"].fill_null("0").str.pad_end(_FRACTION_DIGITS, "0").cast(pl.Int64).to_numpy()
    ns, rest = np.divmod(fraction, _FRACTION_OF_NS)
    result = np.where(whole < MAX_TIME_US, whole, 0) * 1000 + ns
    result += (2 * rest > _FRACTION_OF_NS) | ((2 * rest == _FRACTION_OF_NS) & (result % 2 == 1))
    result[is_absent.to_numpy() | (whole >= MAX_TIME_US)] = NULL
    for row in np.flatnonzero(~is_plain.to_numpy()).tolist():
        result[row] = _convert_one(times[row])
    return result


def _convert_one(time: bytes) -> int:
    microseconds: Decimal | None = _DECIMAL_DECODER.decode(time) if time else None
    if microseconds is None or not microseconds.is_finite() or not -MAX_TIME_US < microseconds < MAX_TIME_US:
        return NULL
    return round(microseconds * 1000)


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
    with disable_garbage_collection():
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
def disable_garbage_collection() -> Iterator[None]:
    """Keep Python from collecting garbage inside."""
    # Decoding allocates millions of objects and frees none: collecting garbage meanwhile nearly doubles the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


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


def repair_event(text: bytes) -> KinetoEvent | None:
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


def _try_decode(text: bytes) -> KinetoEvent | None:
    try:
        return decode_event(text)
    except JSON_ERRORS:
        return None
