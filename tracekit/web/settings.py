"""What a server is told when it starts."""

import dataclasses
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tracekit.errors import TracekitError
from tracekit.ingest import memory

LOOPBACK = ("127.0.0.1", "::1", "localhost")

# Below this numba, polars and their threads don't get the address space that they need to start.
SMALLEST_MEMORY_BYTES = 2 << 30

SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is told when it starts.

    Attributes:
        data: Directory of the data base, of uploads that are under way, and by default of the files.
        host: Address to listen on.
        port: Port to listen on.
        token: What a client must know; needed unless only this machine is listened to.
        database: ``postgresql://`` URL; by default SQLite in ``data``.
        files: fsspec URL of finished uploads and reports; by default in ``data``.
        workers: Worker processes; 0 leaves the jobs to other servers of the same store.
        memory_bytes: Address space that a worker may take; by default the workers share three quarters of the memory.
        time_limit_s: How long a job may take.
        lease_s: After how long without a sign of life a worker counts as dead.
        keep_s: How long jobs are kept.
        keep_upload_s: How long uploads are kept that no job uses.
        max_upload_bytes: Largest file, as uploaded.
        max_unpacked_bytes: Most text that the files of a job may hold.
        max_files: Most files of a job, members of archives included.
        max_queued: Most jobs that wait.
        max_queued_per_owner: Most jobs of one owner that wait.
        max_per_minute: Most uploads and jobs that one address may begin in a minute.
        min_free_bytes: Space that uploads leave free on the disk.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8321
    token: str | None = field(default=None, repr=False)
    database: str | None = field(default=None, repr=False)
    files: str | None = field(default=None, repr=False)
    workers: int = 1
    memory_bytes: int = 0
    time_limit_s: int = 1800
    lease_s: float = 30.0
    keep_s: int = 7 * 86_400
    keep_upload_s: int = 86_400
    max_upload_bytes: int = 4 << 30
    max_unpacked_bytes: int = 32 << 30
    max_files: int = 1024
    max_queued: int = 500
    max_queued_per_owner: int = 50
    max_per_minute: int = 1200
    min_free_bytes: int = 256 << 20

    @property
    def worker_bytes(self) -> int:
        """Address space that a worker may take."""
        shared = 3 * memory.to_bytes(None) // 2 // max(self.workers, 1)
        return self.memory_bytes or max(shared, SMALLEST_MEMORY_BYTES)

    @property
    def is_local(self) -> bool:
        """Whether only this machine is listened to."""
        return self.host in LOOPBACK

    def to_json(self) -> str:
        """For a worker process: all but the token."""
        return json.dumps(dataclasses.asdict(self) | {"data": str(self.data), "token": None})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What :meth:`to_json` wrote."""
        values = json.loads(text)
        return cls(**values | {"data": Path(values["data"])})


def check(settings: Settings) -> None:
    """Refuse what isn't safe, or can't work.

    Raises:
        TracekitError: Others could get in, or no worker could start.
    """
    if not settings.is_local and settings.token is None:
        raise TracekitError(
            f"{settings.host} can be reached by others, so clients must know a token.",
            f"Set TRACEKIT_TOKEN (or --token), such as {secrets.token_urlsafe(24)}",
        )
    if settings.token is not None and len(settings.token) < SHORTEST_TOKEN:
        raise TracekitError(f"The token is shorter than {SHORTEST_TOKEN} characters.")
    if 0 < settings.memory_bytes < SMALLEST_MEMORY_BYTES:
        raise TracekitError("A worker needs --memory 2G at least.")
