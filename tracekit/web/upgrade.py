"""Bring the database to the schema of this version as the server starts; refuse what can't be used."""

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError

from tracekit.errors import TracekitError
from tracekit.messages import front_ends
from tracekit.web.database import JOBS, METADATA, Database, describe_database_error
from tracekit.web.errors import BusyError, DiskFullError

VERSION_TABLE = "tracekit_version"
FIRST_VERSION = "0001"
"""Schema of servers that noted no version."""

POSTGRES_LOCK = 0x7472616365
"""Advisory lock of servers that start at the same time; any number that others don't use."""


def upgrade_tables(database: Database) -> None:
    """Create or migrate the tables.

    Raises:
        TracekitError: The database is damaged or of a newer version, or isn't the server's.
    """
    try:
        with database.transaction() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(POSTGRES_LOCK)))
            else:
                _check_integrity(connection, database.name)
            _migrate(connection, database.name)
            _check_columns(connection, database.name)
    except (BusyError, DiskFullError, SQLAlchemyError) as error:
        reason = describe_database_error(error.__cause__ or error)
        raise TracekitError(front_ends.DATABASE_UNUSABLE(name=database.name, reason=reason)) from error


def _migrate(connection: Connection, name: str) -> None:
    config = Config()
    config.set_main_option("script_location", "tracekit.web:migrations")
    config.attributes["connection"] = connection
    known = ScriptDirectory.from_config(config)
    version = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()
    if version == known.get_current_head():
        return
    if version is not None and version not in {script.revision for script in known.walk_revisions()}:
        raise TracekitError(front_ends.DATABASE_NEWER(name=name))
    if version is None and inspect(connection).has_table(JOBS.name):
        command.stamp(config, FIRST_VERSION)
    command.upgrade(config, "head")


def _check_integrity(connection: Connection, name: str) -> None:
    ((found,),) = connection.execute(text("PRAGMA quick_check(1)"))
    if found != "ok":
        raise TracekitError(front_ends.DATABASE_DAMAGED(name=name))


def _check_columns(connection: Connection, name: str) -> None:
    for table in METADATA.sorted_tables:
        missing = set(table.columns.keys()) - {column["name"] for column in inspect(connection).get_columns(table.name)}
        if missing:
            raise TracekitError(front_ends.DATABASE_FOREIGN(name=name))
