"""Decode a file of any size block by block: its top-level keys, and its events as rows."""

import io
import json
import re
from dataclasses import replace

import msgspec
import numpy as np

from tracekit.bounds import MAX_EVENT_BYTES, MAX_NAME_BYTES, MAX_UNREADABLE_BYTES, MAX_VALUE_BYTES
from tracekit.errors import DamagedTraceError, NotATraceError, TraceTooLargeError
from tracekit.ingest import event_decoder
from tracekit.ingest.columns import DecodedColumns, DecodedFile, FileDamage
from tracekit.ingest.native import scan
from tracekit.ingest.native import scan as dictionary
from tracekit.ingest.native.constants import BUFFERS_FULL, LIST_CLOSED, MAX_ROWS, NEEDS_MORE, UNUSUAL
from tracekit.ingest.native.scan import build_vocabulary
from tracekit.ingest.spans import join_spans
from tracekit.ingest.window import FillableStream, StreamWindow
from tracekit.messages import traces
from tracekit.messages.traces import EVENTS_LOST, EVENTS_REPAIRED

# Memory of a row in the tables, with the memory needed to sort them. Measured: 118 bytes in a trace of 3 GB, some 140
# with shapes in one of 0.8 GB.
ROW_BYTES = 160

MAX_WRAPPERS = 4
"""Most objects or strings that may lie around a trace."""

SPAN_BYTES = 1_000
"""Memory of a begin or an end that waits for its counterpart."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BEFORE_MARK = re.compile(rb'[\x00-\x20]*,[\x00-\x20]*(?=\{[^{}]{0,300}?"ph"[\x00-\x20]*:[\x00-\x20]*"[BE]")')
_DOCUMENT_IN_LIST = re.compile(rb'\s*\[\s*\{(?:(?!"ph"\s*:)[^\x00])*?"traceEvents"\s*:\s*\[')


def is_list_of_documents(text: bytes) -> bool:
    """Return whether a text begins as a list of whole traces, rather than as one trace or a list of events."""
    return _DOCUMENT_IN_LIST.match(text) is not None


def decode_documents(stream: FillableStream, source: str, memory_bytes: int, stacks: bool = False) -> list[DecodedFile]:
    """Decode the documents of a file: usually one, but some writers append, or put several into a list.

    Args:
        stream: The file's text.
        source: Its name in messages.
        memory_bytes: Memory limit of the tables.
        stacks: Whether to read Python calls.

    Raises:
        NotATraceError: It is not JSON, or holds no events.
        DamagedTraceError: Nothing of it can be read.
        TraceTooLargeError: Its tables exceed the memory limit.
    """
    window = StreamWindow(stream)
    in_list = window.peek_byte() == ord("[") and is_list_of_documents(window.copy_text())
    window.at += in_list
    documents: list[DecodedFile] = []
    is_over = False
    while not is_over:
        begins_at, taken = window.offset, sum(each.columns.nbytes for each in documents)
        decoder = StreamDecoder(window, source, memory_bytes - taken, stacks)
        try:
            documents.append(replace(decoder.decode(), begins_at=begins_at))
        except (NotATraceError, DamagedTraceError):
            if not documents:
                raise
            documents[0].damage.followed_at = begins_at
            break
        is_over = not decoder.is_closed or not _find_next_document(window, documents[0].damage, in_list)
    first, ends_at = documents[0].damage, window.find_end()
    if first.followed_at is not None:
        first.followed_bytes = ends_at - first.followed_at
    return [replace(document, ends_at=ends_at) for document in documents]


def _find_next_document(window: StreamWindow, damage: FileDamage, in_list: bool) -> bool:
    """Go to the next document; anything else is noted in the damage."""
    byte = window.peek_byte()
    while byte == ord(",") or (in_list and byte == ord("]")):
        window.at += 1
        in_list = in_list and byte == ord(",")
        byte = window.peek_byte()
    if byte >= 0 and byte not in b"{[":
        damage.followed_at = window.offset
    return byte >= 0 and byte in b"{["


class StreamDecoder:
    """Decodes one document.

    Args:
        window: The file's text, from where the document begins.
        source: Its name in messages.
        memory_bytes: Memory limit of its tables.
        stacks: Whether to read Python calls.
        depth: Number of wrappers around it.
    """

    def __init__(
        self, window: StreamWindow, source: str, memory_bytes: int, stacks: bool = False, depth: int = 0
    ) -> None:
        self.is_closed = False
        self._depth = depth
        self._window = window
        self._stacks = stacks
        self._source = source
        self._memory_bytes = memory_bytes
        self._keys: dict[str, bytes] = {}
        self._columns = DecodedColumns()
        self._damage = FileDamage()
        self._texts = dictionary.allocate_texts()
        self._spans: list[event_decoder.KinetoEvent] = []
        self._span_numbers: list[int] = []
        self._words = event_decoder.NumberedTexts()
        self._has_events = False
        self._is_torn = False
        self._unreadable_bytes = 0

    def decode(self) -> DecodedFile:
        """Decode everything that can be read.

        Raises:
            NotATraceError: It is not JSON, or holds no events.
            DamagedTraceError: Nothing of it can be read.
            TraceTooLargeError: Its tables exceed the memory limit.
        """
        first = self._window.peek_byte()
        if first == ord("["):
            self._window.at += 1
            self._read_events()
            self.is_closed = self._damage.cut_at is None
        elif first == ord("{"):
            self._window.at += 1
            self._read_top_level()
        elif first != ord('"') or not self._read_string():
            raise NotATraceError(traces.JSON_NOT_AN_OBJECT(path=self._source))
        if not self._has_events and (wrapped := self._find_wrapped()) is not None:
            return wrapped
        if not self._has_events:
            raise self._make_no_events_error()
        self._add_spans()
        words = dictionary.to_list(self._texts) + self._words.to_list()
        return DecodedFile(self._keys, self._columns, words, self._damage)

    def _read_string(self) -> bool:
        """Read a file that is one JSON string, which may hold a trace; false if it isn't."""
        value = self._take_value()
        self._keys[""] = value or b""
        self.is_closed = value is not None
        return self.is_closed and _unwrap(self._keys[""]) is not None

    def _find_wrapped(self) -> DecodedFile | None:
        """Decode the trace that a top-level value holds, as an object or as text; ``None`` if none does."""
        for key, value in self._keys.items():
            text = _unwrap(value)
            if text is None or self._depth == MAX_WRAPPERS:
                continue
            window = StreamWindow(io.BytesIO(text))
            decoder = StreamDecoder(window, self._source, self._memory_bytes, self._stacks, self._depth + 1)
            others = {name: other for name, other in self._keys.items() if name != key}
            found = decoder.decode()
            return replace(found, keys={**others, **found.keys})
        return None

    def _make_no_events_error(self) -> DamagedTraceError | NotATraceError:
        if self._damage.cut_at is not None:
            return make_cut_short_error(self._source, self._damage.cut_at)
        if self._damage.has_lost_metadata:
            return DamagedTraceError(traces.JSON_INVALID(path=self._source))
        if "traceEvents" in self._keys or self._depth:
            return NotATraceError(traces.JSON_EVENTS_NOT_A_LIST(path=self._source))
        return NotATraceError(traces.JSON_WITHOUT_EVENTS(path=self._source))

    def _read_top_level(self) -> None:
        window = self._window
        while (byte := window.peek_byte()) != ord("}"):
            if byte == ord(","):
                window.at += 1
            elif byte < 0:
                self._damage.cut_at = window.offset
                return
            elif byte != ord('"') or not self._read_key():
                self._damage.has_lost_metadata = True
                self._damage.note_place(window.offset)
                if self._has_events or not self._find_events():
                    return
        window.at += 1
        self.is_closed = True

    def _read_key(self) -> bool:
        """Read a top-level key with its value; false if that fails."""
        start = self._window.at
        key = self._take_value()
        if key is None or self._window.peek_byte() != ord(":"):
            self._window.at = min(start, self._window.at)
            return False
        self._window.at += 1
        name = _decode_key(key)
        if self._window.peek_byte() == ord("[") and name == "traceEvents":
            self._window.at += 1
            self._read_events()
            return True
        if self._window.peek_byte() == ord("{") and name == "traceEvents" and self._depth < MAX_WRAPPERS:
            self._window.at += 1
            self._depth += 1
            self._read_top_level()
            return True
        value = self._take_value()
        if value is not None:
            self._keys[name] = value
        return value is not None

    def _take_value(self) -> bytes | None:
        """Return the text of the next value; ``None`` if it is not JSON or the file ends first."""
        window = self._window
        while (stop := window.find_value_end()) == NEEDS_MORE:
            if window.end - window.at > MAX_VALUE_BYTES or not window.read_more():
                return None
        if stop == UNUSUAL:
            return None
        text: bytes = window.buffer[window.at : stop].tobytes()
        window.at = stop
        return text

    def _find_events(self) -> bool:
        """Go to the events behind damaged keys; false if there are none."""
        window = self._window
        while True:
            found = _EVENTS_KEY.search(window.copy_text())
            if found:
                window.at += found.end()
                self._read_events()
                return True
            window.at = max(window.at, window.end - 64)
            if not window.read_more():
                return False

    def _read_events(self) -> None:
        self._has_events = True
        window, rows, words = self._window, scan.allocate_rows(), build_vocabulary(self._stacks)
        filled = 0
        while True:
            status, window.at, filled, self._damage.events = scan.scan_events(
                window.buffer, window.at, window.end, words, self._texts, rows, filled, self._damage.events
            )
            if status == NEEDS_MORE and window.end - window.at < MAX_EVENT_BYTES and window.read_more():
                continue
            self._columns.add_rows(rows, filled)
            self._check_memory()
            if status == LIST_CLOSED:
                if not self._is_within_name():
                    break
                self._is_torn = True
            if status == BUFFERS_FULL:
                self._count_skipped(rows)
                if filled < MAX_ROWS:
                    self._texts = dictionary.enlarge_texts(self._texts, MAX_ROWS, window.buffer.size)
            elif status != LIST_CLOSED and not self._decode_leftover():
                self._damage.cut_at = window.offset
                break
            self._decode_marks()
            filled = 0
        self._count_skipped(rows)

    def _is_within_name(self) -> bool:
        """Return whether the list seems to end within an event's name, whose quotes Kineto doesn't escape."""
        while self._window.end - self._window.at < MAX_NAME_BYTES and self._window.read_more():
            pass
        return event_decoder.is_rest_of_name(self._window.copy_text()[:MAX_NAME_BYTES])

    def _count_skipped(self, rows: scan.RowBuffers) -> None:
        """Take over what the scanner counted."""
        found = rows.skipped[:-1]
        for phase, category, count, first in found[found[:, 2] > 0].tolist():
            text = dictionary.get_text(self._texts, category).decode() if category >= 0 else None
            event_decoder.count_skipped(self._columns.counts, text, chr(phase) if phase else "", first, count)
        rows.skipped.fill(0)

    def _add_spans(self) -> None:
        """Add the events that are given as begin and end."""
        if self._spans:
            numbers = np.array(self._span_numbers)
            joined, numbers = join_spans(self._spans, self._columns.counts, self._stacks, numbers)
            event_decoder.add_events(joined, self._columns, self._words, self._stacks, numbers)

    def _decode_leftover(self) -> bool:
        """Decode the event that the scanner left with the careful decoder; false if the file ends in it."""
        window = self._window
        stop = window.find_value_end()
        if stop > 0 and window.buffer[window.at] == ord("{"):
            self._decode_carefully(window.buffer[window.at : stop].tobytes())
            window.at = stop
            return True
        while True:
            text = window.copy_text()
            stop = event_decoder.find_next_event(text)
            if stop >= 0 or len(text) >= MAX_EVENT_BYTES or not window.read_more():
                break
        if stop >= 0:
            self._decode_carefully(text[:stop].rstrip().removesuffix(b",").rstrip())
            window.at += stop
            return True
        return self._decode_last(text)

    def _decode_marks(self) -> None:
        """Decode the begins and ends behind one, each of which the scanner would leave."""
        window = self._window
        while self._span_numbers and self._span_numbers[-1] == self._damage.events - 1:
            found = _BEFORE_MARK.match(window.buffer, window.at, window.end)
            if found is None:
                return
            window.at = found.end()
            stop = window.find_value_end()
            if stop < 0:
                return
            self._decode_carefully(window.buffer[window.at : stop].tobytes())
            window.at = stop

    def _decode_last(self, text: bytes) -> bool:
        """Decode the last event of the list; false if the text ends in it.

        Raises:
            DamagedTraceError: Too much text holds no event.
        """
        if len(text) >= MAX_EVENT_BYTES:
            self._unreadable_bytes += len(text)
            if self._unreadable_bytes > MAX_UNREADABLE_BYTES:
                raise DamagedTraceError(traces.JSON_INVALID(path=self._source))
            self._lose_event(text)
            self._is_torn = True
            self._window.at = self._window.end
            return self._window.read_more()
        try:
            _, stop = json.JSONDecoder(strict=False).raw_decode(text.decode("latin-1"))
        except (ValueError, RecursionError):
            stop = text.find(b"}]") + 1 or text.rfind(b"}", 0, text.rfind(b"]") + 1) + 1
            if stop:
                self._decode_carefully(text[:stop])
            else:
                self._lose_event(text)
                stop = len(text)
            self._window.at += stop
            return self._window.at < self._window.end
        self._decode_carefully(text[:stop])
        self._window.at += stop
        return True

    def _decode_carefully(self, text: bytes) -> None:
        """Take one event carefully, put right if need be; the rest of one that was too long is lost with it."""
        if self._is_torn:
            self._is_torn = False
            return
        number, counts = self._damage.events, self._columns.counts
        self._damage.events += 1
        try:
            found = event_decoder.decode_event(text)
        except event_decoder.JSON_ERRORS:
            category, phase = event_decoder.find_category(text), event_decoder.find_phase(text)
            if not event_decoder.is_read(text, self._stacks):
                event_decoder.count_skipped(counts, category, phase, number)
                return
            repaired = event_decoder.repair_event(text)
            if repaired is None:
                self._count_lost(text, number)
                return
            found = repaired
            self._damage.note_place(self._window.offset)
            self._damage.repaired_events += 1
            counts.add(EVENTS_REPAIRED, found.cat or "", found.ph, first=number, at_byte=self._window.offset)
        if found.ph in (event_decoder.BEGIN, event_decoder.END):
            self._spans.append(found)
            self._span_numbers.append(number)
        else:
            event_decoder.add_events([found], self._columns, self._words, self._stacks, np.array([number]))

    def _lose_event(self, text: bytes) -> None:
        """Count an event that cannot be read, unless it is the rest of one that was too long and is counted."""
        if not self._is_torn:
            self._count_lost(text, self._damage.events)
            self._damage.events += 1

    def _count_lost(self, text: bytes, number: int) -> None:
        """Count an unreadable event."""
        self._damage.lost_events += 1
        self._damage.lost_activities += event_decoder.estimate_activities(text)
        self._damage.comma_number = self._damage.comma_number or event_decoder.find_comma_number(text)
        self._damage.note_place(self._window.offset)
        category, phase = event_decoder.find_category(text) or "", event_decoder.find_phase(text)
        self._columns.counts.add(EVENTS_LOST, category, phase, first=number, at_byte=self._window.offset)

    def _check_memory(self) -> None:
        rows_bytes = ROW_BYTES * self._columns.rows + SPAN_BYTES * len(self._spans)
        if self._columns.nbytes + rows_bytes > self._memory_bytes:
            raise TraceTooLargeError(traces.TRACE_TOO_LARGE(path=self._source, limit_bytes=self._memory_bytes))


def _unwrap(value: bytes) -> bytes | None:
    """Return the JSON text of a value that seems to hold events, itself or as a string; ``None`` for any other."""
    if b"traceEvents" not in value:
        return None
    if value[:1] != b'"':
        return value if value[:1] in b"{[" else None
    inner = _decode_key(value).strip()
    return inner.encode() if inner[:1] in ("{", "[") else None


def _decode_key(key: bytes) -> str:
    try:
        return msgspec.json.decode(key, type=str)
    except event_decoder.JSON_ERRORS:
        return key.decode("utf-8", errors="replace").strip('"')


def decode_small(data: bytes, stacks: bool = False) -> DecodedFile:
    """Decode a small file strictly.

    Raises:
        msgspec.DecodeError: It is invalid JSON, or not of this form.
    """
    keys, events = event_decoder.decode_document(data)
    columns, words = DecodedColumns(), event_decoder.NumberedTexts()
    joined, numbers = join_spans(events, columns.counts, stacks)
    event_decoder.add_events(joined, columns, words, stacks, numbers)
    return DecodedFile(keys, columns, words.to_list(), FileDamage(events=len(events)))


def make_cut_short_error(source: str, length: int) -> DamagedTraceError:
    """Make the error for a file that ends too early to be usable."""
    return DamagedTraceError(traces.FILE_CUT_SHORT(path=source, length=length))
