"""A hash table of texts: each distinct text once, with a number. Compiled code fills it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.native import get_loops
from tracekit.ingest.native.constants import FREE_SLOT, SLACK_BYTES


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
