"""The job queue and the state of each job.

A worker claims a job for a limited time (a lease) and renews its claim while it lives. Its updates name the claim,
so that a worker that was wrongly considered dead can't change the job any more.
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

from predictors import PredictorError
from tracekit.errors import TracekitError
from tracekit.format import abbreviate_names
from tracekit.messages import web_errors
from tracekit.messages.stages import WAITING_FOR_WORKER
from tracekit.web.database import SKIP_LOCKED, Database, DatabaseRow
from tracekit.web.errors import ConflictError, DiskFullError, NotFoundError, TooManyError, WebError, serialize_error
from tracekit.web.files import Files
from tracekit.web.settings import Settings
from tracekit.web.uploads import UploadStore

MOST_ATTEMPTS = 3

QUEUED, RUNNING, FOUND, DONE, FAILED, DELETED = "queued", "running", "found", "done", "failed", "deleted"


@dataclass(frozen=True, slots=True)
class WebJob:
    """The traces of one run, the request about them, and the results.

    Attributes:
        id: Random, 128 bits; only the owner may use it.
        link: Random, 128 bits; everyone who has it may read the report.
        owner: The owner's id.
        uploads: Names of the files.
        state: ``queued``, ``running``, ``found`` (examined, no request yet), ``done``, ``failed`` or ``deleted``.
        request: The request; ``None`` if there is none yet.
        stage: The worker's current stage.
        found: Summary of the traces; ``None`` until they are examined.
        error: The failure, as :func:`tracekit.web.errors.serialize_error` returns it.
        formats: Suffixes of the existing reports.
        output: Folder of the reports below the job's key.
        attempts: Number of times a worker has claimed the job.
        claim: Id of the current claim; only updates under this claim count.
        created: Time of creation in seconds since the epoch, like the times below.
        queued: Time when the job was last queued.
        expires: Time when the job is deleted.
    """

    id: str
    link: str
    owner: str
    uploads: tuple[str, ...]
    state: str
    request: dict[str, Any] | None
    stage: str
    found: dict[str, Any] | None
    error: dict[str, Any] | None
    formats: tuple[str, ...]
    output: str | None
    attempts: int
    claim: str | None
    created: float
    queued: float
    expires: float

    @property
    def is_active(self) -> bool:
        """True while the job is queued or running."""
        return self.state in (QUEUED, RUNNING)

    @property
    def name(self) -> str:
        """Display name: the folder of the files, or the first file's name."""
        folders = {name.partition("/")[0] if "/" in name else None for name in self.uploads}
        if len(self.uploads) > 1 and len(folders) == 1 and None not in folders:
            return f"{folders.pop()} ({len(self.uploads):,} files)"
        return abbreviate_names(self.uploads[0], len(self.uploads) - 1)


class JobQueue:
    """All jobs of a store."""

    def __init__(self, settings: Settings, database: Database, files: Files, uploads: UploadStore) -> None:
        self._settings, self._database, self._files, self._uploads = settings, database, files, uploads

    def create(self, owner: str, upload_ids: Sequence[str], request: dict[str, Any] | None) -> WebJob:
        """Queue a job for uploads; without a request, the job only examines the traces.

        Raises:
            NotFoundError: The owner has no such upload.
            ConflictError: An upload is incomplete or in use.
            TooManyError: Too many jobs wait.
            FullError: The disk is full; the uploads stay available for another job.
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
                request and json.dumps(request), str(WAITING_FOR_WORKER()), "[]", 0, now, now, until,
            )  # fmt: skip
        except BaseException:
            self._uploads.release(job_id)
            raise
        return self.get(owner, job_id)

    def get(self, owner: str, job_id: str) -> WebJob:
        """Return one of the owner's jobs.

        Raises:
            NotFoundError: The owner has no such job.
        """
        return self._select_one("id = ? AND owner = ?", job_id, owner)

    def get_by_link(self, link: str) -> WebJob:
        """Return the job whose report a private link shows.

        Raises:
            NotFoundError: There is no such link.
        """
        return self._select_one("link = ?", link)

    def list_for_owner(self, owner: str) -> list[WebJob]:
        """Return the owner's jobs, newest first."""
        rows = self._database.run(
            "SELECT * FROM jobs WHERE owner = ? AND state <> ? AND expires > ? ORDER BY created DESC",
            owner, DELETED, time.time(),
        )  # fmt: skip
        return [_from_row(row) for row in rows]

    def count_ahead(self, job: WebJob) -> int:
        """Count the jobs that wait before this one."""
        rows = self._database.run("SELECT count(*) AS n FROM jobs WHERE state = ? AND queued < ?", QUEUED, job.queued)
        return int(rows[0]["n"])

    def requeue(self, job: WebJob, request: dict[str, Any]) -> WebJob:
        """Queue the job again with another request; its earlier report stays until the new one is written.

        Raises:
            ConflictError: A worker is processing the job.
            TooManyError: Too many jobs wait.
        """
        self._check_queue(job.owner)
        changed = self._database.run(
            "UPDATE jobs SET state = ?, request = ?, stage = ?, error = NULL, attempts = 0, queued = ? "
            "WHERE id = ? AND state IN (?, ?, ?) RETURNING id",
            QUEUED, json.dumps(request), str(WAITING_FOR_WORKER()), time.time(), job.id, FOUND, DONE, FAILED,
        )  # fmt: skip
        if not changed:
            raise ConflictError(web_errors.JOB_IN_WORK())
        return self.get(job.owner, job.id)

    def delete(self, job: WebJob) -> None:
        """Delete the job with its uploads and reports; its worker stops."""
        with suppress(DiskFullError):  # then removing its files makes room, and its row is deleted below
            self._database.run("UPDATE jobs SET state = ?, claim = NULL WHERE id = ?", DELETED, job.id)
        self._remove(job.id)

    def claim(self, worker: str) -> WebJob | None:
        """Claim the next job for a worker, including jobs whose worker died."""
        now = time.time()
        rows = self._database.run(
            "UPDATE jobs SET state = ?, worker = ?, claim = ?, lease = ?, attempts = attempts + 1 WHERE id = ("
            "SELECT id FROM jobs WHERE (state = ? OR (state = ? AND lease < ?)) AND expires > ? "
            f"ORDER BY queued LIMIT 1 {SKIP_LOCKED}) RETURNING *",
            RUNNING, worker, secrets.token_hex(16), now + self._settings.lease_s, QUEUED, RUNNING, now, now,
        )  # fmt: skip
        if not rows:
            return None
        job = _from_row(rows[0])
        if job.attempts <= MOST_ATTEMPTS:
            return job
        self.fail(job, WebError(web_errors.WORKERS_DIED(times=MOST_ATTEMPTS)))
        return self.claim(worker)

    def renew(self, job: WebJob) -> bool:
        """Renew the worker's claim; return false if the job is no longer the worker's."""
        until = time.time() + self._settings.lease_s
        return self._update_claimed(job, "lease = ?", until)

    def set_stage(self, job: WebJob, stage: str) -> bool:
        """Store the worker's current stage; return false if the job is no longer the worker's."""
        return self._update_claimed(job, "stage = ?", stage)

    def set_found(self, job: WebJob, found: dict[str, Any]) -> bool:
        """Store the summary of the traces; return false if the job is no longer its worker's."""
        return self._update_claimed(job, "found = ?", json.dumps(found))

    def finish(self, job: WebJob, formats: Sequence[str]) -> bool:
        """Mark the job as done, or as examined without ``formats``; return false if it is no longer its worker's."""
        if not formats:
            return self._update_claimed(job, "state = ?, claim = NULL", FOUND)
        finished = self._update_claimed(
            job, "state = ?, claim = NULL, output = ?, formats = ?", DONE, job.claim, json.dumps(list(formats))
        )
        outdated = self._files.list_names(f"jobs/{job.id}") if finished else []
        for name in outdated:
            if name != job.claim:
                self._files.remove(f"jobs/{job.id}/{name}")
        return finished

    def fail(self, job: WebJob, error: TracekitError | PredictorError) -> bool:
        """Mark the job as failed; return false if the job is no longer its worker's."""
        return self._update_claimed(
            job, "state = ?, claim = NULL, error = ?", FAILED, json.dumps(serialize_error(error))
        )

    def fail_worker_job(self, worker: str, error: WebError) -> None:
        """Fail the job of a worker that exceeded its limits."""
        self._update_worker_jobs(worker, lambda job: self.fail(job, error))

    def requeue_worker_job(self, worker: str, *, counts: bool) -> None:
        """Queue the job of an ended worker again.

        Args:
            worker: Name of the worker.
            counts: Count the attempt, as the job may have ended the worker.
        """
        back = 0 if counts else 1
        self._update_worker_jobs(
            worker,
            lambda job: self._update_claimed(job, "state = ?, claim = NULL, attempts = attempts - ?", QUEUED, back),
        )

    def get_scratch_directory(self, claim: str) -> Path:
        """Return the directory where the worker with this claim writes its files before they are complete."""
        return self._settings.data / "scratch" / claim

    def delete_expired(self) -> None:
        """Delete expired jobs, and files that no job refers to."""
        self._delete_stale_scratch()
        gone = self._database.run("SELECT id FROM jobs WHERE expires <= ? OR state = ?", time.time(), DELETED)
        for row in gone:
            self._remove(row["id"])
        kept = self._files.list_names("jobs")
        known = {row["id"] for row in self._database.run("SELECT id FROM jobs")}
        for job_id in set(kept) - known:
            self._files.remove(f"jobs/{job_id}")

    def _delete_stale_scratch(self) -> None:
        left = {path.name: path for path in self.get_scratch_directory("").glob("*")}
        claims = {row["claim"] for row in self._database.run("SELECT claim FROM jobs WHERE state = ?", RUNNING)}
        for name in left.keys() - claims:
            shutil.rmtree(left[name], ignore_errors=True)

    def _remove(self, job_id: str) -> None:
        for upload in self._uploads.list_for_job(job_id):
            self._uploads.remove(upload)
        self._files.remove(f"jobs/{job_id}")
        self._database.run("DELETE FROM jobs WHERE id = ?", job_id)

    def _select_one(self, condition: str, *values: str) -> WebJob:
        rows = self._database.run(
            f"SELECT * FROM jobs WHERE {condition} AND state <> ? AND expires > ?", *values, DELETED, time.time()
        )
        if not rows:
            raise NotFoundError(web_errors.REPORT_MISSING())
        return _from_row(rows[0])

    def _update_claimed(self, job: WebJob, assignments: str, *values: Any) -> bool:
        changed = self._database.run(
            f"UPDATE jobs SET {assignments} WHERE id = ? AND claim = ? AND state = ? RETURNING id",
            *values, job.id, job.claim, RUNNING,
        )  # fmt: skip
        return bool(changed)

    def _update_worker_jobs(self, worker: str, change: Callable[[WebJob], bool]) -> None:
        for row in self._database.run("SELECT * FROM jobs WHERE worker = ? AND state = ?", worker, RUNNING):
            change(_from_row(row))

    def _check_queue(self, owner: str) -> None:
        rows = self._database.run("SELECT owner, count(*) AS n FROM jobs WHERE state = ? GROUP BY owner", QUEUED)
        waiting = {row["owner"]: int(row["n"]) for row in rows}
        for count, most, whose in (
            (sum(waiting.values()), self._settings.max_queued, "jobs"),
            (waiting.get(owner, 0), self._settings.max_queued_per_owner, "of your jobs"),
        ):
            if count >= most:
                raise TooManyError(web_errors.QUEUE_FULL(count=count, whose=whose))


def _from_row(row: DatabaseRow) -> WebJob:
    return WebJob(
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
