"""Decoded rows on their way to tables: column by column, in pieces as they come, each as narrow as its values allow."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.ingest.fields import ARGUMENTS, INTS, NO_TEXT, NULL, TABLES, TEXTS, Kind
from tracekit.ingest.order import by_start
from tracekit.ingest.scan import Rows, transposed

# The year 2116 (2^62 ns), and seven days: times beyond are counters that overflowed.
LATEST_NS = 2**62
LONGEST_NS = 7 * 86400 * 10**9

NARROW_NULL = np.iinfo(np.int32).min

_JSON = {field for field, kind in ARGUMENTS.values() if kind is Kind.RAW}
_INT_PLACES = {t: np.array([INTS.index(f) for f in fields if f in INTS]) for t, fields in TABLES.items()}
_TEXT_PLACES = {t: np.array([TEXTS.index(f) for f in fields if f in TEXTS]) for t, fields in TABLES.items()}
_ORDERED_FIELDS = {t: [f for n in (INTS, TEXTS) for f in fields if f in n] for t, fields in TABLES.items()}

_NUMBERS = pl.Series(dtype=pl.Int64)
_EMPTY = {t: pl.DataFrame(schema={f: pl.Int64 if f in INTS else pl.String for f in TABLES[t]}) for t in TABLES}

Piece = int | npt.NDArray[np.int32] | Ints


class Columns:
    """What was decoded so far.

    Attributes:
        untimed: Rows left out because they don't say when they ran: CUPTI writes 0, 0 where it doesn't know, and
            durations that overflowed.
        backward: Rows that end before they begin.
        distant: Rows left out because they lie days from the others of their table.
        nbytes: Memory that the rows take.
        rows: How many there are.
    """

    def __init__(self) -> None:
        self.untimed = 0
        self.backward = 0
        self.distant = 0
        self.nbytes = 0
        self.rows = 0
        self._pieces: dict[str, dict[str, list[Piece]]] = {t: {f: [] for f in TABLES[t]} for t in TABLES}

    def add_rows(self, rows: Rows, filled: int) -> None:
        """Take over the first rows of what the scanner filled."""
        timed = self._timed(rows.ints[:filled, 0], rows.ints[:filled, 1])
        for number, table in enumerate(TABLES):
            found = np.flatnonzero((rows.table[:filled] == number) & timed)
            if found.size:
                ints = transposed(rows.ints, found, _INT_PLACES[table])
                texts = transposed(rows.texts, found, _TEXT_PLACES[table])
                self._add(table, [*ints, *texts])

    def add(self, table: str, columns: Mapping[str, Ints]) -> None:
        """Add rows to a table, given by field; texts as their numbers."""
        timed = self._timed(columns["ts_ns"], columns["dur_ns"])
        if timed.any():
            self._add(table, [columns[field][timed] for field in _ORDERED_FIELDS[table]])

    def take(self, table: str, words: pl.Series, compact: pl.Series) -> pl.DataFrame:
        """The rows of a table as a frame, ordered by start; they are forgotten here.

        Args:
            table: Its name.
            words: The texts by number; numbers below -1 count from their end, which is -2.
            compact: The same texts as compact JSON values, for the fields that hold JSON.
        """
        pieces = self._pieces.pop(table)
        if not pieces["ts_ns"]:
            return _EMPTY[table]
        order = by_start(
            _wide(pieces["ts_ns"], NULL),
            _wide(pieces["dur_ns"], NULL),
            lambda rows: pl.DataFrame({f: _column(f, parts, rows, words, compact) for f, parts in pieces.items()}),
        )
        rows = pl.DataFrame(
            {field: _column(field, pieces.pop(field), order, words, compact) for field in TABLES[table]}
        )
        return self._together(rows)

    def _together(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Without rows whose time can't be meant, such as one of 1970 among others of today."""
        starts = rows["ts_ns"]
        if starts[-1] - starts[0] <= LONGEST_NS:
            return rows
        near = rows.filter((starts - starts[len(starts) // 2]).abs() <= LONGEST_NS)
        self.distant += rows.height - near.height
        return near

    def _timed(self, ts: Ints, dur: Ints) -> Bools:
        known = (ts != NULL) & (dur != NULL) & ((ts != 0) | (dur != 0))
        timed: Bools = known & (ts < LATEST_NS) & (ts > -LATEST_NS) & (dur < LONGEST_NS)
        self.untimed += timed.size - int(np.count_nonzero(timed))
        self.backward += int(np.count_nonzero(timed & (dur < 0)))
        return timed

    def _add(self, table: str, columns: Sequence[Ints]) -> None:
        self.rows += columns[0].size
        for field, values in zip(_ORDERED_FIELDS[table], columns, strict=True):
            piece = _narrow(values, NULL if field in INTS else NO_TEXT)
            self.nbytes += 0 if isinstance(piece, int) else piece.nbytes
            self._pieces[table][field].append(piece)


def _narrow(values: Ints, null: int) -> Piece:
    """The values in half the room if they allow it; just their number if all are missing."""
    low, high = values.min(initial=2**63 - 1), values.max(initial=-(2**63))
    if low == high == null:
        return values.size
    if high > 2**31 - 1 or (low <= NARROW_NULL and low != null):
        return values.copy()
    if null == NO_TEXT or low > NARROW_NULL:
        return values.astype(np.int32)
    missing = values == null
    if values[~missing].min() <= NARROW_NULL:
        return values.copy()
    return np.where(missing, NARROW_NULL, values).astype(np.int32)


def _wide(pieces: Sequence[Piece], null: int) -> Ints:
    """Pieces put together again."""
    sizes = [piece if isinstance(piece, int) else piece.size for piece in pieces]
    values = np.empty(sum(sizes), np.int64)
    start = 0
    for piece, size in zip(pieces, sizes, strict=True):
        values[start : start + size] = null if isinstance(piece, int) else piece
        if null == NULL and not isinstance(piece, int) and piece.dtype == np.int32:
            part = values[start : start + size]
            part[part == NARROW_NULL] = NULL
        start += size
    return values


def _column(field: str, pieces: Sequence[Piece], rows: Ints, words: pl.Series, compact: pl.Series) -> pl.Series:
    """Some rows of a column."""
    texts = compact if field in _JSON else words
    if all(isinstance(piece, int) for piece in pieces):
        return (_NUMBERS if field in INTS else texts).clear(rows.size)
    return _nullable(_wide(pieces, NULL)[rows]) if field in INTS else _lookup(texts, _wide(pieces, NO_TEXT)[rows])


def _nullable(values: Ints) -> pl.Series:
    series, missing = pl.Series(values), values == NULL
    return series.set(pl.Series(missing), None) if missing.any() else series


def _lookup(words: pl.Series, numbers: Ints) -> pl.Series:
    rows = pl.Series(np.where(numbers < NO_TEXT, numbers + len(words) + 1, numbers))
    missing = numbers == NO_TEXT
    return words.gather(rows.set(pl.Series(missing), None) if missing.any() else rows)
