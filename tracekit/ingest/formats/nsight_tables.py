"""Read tables: those of an SQLite database, or those that ``nsys export`` writes as a folder of Parquet files."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl
from polars.datatypes import DataTypeClass

from tracekit.errors import DamagedTraceError
from tracekit.ingest.formats.tables import ForeignFile
from tracekit.messages.traces import FORMAT_DAMAGED

TEXT_COLUMNS = frozenset(
    {"value", "text", "name", "string", "display_name", "kernel_name", "product_name", "type", "extdata"}
)
"""Columns that hold text; all others that are read hold integers."""
ROWS_AT_ONCE = 100_000
BYTES_PER_VALUE = 8
MAX_VALUE_BYTES = 1 << 20
"""Longest value that is read; SQLite refuses longer ones."""

ReadTable = Callable[[str, Sequence[str]], pl.DataFrame]
"""Reads some columns of a table. A missing table has no rows, a missing column is null."""


@contextmanager
def open_database(file: ForeignFile) -> Iterator["SqliteTables"]:
    """Open an SQLite database, and yield its tables.

    Raises:
        DamagedTraceError: It is cut short or corrupt.
        TraceTooLargeError: Its tables need more memory than allowed.
    """
    try:
        with closing(sqlite3.connect(f"{file.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = _decode_text
            yield SqliteTables(connection, file)
    except sqlite3.Error as error:
        raise DamagedTraceError(FORMAT_DAMAGED(path=file.name, form="SQLite database", reason=str(error))) from error


def open_parquet_folder(file: ForeignFile) -> ReadTable:
    """Return the function that reads the tables of a folder.

    It raises DamagedTraceError for a file that is no Parquet, and TraceTooLargeError.
    """

    def read(table: str, columns: Sequence[str]) -> pl.DataFrame:
        path = file.path / f"{table}.parquet"
        if not path.is_file():
            return pl.DataFrame(schema=_choose_types(columns))
        try:
            found = pl.read_parquet_schema(path)
            file.check_size(pl.scan_parquet(path).select(pl.len()).collect().item() * len(columns) * BYTES_PER_VALUE)
            frame = pl.read_parquet(path, columns=[name for name in columns if name in found])
            return frame.select(
                (pl.col(name) if name in found else pl.lit(None)).cast(dtype, strict=False).alias(name)
                for name, dtype in _choose_types(columns).items()
            )
        except (pl.exceptions.PolarsError, OSError) as error:
            raise _make_damaged_error(path, error) from error

    return read


def _make_damaged_error(path: Path, error: Exception) -> DamagedTraceError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return DamagedTraceError(FORMAT_DAMAGED(path=str(path), form="Parquet file", reason=reason))


class SqliteTables:
    """The tables of a database; views and virtual tables aren't among them.

    Attributes:
        names: Their names.
    """

    def __init__(self, connection: sqlite3.Connection, file: ForeignFile) -> None:
        self._connection = connection
        self._file = file
        self._size_bytes = 0
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'")
        self.names = {name for (name,) in found.fetchall()}

    def read(self, table: str, columns: Sequence[str]) -> pl.DataFrame:
        """Read some columns of a table."""
        types = _choose_types(columns)
        if table not in self.names:
            return pl.DataFrame(schema=types)
        known = {name for _, name, *_ in self._connection.execute(f'PRAGMA table_info("{table}")')}
        wanted = ", ".join(_select_column(name, name in known) for name in columns)
        cursor = self._connection.execute(f'SELECT {wanted} FROM "{table}"')
        parts = [pl.DataFrame(schema=types)]
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            parts.append(pl.DataFrame(rows, schema=types, orient="row"))
            self._size_bytes += int(parts[-1].estimated_size())
            self._file.check_size(self._size_bytes)
        return pl.concat(parts)


def _select_column(name: str, is_known: bool) -> str:
    """Return the SQL of a column, converted, as SQLite lets any column hold any type."""
    if not is_known:
        return "NULL"
    return f'CAST("{name}" AS {"TEXT" if name in TEXT_COLUMNS else "INTEGER"})'


def _choose_types(columns: Sequence[str]) -> dict[str, DataTypeClass]:
    return {name: pl.String if name in TEXT_COLUMNS else pl.Int64 for name in columns}


def _decode_text(text: bytes) -> str:
    return text.decode(errors="replace")
