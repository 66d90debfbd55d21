"""Tables of the server's database. Each change to them needs a migration in ``migrations/versions``."""

import json
from typing import Any

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Table, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


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
