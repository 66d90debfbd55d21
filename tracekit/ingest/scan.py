"""The fast decoder, as Python calls it: :mod:`native.events` fills rows."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.fields import INTS, TEXTS
from tracekit.ingest.native import loops
from tracekit.ingest.native.constants import ROWS
from tracekit.ingest.texts import Texts
from tracekit.ingest.vocabulary import Vocabulary


class Rows(NamedTuple):
    """Room for the rows of one call.

    Attributes:
        table: The table of each event.
        ints: Its numbers.
        texts: Its texts' numbers.
        spans: Where the texts of the event at hand are in the buffer.
    """

    table: npt.NDArray[np.int8]
    ints: Ints
    texts: Ints
    spans: Ints


def room() -> Rows:
    """Rows to fill."""
    return Rows(
        np.empty(ROWS, np.int8),
        np.empty((ROWS, len(INTS)), np.int64),
        np.empty((ROWS, len(TEXTS)), np.int64),
        np.empty(2 * len(TEXTS), np.int64),
    )


def scan(
    buffer: Bytes, at: int, end: int, words: Vocabulary, texts: Texts, rows: Rows, filled: int
) -> tuple[int, int, int, int]:
    """Rows for the events from ``at`` on.

    Args:
        buffer: JSON text, and ``SLACK`` bytes behind it.
        at: Where to begin: between two events, or at one.
        end: Where the text ends for now.
        words: The vocabulary.
        texts: Every distinct text so far; new ones are added.
        rows: Room for ``ROWS`` rows.
        filled: How many of them are filled already.

    Returns:
        Why it stopped (``MORE``, ``UNUSUAL``, ``CLOSED``, ``FULL``), where, rows filled, and events passed.
    """
    place = np.array([at, end, filled, 0])
    status = loops().scan(
        *(buffer, place),
        *(words.slots, words.slots.size, words.starts, words.arena, words.meaning),
        *(texts.slots, texts.slots.size, texts.starts, texts.arena, texts.arena.size, texts.used),
        *rows,
    )
    at, _, filled, events = place.tolist()
    return status, at, filled, events


def transposed(table: Ints, rows: Ints, columns: Ints) -> Ints:
    """Some rows of some columns of a table, column by column."""
    result = np.empty((columns.size, rows.size), np.int64)
    loops().transposed(table, table.shape[1], rows, rows.size, columns, columns.size, result)
    return result
