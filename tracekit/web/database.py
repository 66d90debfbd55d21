"""Run single statements on SQLite, or on PostgreSQL if a URL is given.

Every change of state is a single statement, so that a process may be killed between any two of them.
"""

import sqlite3
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from tracekit.errors import TracekitError
from tracekit.messages import web_errors
from tracekit.messages.packages import EXTRA_MISSING
from tracekit.web.errors import DiskFullError

DatabaseRow = dict[str, Any]

SCHEMA_STATEMENTS = (
    """CREATE TABLE IF NOT EXISTS uploads (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, length BIGINT, job TEXT,
        expires DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS jobs (
        id TEXT PRIMARY KEY, link TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, uploads TEXT NOT NULL, state TEXT NOT NULL,
        request TEXT, stage TEXT NOT NULL, found TEXT, error TEXT, output TEXT, formats TEXT NOT NULL,
        attempts INTEGER NOT NULL, worker TEXT, claim TEXT, lease DOUBLE PRECISION,
        created DOUBLE PRECISION NOT NULL, queued DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, queued)",
    "CREATE INDEX IF NOT EXISTS jobs_by_owner ON jobs (owner, created)",
)

# SQLite locks the whole database for a writing statement; PostgreSQL locks only the row, if the statement says so.
SKIP_LOCKED = "/*skip locked*/"

LOCK_TIMEOUT_S = 30.0


class Database:
    """Store of uploads and jobs: one connection, used by one thread at a time.

    Args:
        path: SQLite file.
        url: ``postgresql://`` URL, used instead of ``path``.

    Raises:
        TracekitError: A URL is given and psycopg isn't installed.
    """

    def __init__(self, path: Path, url: str | None = None) -> None:
        self._lock = threading.Lock()
        self._connection: Any = _connect_sqlite(path) if url is None else _connect_postgres(url)
        self._path, self._url = path, url
        for statement in SCHEMA_STATEMENTS:
            self.run(statement)

    def run(self, statement: str, *values: Any) -> list[DatabaseRow]:
        """Run one statement, with ``?`` for each value; return its rows, if any.

        Raises:
            FullError: The disk is full.
        """
        with self._lock:
            return (
                self._run_on_sqlite(statement, values)
                if self._url is None
                else self._run_on_postgres(statement, values)
            )

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _run_on_sqlite(self, statement: str, values: tuple[Any, ...]) -> list[DatabaseRow]:
        try:
            return [dict(row) for row in self._connection.execute(statement, values).fetchall()]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE):
                raise DiskFullError(web_errors.DISK_FULL()) from error
            raise

    def _run_on_postgres(self, statement: str, values: tuple[Any, ...]) -> list[DatabaseRow]:
        if self._connection.closed:
            self._connection = _connect_postgres(str(self._url))
        translated = statement.replace(SKIP_LOCKED, "FOR UPDATE SKIP LOCKED").replace("?", "%s")
        cursor = self._connection.execute(translated, values)
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _connect_sqlite(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA secure_delete=ON")
    connection.row_factory = sqlite3.Row
    return connection


def _connect_postgres(url: str) -> Any:
    try:
        psycopg = import_module("psycopg")
    except ImportError as error:
        raise TracekitError(EXTRA_MISSING(distribution="psycopg", reason=str(error), extra="postgresql")) from error
    return psycopg.connect(url, autocommit=True)
