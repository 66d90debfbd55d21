"""Python interface of the fast decoder: :mod:`native.events` fills row buffers."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.fields import INTS, TEXTS
from tracekit.ingest.native import get_loops
from tracekit.ingest.native.constants import MAX_ROWS, MAX_SKIPPED
from tracekit.ingest.native.texts import TextTable
from tracekit.ingest.native.vocabulary import Vocabulary


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
