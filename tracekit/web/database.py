"""The database: its tables, and connections to it: SQLite by default, PostgreSQL if a URL is given.

Changes wait for one another, reads for nothing: SQLite's log (WAL) lets them see the state before a change.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Delete,
    Double,
    Engine,
    Index,
    Insert,
    Integer,
    MetaData,
    RowMapping,
    Select,
    Table,
    Text,
    Update,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import ArgumentError, DatabaseError, DataError, IntegrityError, InterfaceError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.types import TypeDecorator

from tracekit.errors import TracekitError
from tracekit.messages import front_ends
from tracekit.messages.requests import EXTRA_MISSING
from tracekit.web.errors import BusyError, DiskFullError


class JsonText(TypeDecorator[Any]):
    """JSON in a column of text, alike in every database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Encode a value."""
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Decode a value."""
        return None if value is None else json.loads(value)


QUEUED, RUNNING, FOUND, DONE, FAILED, DELETED = "queued", "running", "found", "done", "failed", "deleted"
SPLIT = "split"
"""States of a job."""

METADATA = MetaData()

UPLOADS = Table(
    "uploads",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("length", BigInteger),
    Column("job", Text),
    Column("expires", Double, nullable=False),
    Column("network", Text, nullable=False, server_default=""),
    Column("reserved", BigInteger, nullable=False, server_default="0"),
    Column("description", Text, nullable=False, server_default=""),
    Index("uploads_by_owner", "owner"),
    Index("uploads_by_network", "network"),
    Index("uploads_by_job", "job"),
)

JOBS = Table(
    "jobs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("link", Text, nullable=False, unique=True),
    Column("owner", Text, nullable=False),
    Column("uploads", JsonText, nullable=False),
    Column("state", Text, nullable=False),
    Column("request", JsonText),
    Column("stage", Text, nullable=False),
    Column("found", JsonText),
    Column("error", JsonText),
    Column("output", Text),
    Column("formats", JsonText, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("worker", Text),
    Column("claim", Text),
    Column("lease", Double),
    Column("created", Double, nullable=False),
    Column("queued", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("network", Text, nullable=False, server_default=""),
    Column("deaths", Integer, nullable=False, server_default="0"),
    Column("report_bytes", BigInteger, nullable=False, server_default="0"),
    Column("base", Text),
    Column("split_from", Text),
    Column("begun", Double),
    Column("done_fraction", Double, nullable=False, server_default="0"),
    Index("jobs_by_state", "state", "queued"),
    Index("jobs_by_owner", "owner", "created"),
    Index("jobs_by_network", "network"),
    Index("jobs_by_base", "base"),
    Index("jobs_by_split_from", "split_from"),
)


READ_WAIT_S = 1.0
WRITE_WAIT_S = 5.0
CONNECT_WAIT_S = 5

READ_CONNECTIONS = 10
MAX_WAITING_CHANGES = 64
"""Changes that may wait at once: fewer than the server's threads, some of which are left for reading."""

SQLITE_FULL_CODES = ("SQLITE_FULL", "SQLITE_IOERR_WRITE")
POSTGRES_FULL_CODE = "53100"


class Database:
    """Database of uploads and jobs, for many threads.

    Args:
        path: SQLite file.
        url: ``postgresql://`` URL, used instead of ``path``.
        write_wait_s: Longest time that a change waits for others.

    Every method raises :class:`BusyError` if the database is locked or doesn't respond, and :class:`DiskFullError`.

    Raises:
        TracekitError: The URL can't be used, or psycopg isn't installed.
    """

    def __init__(self, path: Path, url: str | None = None, write_wait_s: float = WRITE_WAIT_S) -> None:
        self.name = str(path) if url is None else "PostgreSQL"
        if url is None:
            self._writer = _create_sqlite_writer(path, write_wait_s)
            self._reader = _create_sqlite_reader(path)
        else:
            self._writer = _create_postgres_engine(url, write_wait_s)
            self._reader = _create_postgres_engine(url, READ_WAIT_S, isolation_level="AUTOCOMMIT")
        self._changes = threading.BoundedSemaphore(MAX_WAITING_CHANGES)

    def read(self, query: Select[Any]) -> list[RowMapping]:
        """Return the rows of a query."""
        with _translate_errors(), self._reader.connect() as connection:
            return list(connection.execute(query).mappings())

    def write(self, change: Insert | Update | Delete) -> list[RowMapping]:
        """Make one change; return its rows, if it asks for some."""
        with self.transaction() as connection:
            result = connection.execute(change)
            return list(result.mappings()) if result.returns_rows else []

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Make several changes, all of them or none."""
        if not self._changes.acquire(blocking=False):
            raise BusyError(front_ends.DATABASE_BUSY())
        try:
            with _translate_errors(), self._writer.begin() as connection:
                yield connection
        finally:
            self._changes.release()

    def close(self) -> None:
        """Close all connections."""
        self._reader.dispose()
        self._writer.dispose()


def describe_database_error(error: BaseException) -> str:
    """Return the first line of what the database's driver said."""
    if isinstance(error, PoolTimeoutError):
        return "other changes wait, too"
    return str(getattr(error, "orig", None) or error).partition("\n")[0]


def _create_sqlite_writer(path: Path, wait_s: float) -> Engine:
    """Create the engine of one connection, at which changes queue; each begins by taking SQLite's lock."""
    engine = create_engine(
        _make_sqlite_url(path),
        connect_args={"timeout": wait_s},
        pool_size=1,
        max_overflow=0,
        pool_timeout=wait_s,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver begins no transaction by itself
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA secure_delete=ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _create_sqlite_reader(path: Path) -> Engine:
    engine = create_engine(
        _make_sqlite_url(path),
        connect_args={"timeout": READ_WAIT_S},
        pool_size=READ_CONNECTIONS,
        max_overflow=0,
        pool_timeout=READ_WAIT_S,
        isolation_level="AUTOCOMMIT",
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.execute("PRAGMA query_only=ON")

    return engine


def _make_sqlite_url(path: Path) -> URL:
    return URL.create("sqlite", database=str(path))


def _create_postgres_engine(url: str, wait_s: float, **options: Any) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise TracekitError(front_ends.DATABASE_URL_UNUSABLE())
    try:
        return create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            connect_args={"options": f"-c lock_timeout={wait_s:.0f}s", "connect_timeout": CONNECT_WAIT_S},
            pool_size=READ_CONNECTIONS,
            pool_timeout=wait_s,
            pool_pre_ping=True,
            **options,
        )
    except ImportError as error:
        raise TracekitError(EXTRA_MISSING(distribution="psycopg", reason=str(error), extra="postgresql")) from error


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn the errors of a database that can't work now into the server's own; others are bugs."""
    try:
        yield
    except PoolTimeoutError as error:
        raise BusyError(front_ends.DATABASE_BUSY()) from error
    except (DataError, IntegrityError, ProgrammingError):
        raise
    except (DatabaseError, InterfaceError) as error:
        code = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None)
        if code in (*SQLITE_FULL_CODES, POSTGRES_FULL_CODE):
            raise DiskFullError(front_ends.DISK_FULL()) from error
        raise BusyError(front_ends.DATABASE_BUSY()) from error
