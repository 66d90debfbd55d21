"""Hand the tables of another format to the stages that build a trace, as if its events had been decoded.

Named ranges of a profiler stand for PyTorch's ops, steps, or annotations. ``torch.autograd.profiler.emit_nvtx`` names
an op's range ``aten::mm, seq = 3, op_id = 7, sizes = [[8, 8], [8, 8]]`` (``getNvtxStr`` of
``torch/csrc/profiler/util.cpp``). Steps are ranges such as ``step 12`` or ``iteration_12``.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.errors import TraceTooLargeError
from tracekit.ingest.columns import DecodedColumns, DecodedFile, FileDamage
from tracekit.ingest.fields import INTS, NO_TEXT, NULL, TABLES
from tracekit.messages import traces
from tracekit.messages.traces import CATEGORY_NOT_READ


class ForeignTrace(NamedTuple):
    """What a reader finds in a file.

    Attributes:
        tables: Rows by the names and fields of ``fields.TABLES``, all optional; times are nanoseconds.
        keys: What Kineto writes as top-level keys: ``deviceProperties``, ``baseTimeNanoseconds``.
        thread_names: Name of each thread that has one, by process and thread.
        unread: Number of events that aren't read, by category.
        has_processes: Whether activities and syncs note the process that asked for them.
    """

    tables: Mapping[str, pl.DataFrame]
    keys: Mapping[str, object]
    thread_names: Mapping[tuple[int, int], str] = {}
    unread: Mapping[str, int] = {}
    has_processes: bool = False


class ForeignFile(NamedTuple):
    """A file to read, uncompressed on this machine.

    Attributes:
        path: Where it is.
        name: Its name in messages.
        memory_bytes: Memory limit of its tables.
    """

    path: Path
    name: str
    memory_bytes: int

    def check_size(self, size_bytes: int) -> None:
        """Check what was read so far against the memory limit.

        Raises:
            TraceTooLargeError: It is more.
        """
        if size_bytes > self.memory_bytes:
            raise TraceTooLargeError(traces.TRACE_TOO_LARGE(path=self.name, limit_bytes=self.memory_bytes))

    def check_texts(self, tables: Iterable[pl.DataFrame]) -> None:
        """Check the texts of tables against the limit, as large as if each were stored where it occurs.

        Raises:
            TraceTooLargeError: They are more.
        """
        lengths = (table.select(pl.col(pl.String).str.len_bytes().sum()) for table in tables)
        self.check_size(sum(sum(row) for length in lengths if length.width for row in length.iter_rows()))


def to_decoded_file(trace: ForeignTrace) -> DecodedFile:
    """Convert what a reader found to what the decoders of Kineto's events return."""
    columns = DecodedColumns()
    columns.thread_names.update(trace.thread_names)
    words = _collect_words(trace.tables.values())
    passed = 0
    for name, table in trace.tables.items():
        numbers = np.arange(passed, passed + table.height)
        columns.add(name, {field: _encode_column(table, field, words) for field in TABLES[name]}, numbers)
        passed += table.height
    for category, count in trace.unread.items():
        columns.counts.add(CATEGORY_NOT_READ, category, count=count)
        passed += count
    keys = {key: msgspec.json.encode(value) for key, value in trace.keys.items()}
    return DecodedFile(
        keys,
        columns,
        [word.encode() for word in words.categories],
        FileDamage(events=passed),
        has_processes=trace.has_processes,
    )


def format_vector(*sizes: str) -> pl.Expr:
    """Write columns as Kineto writes a grid or a block: ``[8,1,1]``."""
    return pl.format("[{},{},{}]", *sizes)


def build_table(name: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Build a table of ``fields.TABLES`` from its rows; values of a wrong type are left out."""
    columns = {}
    given = {field for row in rows for field in row}
    for field in (field for field in TABLES[name] if field in given):
        values = [row.get(field) for row in rows]
        if field in INTS:
            numbers = [v if type(v) is int and -(2**63) < v < 2**63 else None for v in values]
            columns[field] = pl.Series(numbers, dtype=pl.Int64)
        else:
            columns[field] = build_texts([v if isinstance(v, str) else None for v in values])
    return pl.DataFrame(columns)


def build_texts(values: Sequence[str | None]) -> pl.Series:
    """Build a column of texts, each stored once: a small file may refer to a long one a million times."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(v for v in values if v is not None))}
    places = pl.Series([None if v is None else numbers[v] for v in values], dtype=pl.UInt32)
    return pl.Series(list(numbers), dtype=pl.String).gather(places)


def _collect_words(tables: Iterable[pl.DataFrame]) -> pl.Enum:
    texts = [table[f].drop_nulls().unique() for table in tables for f in table.columns if table[f].dtype == pl.String]
    return pl.Enum(pl.concat(texts).unique(maintain_order=True)) if texts else pl.Enum([])


def _encode_column(table: pl.DataFrame, field: str, words: pl.Enum) -> Ints:
    """Return a field's numbers, or the numbers of its texts."""
    null = NULL if field in INTS else NO_TEXT
    if field not in table.columns:
        return np.full(table.height, null)
    column = table[field] if field in INTS else table[field].cast(words).to_physical()
    return column.cast(pl.Int64, strict=False).fill_null(null).to_numpy()


_DIRECTIONS = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD", "HOST_TO_HOST": "HtoH"}


def name_copies(otherwise: pl.Expr) -> pl.Expr:
    """Return ``Memcpy HtoD`` for ``MEMORY_COPY_HOST_TO_DEVICE`` in the column ``name``.

    Args:
        otherwise: The name of copies whose direction isn't told.
    """
    direction = pl.col("name").str.extract(f"({'|'.join(_DIRECTIONS)})$").replace(_DIRECTIONS)
    return pl.coalesce(pl.format("Memcpy {}", direction), otherwise)


_OP = (
    r"^(?P<name>.*?)(?:, seq = (?P<sequence>\d{1,18}))?, op_id = (?P<id>\d{1,18})"
    r"(?:, sizes = (?P<dims>\[.*?\]))?(?:, input_op_ids = .*)?$"
)
_STEP = r"(?i)^(?:train(?:ing)?[ _-]?)?(?:step|iter|iteration|batch)[ _:#=-]*([0-9]{1,18})$"


def split_ranges(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split ranges into ops and annotations; steps are named as PyTorch's profiler names them.

    Args:
        ranges: ``ts_ns``, ``dur_ns``, ``name``, ``pid`` and ``tid``.
    """
    span = ranges.select("ts_ns", "dur_ns", "name", "pid", "tid")
    part = pl.col("name").str.extract_groups(_OP).struct
    is_op = part.field("id").is_not_null()
    ops = span.filter(is_op).with_columns(
        name=part.field("name"), sequence=part.field("sequence").cast(pl.Int64), input_dims=part.field("dims")
    )
    step = pl.format("ProfilerStep#{}", pl.col("name").str.extract(_STEP))
    return ops, span.filter(~is_op).with_columns(name=pl.coalesce(step, "name"))
