"""The job queue and the state of each job.

A worker claims a job for a limited time (a lease) and renews its claim while it lives. Its updates name the claim,
so that a worker that was wrongly considered dead can't change the job any more.
"""

import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, and_, delete, func, insert, or_, select, update

from predictors import PredictorError
from tracekit.errors import TracekitError
from tracekit.format import abbreviate_names
from tracekit.messages import front_ends
from tracekit.messages.requests import WAITING_FOR_WORKER
from tracekit.web import quotas
from tracekit.web.database import DELETED, DONE, FAILED, FOUND, JOBS, QUEUED, RUNNING, SPLIT, Database
from tracekit.web.errors import ConflictError, DiskFullError, NotFoundError, WebError, serialize_error
from tracekit.web.files import Files
from tracekit.web.quotas import Requester
from tracekit.web.settings import Settings
from tracekit.web.uploads import UploadStore

MAX_DEATHS = 3
"""Workers that may die at one job."""

FLEET_FORM = "txt"
"""A form that only reports of ranks one by one have."""

RANKS_FOUND = "rank_by_rank"
"""What is told of traces, beside the usual, whose ranks are worked on one by one: their number."""

MIN_FRACTION = 0.1
"""Part of a job after which the time left is estimated."""


@dataclass(frozen=True, slots=True)
class WebJob:
    """The traces of one run, the request about them, and the results.

    Attributes:
        id: Random, 128 bits; only the owner may use it.
        link: Random, 128 bits; everyone who has it may read the report.
        owner: The owner's id.
        uploads: Names of the files.
        state: ``queued``, ``running``, ``found`` (examined, no request yet), ``done``, ``failed``, ``deleted``, or
            ``split``: the traces are of several runs, each of which is a job of its own.
        request: The request; ``None`` if there is none yet.
        stage: The worker's current stage.
        found: Summary of the traces; ``None`` until they are examined.
        error: The failure, as :func:`tracekit.web.errors.serialize_error` returns it.
        formats: Suffixes of the existing reports.
        output: Folder of the reports below the job's key.
        attempts: Number of times that a worker has claimed the job.
        deaths: Number of times that its worker died while the server lived.
        claim: Id of the current claim; only updates under this claim count.
        created: Time of creation in seconds since the epoch, like the times below.
        queued: Time when the job was last queued.
        expires: Time when the job is deleted.
        base: Id of the job whose traces this one shares, to answer another request about them.
        split_from: Id of the job that was split into this one and others.
        begun: Time when a worker last claimed the job.
        done_fraction: How much of the job its worker has done.
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
    deaths: int
    claim: str | None
    created: float
    queued: float
    expires: float
    base: str | None
    split_from: str | None
    begun: float | None
    done_fraction: float

    @property
    def is_active(self) -> bool:
        """True while the job is queued or running."""
        return self.state in (QUEUED, RUNNING)

    @property
    def is_fleet(self) -> bool:
        """True if its report is of ranks that an engine worked on one by one; it can't be compared or recomputed."""
        return FLEET_FORM in self.formats

    @property
    def ranks_one_by_one(self) -> int:
        """Number of its ranks if an engine works on them one by one; else 0."""
        return int((self.found or {}).get(RANKS_FOUND, 0))

    @property
    def traces_id(self) -> str:
        """Id of the job that holds the traces: itself, or the one that it shares them with."""
        return self.base or self.id

    @property
    def remaining_s(self) -> float | None:
        """Estimated time until it is done; ``None`` before it can be told."""
        if self.state != RUNNING or self.begun is None or self.done_fraction < MIN_FRACTION:
            return None
        return (time.time() - self.begun) * (1 - self.done_fraction) / self.done_fraction

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

    def create(self, requester: Requester, upload_ids: Sequence[str], request: dict[str, Any] | None) -> WebJob:
        """Queue a job for uploads; without a request, the job only examines the traces.

        Raises:
            NotFoundError: The owner has no such upload.
            ConflictError: An upload is incomplete or in use.
            TooManyError: Too many jobs wait, or are kept.
            DiskFullError: The disk is full; the uploads stay available for another job.
        """
        uploads = self._uploads.find_complete(requester.owner, upload_ids)
        values = _make_row(requester, [upload.name for upload in uploads], request, time.time() + self._settings.keep_s)
        with self._database.transaction() as connection:
            quotas.check_jobs(connection, self._settings, requester)
            self._uploads.take(connection, uploads, values["id"], values["expires"])
            connection.execute(insert(JOBS).values(values))
        return self.get(requester.owner, values["id"])

    def create_variant(self, requester: Requester, job: WebJob, request: dict[str, Any]) -> WebJob:
        """Queue a job that answers another request about a job's traces; return an earlier one with this request.

        Raises:
            TooManyError: Too many jobs wait, or are kept.
        """
        is_related = or_(JOBS.c.id == job.traces_id, JOBS.c.base == job.traces_id)
        for row in self._database.read(select(JOBS).where(is_related, JOBS.c.state != FAILED, _is_kept())):
            if row["request"] == request:
                return _from_row(row)
        values = _make_row(requester, job.uploads, request, job.expires) | {"base": job.traces_id, "found": job.found}
        with self._database.transaction() as connection:
            quotas.check_jobs(connection, self._settings, requester)
            connection.execute(insert(JOBS).values(values))
        return self.get(job.owner, values["id"])

    def get(self, owner: str, job_id: str) -> WebJob:
        """Return one of the owner's jobs.

        Raises:
            NotFoundError: The owner has no such job.
        """
        return self._select_one(JOBS.c.id == job_id, JOBS.c.owner == owner)

    def get_by_link(self, link: str) -> WebJob:
        """Return the job whose report a private link shows.

        Raises:
            NotFoundError: There is no such link.
        """
        return self._select_one(JOBS.c.link == link)

    def exists(self, job_id: str) -> bool:
        """Return whether a job is still kept."""
        return bool(self._database.read(select(JOBS.c.id).where(JOBS.c.id == job_id, _is_kept())))

    def list_for_owner(self, owner: str) -> list[WebJob]:
        """Return the owner's jobs, newest first, without those made from others."""
        is_first = and_(JOBS.c.base.is_(None), JOBS.c.split_from.is_(None))
        query = select(JOBS).where(JOBS.c.owner == owner, is_first, _is_kept()).order_by(JOBS.c.created.desc())
        return [_from_row(row) for row in self._database.read(query)]

    def list_parts(self, job: WebJob) -> list[WebJob]:
        """Return the jobs that a job was split into, in the order of their files."""
        query = select(JOBS).where(JOBS.c.split_from == job.id, _is_kept()).order_by(JOBS.c.created, JOBS.c.id)
        return [_from_row(row) for row in self._database.read(query)]

    def count_ahead(self, job: WebJob) -> int:
        """Count the jobs that wait before this one."""
        query = select(func.count(JOBS.c.id).label("ahead")).where(JOBS.c.state == QUEUED, JOBS.c.queued < job.queued)
        return int(self._database.read(query)[0]["ahead"])

    def requeue(self, requester: Requester, job: WebJob, request: dict[str, Any]) -> WebJob:
        """Queue the job again with another request; its earlier report stays until the new one is written.

        Raises:
            ConflictError: A worker is processing the job.
            TooManyError: Too many jobs wait.
        """
        change = (
            update(JOBS)
            .where(JOBS.c.id == job.id, JOBS.c.state.in_((FOUND, DONE, FAILED)))
            .values(state=QUEUED, request=request, stage=str(WAITING_FOR_WORKER()), error=None)
            .values(attempts=0, deaths=0, queued=time.time(), network=requester.network, done_fraction=0.0)
        )
        with self._database.transaction() as connection:
            quotas.check_queue(connection, self._settings, requester)
            if not connection.execute(change).rowcount:
                raise ConflictError(front_ends.JOB_IN_WORK())
        return self.get(job.owner, job.id)

    def delete(self, job: WebJob) -> None:
        """Delete the job with its uploads, its reports and those made from its traces; their workers stop."""
        is_related = or_(*(column == job.traces_id for column in (JOBS.c.id, JOBS.c.base, JOBS.c.split_from)))
        with suppress(DiskFullError):  # then removing its files makes room, and its row is deleted below
            self._database.write(update(JOBS).where(is_related).values(state=DELETED, claim=None))
        self._remove(job.traces_id)

    def claim(self, worker: str) -> WebJob | None:
        """Claim the next job for a worker: one that waits, or whose worker stopped renewing its claim.

        A claim that ends later than any renewal could make it was made before the clock was set back. Clocks of
        several machines may differ by as much as a claim lasts.
        """
        now, longest_s = time.time(), 2 * self._settings.lease_s
        is_over = or_(JOBS.c.lease < now, JOBS.c.lease > now + longest_s)
        is_free = or_(JOBS.c.state == QUEUED, and_(JOBS.c.state == RUNNING, is_over))
        following = select(JOBS.c.id).where(is_free, JOBS.c.expires > now).order_by(JOBS.c.queued).limit(1)
        if not self._database.read(following):  # idle workers change nothing: changes wait for one another
            return None
        rows = self._database.write(
            update(JOBS)
            .where(JOBS.c.id == following.with_for_update(skip_locked=True).scalar_subquery())
            .values(state=RUNNING, worker=worker, claim=secrets.token_hex(16), lease=now + self._settings.lease_s)
            .values(attempts=JOBS.c.attempts + 1, begun=now, done_fraction=0.0)
            .returning(JOBS)
        )
        return _from_row(rows[0]) if rows else None

    def renew(self, job: WebJob) -> bool:
        """Renew the worker's claim; return false if the job is no longer the worker's."""
        return self._update_claimed(job, lease=time.time() + self._settings.lease_s)

    def set_stage(self, job: WebJob, stage: str, done_fraction: float) -> bool:
        """Store the worker's current stage and how far it is; return false if the job is no longer the worker's."""
        return self._update_claimed(job, stage=stage, done_fraction=done_fraction)

    def set_found(self, job: WebJob, found: dict[str, Any]) -> bool:
        """Store the summary of the traces; return false if the job is no longer its worker's."""
        return self._update_claimed(job, found=found)

    def split(self, job: WebJob, parts: Sequence[Sequence[str]]) -> bool:
        """Queue a job of its own for each part of the job's uploads; return false if it is no longer its worker's."""
        uploads = {upload.id: upload for upload in self._uploads.list_for_job(job.id)}
        is_claimed = and_(JOBS.c.id == job.id, JOBS.c.claim == job.claim, JOBS.c.state == RUNNING)
        with self._database.transaction() as connection:
            network = connection.execute(select(JOBS.c.network).where(is_claimed)).scalar_one_or_none()
            if network is None:
                return False
            for ids in parts:
                names = [uploads[upload_id].name for upload_id in ids]
                values = _make_row(Requester(job.owner, network), names, job.request, job.expires)
                connection.execute(insert(JOBS).values(values | {"split_from": job.id}))
                self._uploads.move(connection, ids, values["id"])
            connection.execute(update(JOBS).where(is_claimed).values(state=SPLIT, claim=None))
        return True

    def finish(self, job: WebJob, formats: Sequence[str], report_bytes: int = 0) -> bool:
        """Mark the job as done, or as examined without ``formats``; return false if it is no longer its worker's."""
        if not formats:
            return self._update_claimed(job, state=FOUND, claim=None)
        finished = self._update_claimed(
            job, state=DONE, claim=None, output=job.claim, formats=list(formats), report_bytes=report_bytes
        )
        outdated = self._files.list_names(f"jobs/{job.id}") if finished else []
        for name in outdated:
            if name != job.claim:
                self._files.remove(f"jobs/{job.id}/{name}")
        return finished

    def fail(self, job: WebJob, error: TracekitError | PredictorError) -> bool:
        """Mark the job as failed; return false if the job is no longer its worker's."""
        return self._update_claimed(job, state=FAILED, claim=None, error=serialize_error(error))

    def fail_worker_job(self, worker: str, error: WebError) -> None:
        """Fail the job of a worker that exceeded its limits."""
        for job in self._list_worker_jobs(worker):
            self.fail(job, error)

    def release_worker_job(self, worker: str) -> None:
        """Queue the job of a worker again that ended for a reason of the server's; it keeps its place."""
        for job in self._list_worker_jobs(worker):
            self._update_claimed(job, state=QUEUED, claim=None)

    def note_worker_death(self, worker: str) -> None:
        """Queue the job of a worker that died behind the others, or fail it if too many died at it."""
        for job in self._list_worker_jobs(worker):
            if job.deaths + 1 >= MAX_DEATHS:
                self.fail(job, WebError(front_ends.WORKERS_DIED(times=MAX_DEATHS)))
            else:
                self._update_claimed(job, state=QUEUED, claim=None, deaths=job.deaths + 1, queued=time.time())

    def get_scratch_directory(self, claim: str) -> Path:
        """Return the directory where the worker with this claim writes its files before they are complete."""
        return self._settings.data / "scratch" / claim

    def delete_expired(self) -> None:
        """Delete expired jobs, and files that no job refers to."""
        self._delete_stale_scratch()
        gone = select(JOBS.c.id).where(or_(JOBS.c.expires <= time.time(), JOBS.c.state == DELETED))
        for row in self._database.read(gone):
            self._remove(row["id"])
        kept = self._files.list_names("jobs")
        known = {row["id"] for row in self._database.read(select(JOBS.c.id))}
        for job_id in set(kept) - known:
            self._files.remove(f"jobs/{job_id}")

    def _delete_stale_scratch(self) -> None:
        left = {path.name: path for path in self.get_scratch_directory("").glob("*")}
        rows = self._database.read(select(JOBS.c.claim).where(JOBS.c.state == RUNNING))
        for name in left.keys() - {row["claim"] for row in rows}:
            shutil.rmtree(left[name], ignore_errors=True)

    def _remove(self, job_id: str) -> None:
        made_from_it = select(JOBS.c.id).where(or_(JOBS.c.base == job_id, JOBS.c.split_from == job_id))
        for row in self._database.read(made_from_it):
            self._remove(row["id"])
        for upload in self._uploads.list_for_job(job_id):
            self._uploads.remove(upload)
        self._files.remove(f"jobs/{job_id}")
        self._database.write(delete(JOBS).where(JOBS.c.id == job_id))

    def _select_one(self, *conditions: ColumnElement[bool]) -> WebJob:
        rows = self._database.read(select(JOBS).where(*conditions, _is_kept()))
        if not rows:
            raise NotFoundError(front_ends.REPORT_MISSING())
        return _from_row(rows[0])

    def _update_claimed(self, job: WebJob, **values: Any) -> bool:
        is_claimed = and_(JOBS.c.id == job.id, JOBS.c.claim == job.claim, JOBS.c.state == RUNNING)
        return bool(self._database.write(update(JOBS).where(is_claimed).values(values).returning(JOBS.c.id)))

    def _list_worker_jobs(self, worker: str) -> list[WebJob]:
        rows = self._database.read(select(JOBS).where(JOBS.c.worker == worker, JOBS.c.state == RUNNING))
        return [_from_row(row) for row in rows]


def _make_row(
    requester: Requester, names: Sequence[str], request: dict[str, Any] | None, expires: float
) -> dict[str, Any]:
    """Make the row of a new job that waits."""
    now = time.time()
    return {
        "id": secrets.token_hex(16),
        "link": secrets.token_hex(16),
        "owner": requester.owner,
        "network": requester.network,
        "uploads": [*names],
        "state": QUEUED,
        "request": request,
        "stage": str(WAITING_FOR_WORKER()),
        "formats": [],
        "attempts": 0,
        "created": now,
        "queued": now,
        "expires": expires,
    }


def _is_kept() -> ColumnElement[bool]:
    return and_(JOBS.c.state != DELETED, JOBS.c.expires > time.time())


def _from_row(row: RowMapping) -> WebJob:
    values = {field.name: row[field.name] for field in fields(WebJob)}
    return WebJob(**values | {name: tuple(row[name]) for name in ("uploads", "formats")})
