"""Decoded rows on their way to tables: per table, blocks of numbers as they come."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.ingest.fields import INTS, NO_TEXT, NULL, TABLES, TEXTS
from tracekit.ingest.scan import Rows
from tracekit.ingest.texts import Ints

# The year 2116 (2^62 ns), and seven days: times beyond are counters that overflowed.
LATEST_NS = 2**62
LONGEST_NS = 7 * 86400 * 10**9

_NAMES = tuple(TABLES)
_INTS_OF = {table: [INTS.index(field) for field in fields if field in INTS] for table, fields in TABLES.items()}
_TEXTS_OF = {table: [TEXTS.index(field) for field in fields if field in TEXTS] for table, fields in TABLES.items()}


class Columns:
    """What was decoded so far.

    Attributes:
        untimed: Rows left out because they don't say when they ran: CUPTI writes 0, 0 where it doesn't know, and
            durations that overflowed.
        nbytes: Memory that the rows take.
    """

    def __init__(self) -> None:
        self.untimed = 0
        self.nbytes = 0
        self._ints: dict[str, list[Ints]] = {table: [] for table in TABLES}
        self._texts: dict[str, list[npt.NDArray[np.int32]]] = {table: [] for table in TABLES}

    def add_rows(self, rows: Rows, filled: int) -> None:
        """Take over the first rows of what the scanner filled."""
        for number, table in enumerate(_NAMES):
            found = np.flatnonzero(rows.table[:filled] == number)
            if found.size:
                self.add(table, rows.ints[found][:, _INTS_OF[table]], rows.texts[found][:, _TEXTS_OF[table]])

    def add(self, table: str, ints: Ints, texts: Ints) -> None:
        """Add rows to a table.

        Args:
            table: Its name.
            ints: A row per event, the table's integer fields in order.
            texts: A row per event, the table's text fields in order, as numbers of texts.
        """
        ts, dur = ints[:, 0], ints[:, 1]
        known = (ts != NULL) & (dur != NULL) & ((ts != 0) | (dur != 0))
        timed = known & (np.abs(ts) < LATEST_NS) & (dur < LONGEST_NS)
        self.untimed += int(timed.size - timed.sum())
        self._ints[table].append(ints[timed])
        self._texts[table].append(texts[timed].astype(np.int32))
        self.nbytes += self._ints[table][-1].nbytes + self._texts[table][-1].nbytes

    def take(self, table: str, words: pl.Series, compact: pl.Series) -> pl.DataFrame:
        """The rows of a table as a frame; they are forgotten here.

        Args:
            table: Its name.
            words: The texts by number; numbers below -1 count from the end, where -2 is the last.
            compact: The same texts as compact JSON values, for the fields that hold JSON.
        """
        fields = TABLES[table]
        ints, texts = self._ints.pop(table), self._texts.pop(table)
        columns: dict[str, pl.Series] = {}
        for place, field in enumerate(f for f in fields if f in INTS):
            columns[field] = _nullable(_joined(part[:, place] for part in ints))
        ints.clear()
        for place, field in enumerate(f for f in fields if f in TEXTS):
            numbers = _joined(part[:, place] for part in texts)
            columns[field] = _lookup(compact if field in _JSON else words, numbers)
        return pl.DataFrame({field: columns[field] for field in fields})


_JSON = frozenset(
    ("input_dims", "input_types", "input_strides", "concrete_inputs", "group_ranks", "grid", "block"),
)


def pack(table: str, columns: Mapping[str, npt.NDArray[np.int64]]) -> tuple[Ints, Ints]:
    """Columns of a table's fields to the rows that :meth:`Columns.add` takes."""
    ints, texts = ([columns[f] for f in TABLES[table] if f in names] for names in (INTS, TEXTS))
    return np.stack(ints, axis=1), np.stack(texts, axis=1)


def _joined(parts: Iterable[npt.NDArray[np.integer]]) -> npt.NDArray[np.integer]:
    parts = list(parts)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _nullable(values: npt.NDArray[np.integer]) -> pl.Series:
    series = pl.Series(values, dtype=pl.Int64)
    return series.set(series == NULL, None) if (values == NULL).any() else series


def _lookup(words: pl.Series, numbers: npt.NDArray[np.integer]) -> pl.Series:
    if not len(words):
        return pl.Series([None] * len(numbers), dtype=words.dtype)
    rows = pl.Series(np.where(numbers < NO_TEXT, numbers + len(words) + 1, numbers), dtype=pl.Int64)
    return words.gather(rows.set(rows == NO_TEXT, None))
