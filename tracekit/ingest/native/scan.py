"""Python interface of the fast decoder: :mod:`native.events` fills row buffers.

Texts are kept in a hash table, each distinct one once, with a number; another one holds the words of an event, with the
meaning of each.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.fields import ARGUMENTS, INTS, STACK_FIELDS, TABLES, TEXTS, ArgumentKind, select_categories
from tracekit.ingest.native import get_loops
from tracekit.ingest.native.constants import (
    ARGUMENT_ROLE,
    CATEGORY_ROLE,
    EVENT_KEYS,
    FREE_SLOT,
    KEY_ROLE,
    KIND_OFFSETS,
    MAX_ROWS,
    MAX_SKIPPED,
    NO_WORD,
    SLACK_BYTES,
)


class TextTable(NamedTuple):
    """Texts by number, as a hash table with open addressing.

    Attributes:
        slots: Number of the text in each slot; a power of two of slots, at most half of them used.
        starts: Start of each text in the arena; one more entry than the maximum number of texts.
        arena: The texts, concatenated.
        used: Number of texts (an array of one element, so that compiled code can change it).
    """

    slots: Ints
    starts: Ints
    arena: Bytes
    used: Ints


def allocate_texts(room: int = 1 << 15, size: int = 1 << 22) -> TextTable:
    """Allocate a table for ``room`` texts of ``size`` bytes in total."""
    return TextTable(
        np.full(2 * room, FREE_SLOT, np.int64),
        np.zeros(room + 1, np.int64),
        np.empty(size + SLACK_BYTES, np.uint8),
        np.zeros(1, np.int64),
    )


def enlarge_texts(texts: TextTable, more: int, size: int) -> TextTable:
    """Copy the texts, with the same numbers, to a table with room for at least ``more`` texts of ``size`` bytes."""
    room = texts.starts.size - 1
    while room < texts.used[0] + more:
        room *= 2
    used = int(texts.starts[texts.used[0]])
    larger = allocate_texts(room, max(2 * used, used + size))
    larger.starts[: texts.used[0] + 1] = texts.starts[: texts.used[0] + 1]
    larger.arena[:used] = texts.arena[:used]
    larger.used[0] = texts.used[0]
    _fill_slots(larger, are_words=False)
    return larger


def build_word_table(words: Sequence[str]) -> TextTable:
    """Build a table of distinct words, numbered in order, for look-ups by ``hash_word``."""
    encoded = [word.encode() for word in words]
    texts = allocate_texts(128, 4096)
    text = b"".join(encoded)
    texts.arena[: len(text)] = np.frombuffer(text, np.uint8)
    texts.starts[1 : len(words) + 1] = np.cumsum([len(word) for word in encoded])
    texts.used[0] = len(words)
    _fill_slots(texts, are_words=True)
    return texts


def to_list(texts: TextTable) -> list[bytes]:
    """List the texts by number."""
    starts = texts.starts[: texts.used[0] + 1].tolist()
    arena = texts.arena[: starts[-1]].tobytes()
    return [arena[start:stop] for start, stop in pairwise(starts)]


def get_text(texts: TextTable, number: int) -> bytes:
    """Return one text."""
    text: bytes = texts.arena[texts.starts[number] : texts.starts[number + 1]].tobytes()
    return text


def _fill_slots(texts: TextTable, *, are_words: bool) -> None:
    get_loops()["fill_slots"](texts.slots, texts.slots.size, texts.starts, texts.arena, texts.used[0], are_words)


class Vocabulary(NamedTuple):
    """The words, and the meaning of each as key, category and argument."""

    slots: Ints
    starts: Ints
    arena: Bytes
    meaning: Ints


def build_vocabulary(stacks: bool = False) -> Vocabulary:
    """Build the scanner's vocabulary."""
    tables = select_categories(stacks)
    known = list(dict.fromkeys((*EVENT_KEYS, *tables, *ARGUMENTS)))
    meaning = np.full((len(known), 3), NO_WORD, np.int64)
    for number, key in enumerate(EVENT_KEYS):
        meaning[known.index(key), KEY_ROLE] = number
    for category, table in tables.items():
        meaning[known.index(category), CATEGORY_ROLE] = list(TABLES).index(table)
    for key, (field, kind) in ARGUMENTS.items():
        if field in STACK_FIELDS and not stacks:
            continue
        meaning[known.index(key), ARGUMENT_ROLE] = KIND_OFFSETS[kind] + (
            INTS if kind is ArgumentKind.INT else TEXTS
        ).index(field)
    words = build_word_table(known)
    return Vocabulary(words.slots, words.starts, words.arena, meaning)


class RowBuffers(NamedTuple):
    """Buffers for the rows of one call.

    Attributes:
        table: Table of each event.
        ints: Its numbers.
        texts: Numbers of its texts.
        spans: Positions of the current event's texts in the buffer.
        event_of: Number of each event in the file.
        skipped: Events that aren't read: phase, category, count and first event, in a hash table; its last row holds
            the number of rows in use.
    """

    table: npt.NDArray[np.int8]
    ints: Ints
    texts: Ints
    spans: Ints
    event_of: Ints
    skipped: Ints


def allocate_rows() -> RowBuffers:
    """Allocate row buffers."""
    return RowBuffers(
        np.empty(MAX_ROWS, np.int8),
        np.empty((MAX_ROWS, len(INTS)), np.int64),
        np.empty((MAX_ROWS, len(TEXTS)), np.int64),
        np.empty(2 * len(TEXTS) + 3, np.int64),
        np.empty(MAX_ROWS, np.int64),
        np.zeros((MAX_SKIPPED + 1, 4), np.int64),
    )


def scan_events(
    buffer: Bytes, at: int, end: int, words: Vocabulary, texts: TextTable, rows: RowBuffers, filled: int, events: int
) -> tuple[int, int, int, int]:
    """Decode the events from ``at`` on into rows.

    Args:
        buffer: JSON text, followed by ``SLACK_BYTES`` bytes.
        at: Where to begin: between two events, or at one.
        end: Current end of the text.
        words: The vocabulary.
        texts: All distinct texts so far; new ones are added.
        rows: Buffers of ``MAX_ROWS`` rows.
        filled: Number of rows already filled.
        events: Number of events passed so far.

    Returns:
        Why it stopped (``NEEDS_MORE``, ``UNUSUAL``, ``LIST_CLOSED``, ``BUFFERS_FULL``), where, rows filled, and events
            passed so far.
    """
    place = np.array([at, end, filled, events])
    status = get_loops()["scan"](
        *(buffer, place),
        *(words.slots, words.slots.size, words.starts, words.arena, words.meaning),
        *(texts.slots, texts.slots.size, texts.starts, texts.arena, texts.arena.size, texts.used),
        *rows,
    )
    at, _, filled, events = place.tolist()
    return status, at, filled, events


def transpose_rows(table: Ints, rows: Ints, columns: Ints) -> Ints:
    """Copy some rows of some columns of a table, column by column."""
    result = np.empty((columns.size, rows.size), np.int64)
    get_loops()["transposed"](table, table.shape[1], rows, rows.size, columns, columns.size, result)
    return result
