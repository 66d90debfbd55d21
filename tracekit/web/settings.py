"""Settings of a server."""

import dataclasses
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tracekit import ingest
from tracekit.bounds import MAX_CLIENT_WAIT_S, MAX_TRACES
from tracekit.errors import TracekitError
from tracekit.messages import front_ends

LOOPBACK = ("127.0.0.1", "::1", "localhost")

# Minimum address space with which numba, polars and their threads can start.
MIN_MEMORY_BYTES = 2 << 30

MIN_TOKEN_CHARS = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server.

    Attributes:
        data: Directory of the database and of incomplete uploads, and by default of the files.
        host: Address to listen on.
        port: Port to listen on.
        token: Secret that clients must send; required unless the server listens on loopback only.
        database: ``postgresql://`` URL; by default SQLite in ``data``.
        files: fsspec URL of finished uploads and reports; by default in ``data``.
        workers: Number of worker processes; 0 leaves the jobs to other servers of the same store.
        engine: Where the ranks of large jobs are worked on, as ``predict --engine``; by default in one piece.
        engine_ranks: Number of ranks from which a job is one for the engine.
        memory_bytes: Address space of a worker; by default three quarters of the memory, divided among the workers.
        time_limit_s: Maximum time of a job.
        lease_s: Time without a renewed claim after which a worker counts as dead.
        keep_s: Time until jobs are deleted.
        keep_upload_s: Time until uploads without a job are deleted.
        max_upload_bytes: Maximum size of an uploaded file.
        max_unpacked_bytes: Maximum unpacked size of a job's files.
        max_files: Maximum number of files in a job, members of archives included.
        max_queued: Maximum number of waiting jobs.
        max_queued_per_owner: Maximum number of waiting jobs of one owner.
        max_jobs_per_owner: Maximum number of kept jobs of one owner.
        max_stored_bytes: Maximum size of one owner's uploads and reports.
        max_per_minute: Maximum number of uploads and jobs that one address may begin in a minute.
        client_wait_s: Longest time that a client may keep the server waiting without progress.
        min_free_bytes: Free disk space that uploads leave.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8321
    token: str | None = field(default=None, repr=False)
    database: str | None = field(default=None, repr=False)
    files: str | None = field(default=None, repr=False)
    workers: int = 1
    engine: str | None = None
    engine_ranks: int = 16
    memory_bytes: int = 0
    time_limit_s: float = 1800
    lease_s: float = 30.0
    keep_s: int = 7 * 86_400
    keep_upload_s: int = 86_400
    max_upload_bytes: int = 4 << 30
    max_unpacked_bytes: int = 32 << 30
    max_files: int = MAX_TRACES
    max_queued: int = 500
    max_queued_per_owner: int = 50
    max_jobs_per_owner: int = 1000
    max_stored_bytes: int = 64 << 30
    max_per_minute: int = 1200
    client_wait_s: float = MAX_CLIENT_WAIT_S
    min_free_bytes: int = 256 << 20

    @property
    def worker_bytes(self) -> int:
        """Address space of a worker in bytes."""
        shared = 3 * ingest.parse_memory_size(None) // 2 // max(self.workers, 1)
        return self.memory_bytes or max(shared, MIN_MEMORY_BYTES)

    @property
    def is_local(self) -> bool:
        """True if the server listens on the loopback interface only."""
        return self.host in LOOPBACK

    def to_json(self) -> str:
        """Return the settings for a worker process as JSON, without the token."""
        return json.dumps(dataclasses.asdict(self) | {"data": str(self.data), "token": None})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the output of :meth:`to_json`."""
        values = json.loads(text)
        return cls(**values | {"data": Path(values["data"])})


def check_settings(settings: Settings) -> None:
    """Refuse settings that are unsafe or can't work.

    Raises:
        TracekitError: Others could access the server, or no worker could start.
    """
    if not settings.is_local and settings.token is None:
        raise TracekitError(front_ends.TOKEN_NEEDED(host=settings.host, suggestion=secrets.token_urlsafe(24)))
    if settings.token is not None and len(settings.token) < MIN_TOKEN_CHARS:
        raise TracekitError(front_ends.TOKEN_TOO_SHORT(min_length=MIN_TOKEN_CHARS))
    if settings.token is not None and not (settings.token.isascii() and settings.token.isprintable()):
        raise TracekitError(front_ends.TOKEN_NOT_ASCII())
    if 0 < settings.memory_bytes < MIN_MEMORY_BYTES:
        raise TracekitError(front_ends.WORKER_MEMORY_TOO_SMALL())
