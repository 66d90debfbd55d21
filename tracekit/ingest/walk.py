"""A file of any size, block by block: its top-level keys, and its events as rows."""

import json
import re
from dataclasses import dataclass

import msgspec

from tracekit.errors import DamagedTraceError, NotATraceError, TraceTooLargeError
from tracekit.ingest import kineto, salvage, scan
from tracekit.ingest import texts as dictionary
from tracekit.ingest.columns import Columns
from tracekit.ingest.native.constants import CLOSED, FULL, MORE, ROWS, UNUSUAL
from tracekit.ingest.vocabulary import vocabulary
from tracekit.ingest.window import LARGEST_VALUE, Stream, Window

# What a row takes in the tables, with what is needed to put them in order: measured on a trace of 3 GB.
ROW_BYTES = 230

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')


@dataclass(slots=True)
class Damage:
    """What was wrong with a file.

    Attributes:
        events: Events passed, of all kinds.
        lost: Events that could not be read.
        lost_work: How many of them may be kernels, copies or sets, by what is left of their text.
        repaired: Events that could, after putting their JSON right.
        at_byte: Where the first of them is.
        cut_at: Where a file ends that lacks its closing bracket.
        metadata: Whether top-level keys were lost.
        followed_at: Where something begins that follows the closing bracket.
    """

    events: int = 0
    lost: int = 0
    lost_work: int = 0
    repaired: int = 0
    at_byte: int | None = None
    cut_at: int | None = None
    metadata: bool = False
    followed_at: int | None = None

    def lose(self, text: bytes, at_byte: int) -> None:
        """Count an event that could not be read."""
        self.lost += 1
        self.lost_work += salvage.activities(text)
        self.note(at_byte)

    def note(self, at_byte: int) -> None:
        """Remember the place of the first damage."""
        self.at_byte = at_byte if self.at_byte is None else self.at_byte


@dataclass(slots=True)
class Decoded:
    """A file's content.

    Attributes:
        keys: Top-level keys but for the events, as JSON.
        columns: The events' rows.
        words: Texts by number: those of the scanner from the front, those of the careful decoder from the end.
        damage: What was wrong.
    """

    keys: dict[str, bytes]
    columns: Columns
    words: list[bytes]
    damage: Damage


class Walk:
    """Reads one file.

    Args:
        stream: Its text.
        source: What to call it in messages.
        memory_bytes: The most that its tables may take.
        stacks: Whether Python's calls are read.
    """

    def __init__(self, stream: Stream, source: str, memory_bytes: int, stacks: bool = False) -> None:
        self._window = Window(stream)
        self._stacks = stacks
        self._source = source
        self._memory_bytes = memory_bytes
        self._keys: dict[str, bytes] = {}
        self._columns = Columns()
        self._damage = Damage()
        self._texts = dictionary.empty()
        self._words = kineto.Words()
        self._has_events = False
        self._is_closed = False
        self._is_torn = False

    def run(self) -> Decoded:
        """Everything that can be read.

        Raises:
            NotATraceError: It is no JSON, or holds no events.
            DamagedTraceError: Nothing of it can be read.
            TraceTooLargeError: Its tables need more memory than they may take.
        """
        first = self._window.byte()
        if first == ord("["):
            self._window.at += 1
            self._events()
            self._is_closed = self._damage.cut_at is None
        elif first == ord("{"):
            self._window.at += 1
            self._top_level()
        else:
            raise NotATraceError(
                f"{self._source} is no JSON object.", "Expected a PyTorch profiler trace (.json or .json.gz)."
            )
        if not self._has_events:
            raise self._without_events()
        self._look_behind()
        words = dictionary.to_list(self._texts) + self._words.texts()
        return Decoded(self._keys, self._columns, words, self._damage)

    def _look_behind(self) -> None:
        """Note what follows the document, unless its end was not found."""
        if self._is_closed and self._window.byte() >= 0:
            self._damage.followed_at = self._window.place

    def _without_events(self) -> DamagedTraceError | NotATraceError:
        if self._damage.cut_at is not None:
            return cut_short(self._source, self._damage.cut_at)
        if self._damage.metadata:
            return DamagedTraceError(f"{self._source} is no valid JSON.", "Copy or record the file again.")
        return NotATraceError(
            f"{self._source} is JSON, but not a PyTorch profiler trace (it has no traceEvents).",
            "Export one with torch.profiler's export_chrome_trace or tensorboard_trace_handler.",
        )

    def _top_level(self) -> None:
        window = self._window
        while (byte := window.byte()) != ord("}"):
            if byte == ord(","):
                window.at += 1
            elif byte < 0:
                self._damage.cut_at = window.place
                return
            elif byte != ord('"') or not self._key():
                self._damage.metadata = True
                self._damage.note(window.place)
                if self._has_events or not self._find_events():
                    return
        window.at += 1
        self._is_closed = True

    def _key(self) -> bool:
        """One top-level key with its value; false if it can't be read."""
        start = self._window.at
        key = self._take()
        if key is None or self._window.byte() != ord(":"):
            self._window.at = min(start, self._window.at)
            return False
        self._window.at += 1
        name = _text_of(key)
        if self._window.byte() == ord("[") and name == "traceEvents":
            self._window.at += 1
            self._events()
            return True
        value = self._take()
        if value is not None:
            self._keys[name] = value
        return value is not None

    def _take(self) -> bytes | None:
        """The text of the next value; ``None`` if it is no JSON or the file ends first."""
        window = self._window
        while (stop := window.behind_value()) == MORE:
            if window.end - window.at > LARGEST_VALUE or not window.more():
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
            found = _EVENTS_KEY.search(window.text())
            if found:
                window.at += found.end()
                self._events()
                return True
            window.at = max(window.at, window.end - 64)
            if not window.more():
                return False

    def _events(self) -> None:
        self._has_events = True
        window, rows, words = self._window, scan.room(), vocabulary(self._stacks)
        filled = 0
        while True:
            status, window.at, filled, events = scan.scan(
                window.buffer, window.at, window.end, words, self._texts, rows, filled
            )
            self._damage.events += events
            if status == MORE and window.end - window.at < salvage.LONGEST_EVENT and window.more():
                continue
            self._columns.add_rows(rows, filled)
            self._check_memory()
            if status == CLOSED:
                return
            if status == FULL:
                if filled < ROWS:
                    self._texts = dictionary.grown(self._texts, ROWS, window.buffer.size)
            elif not self._leftover():
                self._damage.cut_at = window.place
                return
            filled = 0

    def _leftover(self) -> bool:
        """The event that the scanner left, by the careful decoder; false if the file ends in it."""
        window = self._window
        stop = window.behind_value()
        if stop > 0 and window.buffer[window.at] == ord("{"):
            self._judge(window.buffer[window.at : stop].tobytes())
            window.at = stop
            return True
        while True:
            text = window.text()
            stop = salvage.next_event(text)
            if stop >= 0 or len(text) >= salvage.LONGEST_EVENT or not window.more():
                break
        if stop >= 0:
            self._judge(text[:stop].rstrip().removesuffix(b",").rstrip())
            window.at += stop
            return True
        return self._last(text)

    def _last(self, text: bytes) -> bool:
        """The last event of the list; false if the text ends in it."""
        if len(text) >= salvage.LONGEST_EVENT:
            if not self._is_torn:
                self._lose(text)
            self._is_torn = True
            self._window.at = self._window.end
            return self._window.more()
        try:
            _, stop = json.JSONDecoder(strict=False).raw_decode(text.decode("latin-1"))
        except (ValueError, RecursionError):
            stop = text.find(b"}]") + 1 or text.rfind(b"}", 0, text.rfind(b"]") + 1) + 1
            if stop:
                self._judge(text[:stop])
            else:
                if not self._is_torn:
                    self._lose(text)
                stop = len(text)
            self._window.at += stop
            return self._window.at < self._window.end
        self._judge(text[:stop])
        self._window.at += stop
        return True

    def _judge(self, text: bytes) -> None:
        """Take one event carefully, put right if need be; the rest of one that was too long is lost with it."""
        if self._is_torn:
            self._is_torn = False
            return
        self._damage.events += 1
        try:
            found = kineto.event(text)
        except kineto.BAD_JSON:
            repaired = salvage.repair(text)
            if repaired is None:
                self._damage.lose(text, self._window.place)
                return
            found = repaired
            self._damage.note(self._window.place)
            self._damage.repaired += 1
        kineto.add([found], self._columns, self._words, self._stacks)

    def _lose(self, text: bytes) -> None:
        self._damage.events += 1
        self._damage.lose(text, self._window.place)

    def _check_memory(self) -> None:
        if self._columns.nbytes + ROW_BYTES * self._columns.rows > self._memory_bytes:
            raise TraceTooLargeError(
                f"{self._source} needs more than {self._memory_bytes / 2**30:.3g} GiB of memory.",
                "Allow more with --memory, or record fewer steps.",
            )


def _text_of(key: bytes) -> str:
    try:
        return msgspec.json.decode(key, type=str)
    except kineto.BAD_JSON:
        return key.decode("utf-8", errors="replace").strip('"')


def whole(data: bytes, stacks: bool = False) -> Decoded:
    """A small file, strictly.

    Args:
        data: Its text.
        stacks: Whether Python's calls are read.

    Raises:
        msgspec.DecodeError: It is no valid JSON, or not of this form.
    """
    keys, events = kineto.document(data)
    columns, words = Columns(), kineto.Words()
    kineto.add(events, columns, words, stacks)
    return Decoded(keys, columns, words.texts(), Damage(events=len(events)))


def cut_short(source: str, length: int) -> DamagedTraceError:
    """The error for a file that ends too early to be of use."""
    return DamagedTraceError(
        f"{source} is cut short: the JSON ends after {length:,} bytes without its closing brackets.",
        "Copy or record the file again; was the job stopped while the profiler wrote?",
    )
