"""A dictionary of texts: every distinct text once, and a number for it. Compiled code fills it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.native import loops
from tracekit.ingest.native.constants import FREE, SLACK


class Texts(NamedTuple):
    """Texts by number; open addressing, so that a look-up is a hash and a comparison.

    Attributes:
        slots: Number of the text in each slot, a power of two of them; at most half are taken.
        starts: Where each text starts in the arena; one more entry than there may be texts.
        arena: The texts, one behind the other.
        used: How many there are (one element, so that compiled code can change it).
    """

    slots: Ints
    starts: Ints
    arena: Bytes
    used: Ints


def empty(room: int = 1 << 15, size: int = 1 << 22) -> Texts:
    """A dictionary with room for that many texts, of that many bytes together."""
    return Texts(
        np.full(2 * room, FREE, np.int64),
        np.zeros(room + 1, np.int64),
        np.empty(size + SLACK, np.uint8),
        np.zeros(1, np.int64),
    )


def grown(texts: Texts, more: int, size: int) -> Texts:
    """The same texts under the same numbers, with at least that much more room."""
    room = texts.starts.size - 1
    while room < texts.used[0] + more:
        room *= 2
    used = int(texts.starts[texts.used[0]])
    larger = empty(room, max(2 * used, used + size))
    larger.starts[: texts.used[0] + 1] = texts.starts[: texts.used[0] + 1]
    larger.arena[:used] = texts.arena[:used]
    larger.used[0] = texts.used[0]
    _fill(larger, are_words=False)
    return larger


def of_words(words: Sequence[str]) -> Texts:
    """A dictionary of distinct words, numbered in order, for look-ups by ``hash_word``."""
    encoded = [word.encode() for word in words]
    texts = empty(128, 4096)
    text = b"".join(encoded)
    texts.arena[: len(text)] = np.frombuffer(text, np.uint8)
    texts.starts[1 : len(words) + 1] = np.cumsum([len(word) for word in encoded])
    texts.used[0] = len(words)
    _fill(texts, are_words=True)
    return texts


def to_list(texts: Texts) -> list[bytes]:
    """The texts, by number."""
    starts = texts.starts[: texts.used[0] + 1].tolist()
    arena = texts.arena[: starts[-1]].tobytes()
    return [arena[start:stop] for start, stop in pairwise(starts)]


def _fill(texts: Texts, *, are_words: bool) -> None:
    loops().fill_slots(texts.slots, texts.slots.size, texts.starts, texts.arena, texts.used[0], are_words)
