"""The database: what older servers left, what can't be used, and what happens while others hold its lock."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from tests.web.conftest import find_free_port
from tracekit.cli.app import app as cli
from tracekit.errors import TracekitError
from tracekit.web import database
from tracekit.web.database import JOBS, METADATA, UPLOADS
from tracekit.web.quotas import hash_secret
from tracekit.web.store import Store
from tracekit.web.upgrade import VERSION_TABLE

# As servers made them that noted no version.
OLD_TABLES = """
CREATE TABLE uploads (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, length BIGINT, job TEXT,
    expires DOUBLE PRECISION NOT NULL);
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, link TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, uploads TEXT NOT NULL, state TEXT NOT NULL,
    request TEXT, stage TEXT NOT NULL, found TEXT, error TEXT, output TEXT, formats TEXT NOT NULL,
    attempts INTEGER NOT NULL, worker TEXT, claim TEXT, lease DOUBLE PRECISION,
    created DOUBLE PRECISION NOT NULL, queued DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL);
CREATE INDEX jobs_by_state ON jobs (state, queued);
CREATE INDEX jobs_by_owner ON jobs (owner, created);
"""
JOB, UPLOAD, OWNER = "1" * 32, "2" * 32, "a-browser"


@pytest.fixture
def sqlite(settings):
    """The file of SQLite, wherever the other tests keep their tables."""
    settings.data.mkdir(exist_ok=True)
    return settings.data / "tracekit.sqlite"


def write_old_tables(path, make_trace):
    """A job that an older server was killed at, with its upload."""
    later = time.time() + 1000
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD_TABLES)
        length = len(make_trace())
        connection.execute("INSERT INTO uploads VALUES (?, ?, 't', ?, ?, ?)", (UPLOAD, "o", length, JOB, later))
        connection.execute(
            "INSERT INTO jobs VALUES (?, ?, ?, ?, 'running', ?, 's', NULL, NULL, NULL, '[]', 3, 'w', 'c', 1, 1, 1, ?)",
            (JOB, "3" * 32, hash_secret(OWNER), '["t"]', json.dumps({"gpu": ["t4"]}), later),
        )
        connection.commit()


def test_an_older_servers_jobs_go_on(settings, sqlite, start, as_api, make_trace):
    write_old_tables(sqlite, make_trace)
    uploads = settings.data / "files" / "uploads"
    uploads.mkdir(parents=True)
    (uploads / UPLOAD).write_bytes(make_trace())
    settings = replace(settings, database=None)
    api = as_api(start(headers={"Cookie": f"tracekit_owner={OWNER}"}, database=None))
    assert api.job(JOB)["state"] == "running"
    with closing(Store.open(settings)) as store:
        assert store.database.read(select(UPLOADS.c.reserved))[0]["reserved"] == len(make_trace())
        assert store.jobs.claim("w").attempts == 4
        store.jobs.note_worker_death("w")
    assert api.job(JOB)["state"] == "queued"


def test_the_migrations_make_the_tables_that_the_code_names(store):
    with store.database.transaction() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []


def damage(path, make_trace):
    """Overwrites the pages of the tables' content."""
    write_old_tables(path, make_trace)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xaa" * (len(content) - 4096))


def of_a_newer_version(path, make_trace):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {VERSION_TABLE} (version_num TEXT)")
        connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES ('9999')")
        connection.commit()


def of_others(path, make_trace):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE jobs (id TEXT PRIMARY KEY, owner TEXT, state TEXT, queued REAL, created REAL)")


def lacking_a_column(path, make_trace):
    with closing(database.Database(path)) as own, closing(sqlite3.connect(path)) as connection:
        from tracekit.web.upgrade import upgrade_tables

        upgrade_tables(own)
        connection.execute("ALTER TABLE jobs DROP COLUMN claim")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path, _: path.write_bytes(b"no database at all" * 1000), "database-unusable"),
        (damage, "database-damaged"),
        (of_a_newer_version, "database-newer"),
        (of_others, "database-unusable"),
        (lacking_a_column, "database-foreign"),
        (lambda path, _: path.mkdir(), "database-unusable"),
    ],
)
def test_what_cannot_be_used_is_one_line(make, code, sqlite, make_trace):
    make(sqlite, make_trace)
    result = CliRunner().invoke(cli, ["serve", "--data", str(sqlite.parent), "--port", str(find_free_port())])
    assert isinstance(result.exception, TracekitError)
    assert result.exception.code == code
    assert str(sqlite) in result.exception.message


@pytest.mark.parametrize("url", ["mysql://h/d", "nothing", "", "sqlite:///x"])
def test_another_kind_of_database_is_refused(url, settings):
    with pytest.raises(TracekitError) as refused:
        Store.open(replace(settings, database=url))
    assert refused.value.code == "database-url-unusable"


@pytest.fixture
def impatient(monkeypatch):
    """Changes that wait for a quarter of a second."""
    create = database._create_sqlite_writer
    monkeypatch.setattr(database, "_create_sqlite_writer", lambda path, wait_s: create(path, 0.25))


def test_reads_go_on_while_a_lock_is_held(impatient, start, settings):
    client = start(database=None)
    with closing(sqlite3.connect(settings.data / "tracekit.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        answers = []
        changes = [
            threading.Thread(target=lambda: answers.append(client.put("/api/v1/traces/t", content=b"data")))
            for _ in range(50)
        ]
        for change in changes:
            change.start()
        begun = time.monotonic()
        assert client.get("/").status_code == 200
        assert time.monotonic() - begun < 2
        for change in changes:
            change.join()
        other.execute("ROLLBACK")
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.json()["error"]["code"] for answer in answers} == {"database-busy"}
    assert {answer.headers["retry-after"] for answer in answers} == {"5"}
    assert client.put("/api/v1/traces/t", content=b"data").status_code == 201


def test_a_change_is_made_wholly_or_not_at_all(store):
    def fail_halfway():
        with store.database.transaction() as connection:
            connection.execute(UPLOADS.insert().values(id="1", owner="o", name="n", expires=1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert store.database.read(select(UPLOADS)) == []
    assert store.database.read(select(JOBS)) == []


def test_what_a_driver_said_is_told_in_one_line():
    driver = sqlite3.OperationalError("disk I/O error\nfurther lines")
    wrapped = OperationalError("UPDATE jobs SET ...", {}, driver)
    assert database.describe_database_error(wrapped) == "disk I/O error"
    assert database.describe_database_error(driver) == "disk I/O error"


def test_other_commands_load_no_database():
    code = "import sys, tracekit.cli.app, tracekit.cli.serve; print({'sqlalchemy', 'alembic'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout == "set()\n"
