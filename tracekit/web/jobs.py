"""Jobs: the queue and what became of each. A job is claimed for a while; a worker that lives renews its claim.

What a worker writes carries its claim, so one that was taken for dead and wasn't changes nothing any more.
"""

import json
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.units import with_others
from tracekit.web.database import SKIP_LOCKED, Database, Row
from tracekit.web.errors import ConflictError, FullError, NotFoundError, TooManyError
from tracekit.web.files import Files
from tracekit.web.settings import Settings
from tracekit.web.uploads import Uploads

MOST_ATTEMPTS = 3

QUEUED, RUNNING, FOUND, DONE, FAILED, DELETED = "queued", "running", "found", "done", "failed", "deleted"


@dataclass(frozen=True, slots=True)
class Job:
    """Traces of one run, and what was asked and found out about them.

    Attributes:
        id: Random, 128 bits; only its owner may use it.
        link: Random, 128 bits; whoever has it may read the report.
        owner: Whose it is.
        uploads: Names of the files.
        state: ``queued``, ``running``, ``found`` (looked at, nothing asked yet), ``done``, ``failed`` or ``deleted``.
        request: What was asked; ``None`` if nothing was yet.
        stage: What the worker does.
        found: What is in the traces, once that is known.
        error: Why it failed: ``message`` and ``hint``.
        formats: Suffixes of the reports that are there.
        output: Where those are.
        attempts: How often a worker has begun it.
        claim: Whose work counts.
        created: Seconds since the epoch, as the others.
        queued: When it was queued last.
        expires: When it is deleted.
    """

    id: str
    link: str
    owner: str
    uploads: tuple[str, ...]
    state: str
    request: dict[str, Any] | None
    stage: str
    found: dict[str, Any] | None
    error: dict[str, str] | None
    formats: tuple[str, ...]
    output: str | None
    attempts: int
    claim: str | None
    created: float
    queued: float
    expires: float

    @property
    def is_active(self) -> bool:
        """Whether something will still happen to it by itself."""
        return self.state in (QUEUED, RUNNING)

    @property
    def name(self) -> str:
        """What to call it: the folder that its files are from, or the first of them."""
        folders = {name.partition("/")[0] if "/" in name else None for name in self.uploads}
        if len(self.uploads) > 1 and len(folders) == 1 and None not in folders:
            return f"{folders.pop()} ({len(self.uploads):,} files)"
        return with_others(self.uploads[0], len(self.uploads) - 1)


class Jobs:
    """All jobs of a store."""

    def __init__(self, settings: Settings, database: Database, files: Files, uploads: Uploads) -> None:
        self._settings, self._database, self._files, self._uploads = settings, database, files, uploads

    def create(self, owner: str, upload_ids: Sequence[str], request: dict[str, Any] | None) -> Job:
        """Queue a job for some uploads; without a request it only looks what is in them.

        Raises:
            NotFoundError: The owner has no such upload.
            ConflictError: An upload is incomplete or in use.
            TooManyError: Too many jobs wait.
            FullError: The disk is full; the uploads stay free for another job.
        """
        self._check_queue(owner)
        now, job_id = time.time(), secrets.token_hex(16)
        until = now + self._settings.keep_s
        uploads = self._uploads.take(owner, list(upload_ids), job_id, until)
        try:
            self._database.run(
                "INSERT INTO jobs (id, link, owner, uploads, state, request, stage, formats, attempts, created, "
                "queued, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                job_id, secrets.token_hex(16), owner, json.dumps([upload.name for upload in uploads]), QUEUED,
                request and json.dumps(request), "waiting", "[]", 0, now, now, until,
            )  # fmt: skip
        except BaseException:
            self._uploads.release(job_id)
            raise
        return self.get(owner, job_id)

    def get(self, owner: str, job_id: str) -> Job:
        """One of the owner's jobs.

        Raises:
            NotFoundError: The owner has no such job.
        """
        return self._one("id = ? AND owner = ?", job_id, owner)

    def by_link(self, link: str) -> Job:
        """The job whose report a private link shows.

        Raises:
            NotFoundError: There is no such link.
        """
        return self._one("link = ?", link)

    def of(self, owner: str) -> list[Job]:
        """The owner's jobs, newest first."""
        rows = self._database.run(
            "SELECT * FROM jobs WHERE owner = ? AND state <> ? AND expires > ? ORDER BY created DESC",
            owner, DELETED, time.time(),
        )  # fmt: skip
        return [_of_row(row) for row in rows]

    def ahead_of(self, job: Job) -> int:
        """How many jobs wait in front of it."""
        rows = self._database.run("SELECT count(*) AS n FROM jobs WHERE state = ? AND queued < ?", QUEUED, job.queued)
        return int(rows[0]["n"])

    def ask(self, job: Job, request: dict[str, Any]) -> Job:
        """Queue it again with another request; its earlier report stays until the new one is there.

        Raises:
            ConflictError: It is being worked on.
            TooManyError: Too many jobs wait.
        """
        self._check_queue(job.owner)
        changed = self._database.run(
            "UPDATE jobs SET state = ?, request = ?, stage = ?, error = NULL, attempts = 0, queued = ? "
            "WHERE id = ? AND state IN (?, ?, ?) RETURNING id",
            QUEUED, json.dumps(request), "waiting", time.time(), job.id, FOUND, DONE, FAILED,
        )  # fmt: skip
        if not changed:
            raise ConflictError("This job is being worked on.", "Wait until it is done.")
        return self.get(job.owner, job.id)

    def delete(self, job: Job) -> None:
        """Delete it with its uploads and reports; a worker that is at it stops."""
        with suppress(FullError):  # its files go first then, which makes room for that
            self._database.run("UPDATE jobs SET state = ?, claim = NULL WHERE id = ?", DELETED, job.id)
        self._remove(job.id)

    def claim(self, worker: str) -> Job | None:
        """The next job, for a worker; one whose worker died comes again."""
        now = time.time()
        rows = self._database.run(
            "UPDATE jobs SET state = ?, worker = ?, claim = ?, lease = ?, attempts = attempts + 1 WHERE id = ("
            "SELECT id FROM jobs WHERE (state = ? OR (state = ? AND lease < ?)) AND expires > ? "
            f"ORDER BY queued LIMIT 1 {SKIP_LOCKED}) RETURNING *",
            RUNNING, worker, secrets.token_hex(16), now + self._settings.lease_s, QUEUED, RUNNING, now, now,
        )  # fmt: skip
        if not rows:
            return None
        job = _of_row(rows[0])
        if job.attempts <= MOST_ATTEMPTS:
            return job
        self.fail(job, f"A worker died at this job {MOST_ATTEMPTS} times.", "It may need more memory than there is.")
        return self.claim(worker)

    def renew(self, job: Job) -> bool:
        """Say that its worker lives; false if the job is no longer its."""
        until = time.time() + self._settings.lease_s
        return self._change(job, "lease = ?", until)

    def enter(self, job: Job, stage: str) -> bool:
        """Say what its worker does; false if the job is no longer its."""
        return self._change(job, "stage = ?", stage)

    def note(self, job: Job, found: dict[str, Any]) -> bool:
        """Keep what is in the traces; false if the job is no longer its worker's."""
        return self._change(job, "found = ?", json.dumps(found))

    def finish(self, job: Job, formats: Sequence[str]) -> bool:
        """Its reports are there, or there was nothing to report yet; false if the job is no longer its worker's."""
        if not formats:
            return self._change(job, "state = ?, claim = NULL", FOUND)
        finished = self._change(
            job, "state = ?, claim = NULL, output = ?, formats = ?", DONE, job.claim, json.dumps(list(formats))
        )
        outdated = self._files.below(f"jobs/{job.id}") if finished else []
        for name in outdated:
            if name != job.claim:
                self._files.remove(f"jobs/{job.id}/{name}")
        return finished

    def fail(self, job: Job, message: str, hint: str = "") -> bool:
        """It can't be done; false if the job is no longer its worker's."""
        return self._change(
            job, "state = ?, claim = NULL, error = ?", FAILED, json.dumps({"message": message, "hint": hint})
        )

    def give_up(self, worker: str, message: str, hint: str) -> None:
        """Fail what a worker was at when it died of its limits."""
        self._of_worker(worker, lambda job: self.fail(job, message, hint))

    def hand_back(self, worker: str, *, counts: bool) -> None:
        """Queue again what a worker was at when it ended.

        Args:
            worker: The worker.
            counts: Whether the job may have been the reason.
        """
        back = 0 if counts else 1
        self._of_worker(
            worker, lambda job: self._change(job, "state = ?, claim = NULL, attempts = attempts - ?", QUEUED, back)
        )

    def scratch(self, claim: str) -> Path:
        """Where the worker that has this claim writes before all is ready."""
        return self._settings.data / "scratch" / claim

    def sweep(self) -> None:
        """Delete what has expired, and files that nothing refers to any more."""
        self._sweep_scratch()
        gone = self._database.run("SELECT id FROM jobs WHERE expires <= ? OR state = ?", time.time(), DELETED)
        for row in gone:
            self._remove(row["id"])
        kept = self._files.below("jobs")
        known = {row["id"] for row in self._database.run("SELECT id FROM jobs")}
        for job_id in set(kept) - known:
            self._files.remove(f"jobs/{job_id}")

    def _sweep_scratch(self) -> None:
        left = {path.name: path for path in self.scratch("").glob("*")}
        claims = {row["claim"] for row in self._database.run("SELECT claim FROM jobs WHERE state = ?", RUNNING)}
        for name in left.keys() - claims:
            shutil.rmtree(left[name], ignore_errors=True)

    def _remove(self, job_id: str) -> None:
        for upload in self._uploads.of_job(job_id):
            self._uploads.remove(upload)
        self._files.remove(f"jobs/{job_id}")
        self._database.run("DELETE FROM jobs WHERE id = ?", job_id)

    def _one(self, condition: str, *values: str) -> Job:
        rows = self._database.run(
            f"SELECT * FROM jobs WHERE {condition} AND state <> ? AND expires > ?", *values, DELETED, time.time()
        )
        if not rows:
            raise NotFoundError("There is no such report.", "It may have expired, or its owner deleted it.")
        return _of_row(rows[0])

    def _change(self, job: Job, assignments: str, *values: Any) -> bool:
        changed = self._database.run(
            f"UPDATE jobs SET {assignments} WHERE id = ? AND claim = ? AND state = ? RETURNING id",
            *values, job.id, job.claim, RUNNING,
        )  # fmt: skip
        return bool(changed)

    def _of_worker(self, worker: str, change: Callable[[Job], bool]) -> None:
        for row in self._database.run("SELECT * FROM jobs WHERE worker = ? AND state = ?", worker, RUNNING):
            change(_of_row(row))

    def _check_queue(self, owner: str) -> None:
        rows = self._database.run("SELECT owner, count(*) AS n FROM jobs WHERE state = ? GROUP BY owner", QUEUED)
        waiting = {row["owner"]: int(row["n"]) for row in rows}
        for count, most, whose in (
            (sum(waiting.values()), self._settings.max_queued, "jobs"),
            (waiting.get(owner, 0), self._settings.max_queued_per_owner, "of your jobs"),
        ):
            if count >= most:
                raise TooManyError(f"{count} {whose} wait already, the most that this server allows.", "Try later.")


def _of_row(row: Row) -> Job:
    return Job(
        uploads=tuple(json.loads(row["uploads"])),
        request=json.loads(row["request"]) if row["request"] else None,
        found=json.loads(row["found"]) if row["found"] else None,
        error=json.loads(row["error"]) if row["error"] else None,
        formats=tuple(json.loads(row["formats"])),
        **{
            name: row[name]
            for name in (
                *("id", "link", "owner", "state", "stage", "output"),
                *("attempts", "claim", "created", "queued", "expires"),
            )
        },
    )
