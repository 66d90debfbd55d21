"""Store decoded rows column by column, in pieces as they arrive, each as narrow as its values allow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.arrays import Bools, Ints, gather_rows, make_column, make_nulls
from tracekit.ingest.fields import ARGUMENTS, INTS, NO_TEXT, NULL, TABLES, TEXTS, ArgumentKind
from tracekit.ingest.ledger import EventCounts
from tracekit.ingest.native.scan import RowBuffers, transpose_rows
from tracekit.messages import Template
from tracekit.messages.traces import EVENTS_BACKWARD, EVENTS_DISTANT, EVENTS_READ, EVENTS_UNTIMED


def argsort_by_start(ts_ns: Ints, dur_ns: Ints, rows_at: Callable[[Ints], pl.DataFrame]) -> Ints:
    """Return the order of rows by start, enclosing rows first; all other columns break ties.

    Args:
        ts_ns: Start of each row.
        dur_ns: Duration of each row.
        rows_at: Returns some rows with all their columns; called for rows with equal start and duration.
    """
    order = np.lexsort((-dur_ns, ts_ns))
    same = (np.diff(ts_ns[order]) == 0) & (np.diff(dur_ns[order]) == 0)
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if order.size else order
    if tied.size:
        rows = order[tied]
        frame = rows_at(rows).with_row_index("row")
        rest = [name for name in frame.columns if name not in ("row", "ts_ns", "dur_ns")]
        descending = [False, True, *(False for _ in rest)]
        order[tied] = rows[
            frame.sort("ts_ns", "dur_ns", *rest, descending=descending, nulls_last=True)["row"].to_numpy()
        ]
    return order


# The year 2116 (2^62 ns), and seven days: larger times are counters that overflowed.
MAX_TIME_NS = 2**62
MAX_SPAN_NS = 7 * 86400 * 10**9

NULL_INT32 = np.iinfo(np.int32).min

_EVENT = "event"
"""Field of a row's number among the file's events."""

_JSON_FIELDS = {field for field, kind in ARGUMENTS.values() if kind is ArgumentKind.RAW}
_INT_COLUMNS = {t: np.array([INTS.index(f) for f in fields if f in INTS]) for t, fields in TABLES.items()}
_TEXT_COLUMNS = {t: np.array([TEXTS.index(f) for f in fields if f in TEXTS]) for t, fields in TABLES.items()}
_ORDERED_FIELDS = {t: [f for n in (INTS, TEXTS) for f in fields if f in n] for t, fields in TABLES.items()}

_EMPTY_TABLES = {t: pl.DataFrame(schema={f: pl.Int64 if f in INTS else pl.String for f in TABLES[t]}) for t in TABLES}

ColumnPiece = int | npt.NDArray[np.int32] | Ints


class DecodedColumns:
    """The rows decoded so far.

    Left out are rows whose time is unknown (CUPTI writes 0, 0 then, and durations that overflowed), and rows that lie
    days from the others of their table. Rows that end before they begin are kept.

    Attributes:
        counts: What became of the events. Rows of a table that were read are complete once the table is taken.
        nbytes: Memory of the rows.
        rows: Number of rows.
        thread_names: Name of each thread that has one, by process and thread; the last one given.
    """

    def __init__(self) -> None:
        self.counts = EventCounts()
        self.nbytes = 0
        self.rows = 0
        self.thread_names: dict[tuple[int, int], str] = {}
        self._pieces: dict[str, dict[str, list[ColumnPiece]]] = {
            t: {f: [] for f in (_EVENT, *TABLES[t])} for t in TABLES
        }

    def add_rows(self, rows: RowBuffers, filled: int) -> None:
        """Copy the first rows from the scanner's buffers."""
        if not filled:
            return
        timed, backward = _judge_times(rows.ints[:filled, 0], rows.ints[:filled, 1])
        for number, table in enumerate(TABLES):
            of_table = rows.table[:filled] == number
            found = np.flatnonzero(of_table & timed)
            self._count(EVENTS_UNTIMED, table, rows.event_of[:filled][of_table & ~timed])
            self._count(EVENTS_BACKWARD, table, rows.event_of[:filled][of_table & backward])
            if found.size:
                ints = transpose_rows(rows.ints, found, _INT_COLUMNS[table])
                texts = transpose_rows(rows.texts, found, _TEXT_COLUMNS[table])
                self._append(table, [rows.event_of[found], *ints, *texts])

    def add(self, table: str, columns: Mapping[str, Ints], numbers: Ints) -> None:
        """Add rows to a table.

        Args:
            table: Its name.
            columns: Values by field; texts are given as numbers.
            numbers: Number of each row's event in the file.
        """
        timed, backward = _judge_times(columns["ts_ns"], columns["dur_ns"])
        self._count(EVENTS_UNTIMED, table, numbers[~timed])
        self._count(EVENTS_BACKWARD, table, numbers[backward])
        if timed.any():
            self._append(table, [numbers[timed], *(columns[field][timed] for field in _ORDERED_FIELDS[table])])

    def take_table(self, table: str, words: pl.Series, compact: pl.Series) -> pl.DataFrame:
        """Remove the rows of a table and return them as a frame, ordered by start.

        Args:
            table: Its name.
            words: The texts by number; numbers below -1 count from the end, which is -2.
            compact: The same texts as compact JSON values, for fields that hold JSON.
        """
        pieces = self._pieces.pop(table)
        events = pieces.pop(_EVENT)
        if not pieces["ts_ns"]:
            return _EMPTY_TABLES[table]
        order = argsort_by_start(
            _widen_pieces(pieces["ts_ns"], NULL),
            _widen_pieces(pieces["dur_ns"], NULL),
            lambda rows: pl.DataFrame(
                {f: _build_column(f, parts, rows, words, compact) for f, parts in pieces.items()}
            ),
        )
        rows = pl.DataFrame(
            {field: _build_column(field, pieces.pop(field), order, words, compact) for field in TABLES[table]}
        )
        numbers = _widen_pieces(events, NULL)
        near = _select_near(rows["ts_ns"].to_numpy())
        self._count(EVENTS_READ, table, numbers[order[near]])
        self._count(EVENTS_DISTANT, table, numbers[order[~near]])
        return rows if near.all() else rows.filter(pl.Series(near))

    def _count(self, template: Template, table: str, numbers: Ints) -> None:
        if numbers.size:
            self.counts.add(template, table, count=numbers.size, first=int(numbers.min()))

    def _append(self, table: str, columns: Sequence[Ints]) -> None:
        self.rows += columns[0].size
        for field, values in zip((_EVENT, *_ORDERED_FIELDS[table]), columns, strict=True):
            piece = _narrow_values(values, NO_TEXT if field in TEXTS else NULL)
            self.nbytes += 0 if isinstance(piece, int) else piece.nbytes
            self._pieces[table][field].append(piece)


def _judge_times(ts: Ints, dur: Ints) -> tuple[Bools, Bools]:
    """Return which rows have a usable time, and which of them end before they begin."""
    known = (ts != NULL) & (dur != NULL) & ((ts != 0) | (dur != 0))
    timed = known & (ts < MAX_TIME_NS) & (ts > -MAX_TIME_NS) & (dur < MAX_SPAN_NS)
    return timed, timed & (dur < 0)


def _select_near(starts: Ints) -> Bools:
    """Select the ordered starts that aren't absurd, such as 1970 among starts of today."""
    if starts[-1] - starts[0] <= MAX_SPAN_NS:
        return np.ones(starts.size, np.bool_)
    near: Bools = np.abs(starts - starts[starts.size // 2]) <= MAX_SPAN_NS
    return near


def _narrow_values(values: Ints, null: int) -> ColumnPiece:
    """Store the values in 32 bits if they fit; store only their count if all are missing."""
    low, high = values.min(initial=2**63 - 1), values.max(initial=-(2**63))
    if low == high == null:
        return values.size
    if high > 2**31 - 1 or (low <= NULL_INT32 and low != null):
        return values.copy()
    if null == NO_TEXT or low > NULL_INT32:
        return values.astype(np.int32)
    missing = values == null
    if values[~missing].min() <= NULL_INT32:
        return values.copy()
    return np.where(missing, NULL_INT32, values).astype(np.int32)


def _widen_pieces(pieces: Sequence[ColumnPiece], null: int) -> Ints:
    """Concatenate pieces as 64-bit integers."""
    sizes = [piece if isinstance(piece, int) else piece.size for piece in pieces]
    values = np.empty(sum(sizes), np.int64)
    start = 0
    for piece, size in zip(pieces, sizes, strict=True):
        values[start : start + size] = null if isinstance(piece, int) else piece
        if null == NULL and not isinstance(piece, int) and piece.dtype == np.int32:
            part = values[start : start + size]
            part[part == NULL_INT32] = NULL
        start += size
    return values


def _build_column(
    field: str, pieces: Sequence[ColumnPiece], rows: Ints, words: pl.Series, compact: pl.Series
) -> pl.Series:
    """Build some rows of a column."""
    texts = compact if field in _JSON_FIELDS else words
    if all(isinstance(piece, int) for piece in pieces):
        return make_nulls(field, rows.size, pl.Int64 if field in INTS else texts.dtype)
    return (
        make_column(field, _widen_pieces(pieces, NULL)[rows], NULL)
        if field in INTS
        else _look_up_texts(texts, _widen_pieces(pieces, NO_TEXT)[rows])
    )


def _look_up_texts(words: pl.Series, numbers: Ints) -> pl.Series:
    rows = np.where(numbers < NO_TEXT, numbers + len(words) + 1, numbers)
    return gather_rows(words, make_column(words.name, rows, NO_TEXT))


@dataclass(slots=True)
class FileDamage:
    """Damage of a file.

    Attributes:
        events: Events passed, of all kinds.
        lost: Events that could not be read.
        lost_work: How many of them may be kernels, copies or sets, by what is left of their text.
        repaired: Events that could, after putting their JSON right.
        at_byte: Where the first of them is.
        cut_at: Where a file ends that lacks its closing bracket.
        metadata: Whether top-level keys were lost.
        followed_at: Where something begins that follows the closing bracket.
        followed_bytes: How long that is.
        comma_number: A time with a decimal comma, which isn't JSON.
    """

    events: int = 0
    lost_events: int = 0
    lost_activities: int = 0
    repaired_events: int = 0
    at_byte: int | None = None
    cut_at: int | None = None
    has_lost_metadata: bool = False
    followed_at: int | None = None
    followed_bytes: int = 0
    comma_number: str | None = None

    def note_place(self, at_byte: int) -> None:
        """Remember the position of the first damage."""
        self.at_byte = at_byte if self.at_byte is None else self.at_byte


@dataclass(slots=True)
class DecodedFile:
    """Content of a file.

    Attributes:
        keys: Top-level keys without the events, as JSON.
        columns: Rows of the events.
        words: Texts by number: those of the scanner from the start, those of the careful decoder from the end.
        damage: Damage of the file.
        begins_at: Where its document begins.
        ends_at: Where the file ends, if it was read by document.
        has_processes: Whether activities note the process that asked for them; Kineto notes their GPU there.
    """

    keys: dict[str, bytes]
    columns: DecodedColumns
    words: list[bytes]
    damage: FileDamage
    begins_at: int = 0
    ends_at: int = 0
    has_processes: bool = False
