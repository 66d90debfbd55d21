"""The queue and its quotas, as their callers meet them at each limit; what workers' ends do to their jobs."""

import signal
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from tests.codes import has_code
from tracekit.messages import front_ends
from tracekit.web import quotas
from tracekit.web.database import JOBS, UPLOADS
from tracekit.web.errors import BusyError, DiskFullError, NotFoundError, TooLargeError, TooManyError, WebError
from tracekit.web.jobs import WebJob
from tracekit.web.quotas import Requester
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.worker import WorkerPool

ME = Requester("me", "home")
Add = Callable[..., str]


@pytest.fixture
def add_job(store: Store) -> Add:
    """Adds a job's row: one of mine that waits, unless said otherwise."""

    def add(**changed: Any) -> str:
        count = len(store.database.read(select(JOBS.c.id)))
        values: dict[str, Any] = {"id": f"{count:032x}", "link": f"{count + 4096:032x}", "owner": "me"}
        values |= {"network": "home", "uploads": ["t.json"], "state": "queued", "stage": "", "formats": []}
        values |= {"attempts": 0, "created": count, "queued": count, "expires": time.time() + 1000}
        store.database.write(insert(JOBS).values(values | changed))
        return str(values["id"])

    return add


def check(store: Store, of: Callable[..., None], requester: Requester, **limits: int) -> None:
    with store.database.transaction() as connection:
        of(connection, Settings(data=Path("/x"), **limits), requester)


def test_the_queue_holds_as_many_as_it_may(store: Store, add_job: Add) -> None:
    """Of all 10, an owner's 3, and half of it from one network: whoever is refused is told the number."""
    for _ in range(2):
        add_job()
    add_job(state="running"), add_job(state="done")
    limits = {"max_queued": 10, "max_queued_per_owner": 3}
    check(store, quotas.check_queue, ME, **limits)
    add_job()
    with pytest.raises(TooManyError, check=has_code("queue-full")) as refused:
        check(store, quotas.check_queue, ME, **limits)
    assert refused.value.catalogue_message.values == {"count": 3, "whose": "of your jobs"}
    for owner in ("you", "them"):
        check(store, quotas.check_queue, Requester("other", "home"), **limits)
        add_job(owner=owner)
    with pytest.raises(TooManyError):  # five of one network
        check(store, quotas.check_queue, Requester("other", "home"), **limits)
    for number in range(5):
        check(store, quotas.check_queue, Requester("other", "away"), **limits)
        add_job(owner=f"far {number}", network=f"far {number}")
    with pytest.raises(TooManyError, check=has_code("queue-full")) as refused:
        check(store, quotas.check_queue, Requester("other", "away"), **limits)
    assert refused.value.catalogue_message.values == {"count": 10, "whose": "jobs"}


def test_a_network_waits_with_four_times_what_an_owner_may(store: Store, add_job: Add) -> None:
    for number in range(7):
        add_job(owner=f"browser {number}")
    check(store, quotas.check_queue, ME, max_queued=500, max_queued_per_owner=2)
    add_job(owner="browser 8")
    with pytest.raises(TooManyError):
        check(store, quotas.check_queue, ME, max_queued=500, max_queued_per_owner=2)
    check(store, quotas.check_queue, Requester("me"), max_queued=500, max_queued_per_owner=2)  # of no network


def test_the_smallest_queue_takes_one(store: Store, add_job: Add) -> None:
    check(store, quotas.check_queue, ME, max_queued=1)
    add_job(owner="you", network="away")
    with pytest.raises(TooManyError):
        check(store, quotas.check_queue, ME, max_queued=1)


def test_jobs_are_kept_up_to_a_number(store: Store, add_job: Add) -> None:
    add_job(state="done"), add_job(state="deleted"), add_job(state="deleted")
    check(store, quotas.check_jobs, ME, max_jobs_per_owner=2)
    add_job(state="failed")
    with pytest.raises(TooManyError, check=has_code("jobs-too-many")) as refused:
        check(store, quotas.check_jobs, ME, max_jobs_per_owner=2)
    assert refused.value.catalogue_message.values == {"most": 2}
    for number in range(5):
        add_job(state="done", owner=f"browser {number}")
    check(store, quotas.check_jobs, Requester("other", "home"), max_jobs_per_owner=2)
    add_job(state="done", owner="browser 6")
    with pytest.raises(TooManyError, check=has_code("jobs-too-many")) as refused:
        check(store, quotas.check_jobs, Requester("other", "home"), max_jobs_per_owner=2)
    assert refused.value.catalogue_message.values == {"most": 8}


def add_uploads(store: Store, count: int, owner: str = "me", **changed: Any) -> None:
    before = len(store.database.read(select(UPLOADS.c.id)))
    common = {"owner": owner, "name": "t", "expires": time.time() + 1000, "network": "home"} | changed
    rows = [common | {"id": str(before + number)} for number in range(count)]
    store.database.write(insert(UPLOADS).values(rows))


def test_uploads_may_wait_for_four_jobs(store: Store) -> None:
    """Of one owner, and four times as many of a network; those of a job don't count."""
    add_uploads(store, 12)
    add_uploads(store, 20, job="1")
    check(store, quotas.check_upload_count, ME, max_files=3)
    add_uploads(store, 1)
    with pytest.raises(TooManyError, check=has_code("uploads-too-many")) as refused:
        check(store, quotas.check_upload_count, ME, max_files=3)
    assert refused.value.catalogue_message.values == {"most": 12}
    add_uploads(store, 35, "you")
    check(store, quotas.check_upload_count, Requester("other", "home"), max_files=3)
    add_uploads(store, 1, "they")
    with pytest.raises(TooManyError) as refused:
        check(store, quotas.check_upload_count, Requester("other", "home"), max_files=3)
    assert refused.value.catalogue_message.values == {"most": 48}


def test_uploads_and_reports_count_together(store: Store, add_job: Add) -> None:
    add_uploads(store, 2, reserved=300)
    add_job(state="done", report_bytes=400)
    check(store, quotas.check_bytes, ME, max_stored_bytes=1000)
    with pytest.raises(TooLargeError, check=has_code("quota-used-up")) as refused:
        check(store, quotas.check_bytes, ME, max_stored_bytes=999)
    assert refused.value.catalogue_message.values == {"max_bytes": 999}
    check(store, quotas.check_bytes, Requester("other", "home"), max_stored_bytes=250)
    with pytest.raises(TooLargeError) as refused:
        check(store, quotas.check_bytes, Requester("other", "home"), max_stored_bytes=249)
    assert refused.value.catalogue_message.values == {"max_bytes": 996}
    check(store, quotas.check_bytes, Requester("other", "away"), max_stored_bytes=0)


def test_jobs_are_done_in_turn(store: Store, add_job: Add) -> None:
    first, second, third = add_job(queued=1), add_job(queued=3), add_job(queued=2)
    mine = {job.id: job for job in store.jobs.list_for_owner("me")}
    assert list(mine) == [third, second, first]  # the newest first
    assert [store.jobs.count_ahead(mine[job]) for job in (first, third, second)] == [0, 1, 2]
    assert [store.jobs.claim("w").id for _ in range(3)] == [first, third, second]
    assert store.jobs.count_ahead(mine[second]) == 0


def test_a_job_that_has_expired_is_nobodys(store: Store, add_job: Add) -> None:
    job, link = add_job(expires=time.time() - 1), f"{4096:032x}"
    assert store.jobs.claim("w") is None
    assert store.jobs.list_for_owner("me") == []
    for missing in (lambda: store.jobs.get("me", job), lambda: store.jobs.get_by_link(link)):
        with pytest.raises(NotFoundError, check=has_code("report-missing")):
            missing()
    store.database.write(update(JOBS).values(expires=time.time() + 9))
    assert store.jobs.get("me", job).id == store.jobs.get_by_link(link).id == job
    with pytest.raises(NotFoundError):
        store.jobs.get("you", job)


def test_a_claim_lasts_for_its_lease(store: Store, add_job: Add, settings: Settings) -> None:
    add_job()
    claimed = store.jobs.claim("w")
    [row] = store.database.read(select(JOBS.c.lease, JOBS.c.worker, JOBS.c.attempts))
    assert row["lease"] == pytest.approx(time.time() + settings.lease_s, abs=10)
    assert (row["worker"], row["attempts"], len(claimed.claim)) == ("w", 1, 32)
    store.database.write(update(JOBS).values(lease=time.time() - 1))
    assert store.jobs.renew(claimed)
    [row] = store.database.read(select(JOBS.c.lease))
    assert row["lease"] == pytest.approx(time.time() + settings.lease_s, abs=10)
    assert store.jobs.claim("other") is None


def test_a_claim_from_before_the_clock_was_set_back_is_over(store: Store, add_job: Add, settings: Settings) -> None:
    add_job()
    lost = store.jobs.claim("dead")
    store.database.write(update(JOBS).values(lease=time.time() + 1.5 * settings.lease_s))  # of a clock that is ahead
    assert store.jobs.claim("other") is None
    store.database.write(update(JOBS).values(lease=time.time() + 3600))
    taken = store.jobs.claim("other")
    assert (taken.id, store.jobs.renew(lost)) == (lost.id, False)


def test_a_job_and_its_uploads_are_kept_for_as_long(store: Store, settings: Settings) -> None:
    upload = store.uploads.create(ME, "t.json", 0)
    assert upload.expires == pytest.approx(time.time() + settings.keep_upload_s, abs=10)
    job = store.jobs.create(ME, [upload.id], None)
    assert job.expires == pytest.approx(job.created + settings.keep_s)
    assert [each.expires for each in store.uploads.list_for_job(job.id)] == [job.expires]
    assert (job.state, job.attempts, job.uploads, job.is_active) == ("queued", 0, ("t.json",), True)


def test_uploads_of_a_job_come_by_name(store: Store) -> None:
    uploads = [store.uploads.create(ME, name, 0).id for name in ("c", "a", "b")]
    job = store.jobs.create(ME, [uploads[0], *uploads], None)  # named twice, it is one
    assert job.uploads == ("c", "a", "b")
    assert [each.name for each in store.uploads.list_for_job(job.id)] == ["a", "b", "c"]
    assert store.uploads.list_for_job("another") == []


@pytest.mark.parametrize(
    ("uploads", "name"),
    [
        (["t.json"], "t.json"),
        (["run/t.json"], "run/t.json"),
        (["run/0.json", "run/1.json"], "run (2 files)"),
        (["run/a/0.json", "run/b/1.json"], "run (2 files)"),
        ([f"run/{rank}.json" for rank in range(1234)], "run (1,234 files)"),
        (["run/0.json", "other/1.json"], "run/0.json and 1 more"),
        (["run/0.json", "1.json", "2.json"], "run/0.json and 2 more"),
        (["0.json", "1.json"], "0.json and 1 more"),
    ],
)
def test_a_job_is_called_by_its_folder_or_first_file(uploads: list[str], name: str) -> None:
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(WebJob)) | {"uploads": tuple(uploads)}
    assert WebJob(**values).name == name


ENDS = {
    -signal.SIGALRM: ("failed", "job-too-slow", {"limit_s": 7}, 0),
    -signal.SIGABRT: ("failed", "worker-out-of-memory", {"max_bytes": 3 << 30}, 0),
    75: ("queued", None, None, 0),  # EX_TEMPFAIL: the worker left its job for a reason that isn't the job's
    -signal.SIGKILL: ("queued", None, None, 1),
    1: ("queued", None, None, 1),
    0: ("queued", None, None, 1),
}


def test_what_a_workers_end_means_to_its_job(store: Store, settings: Settings, add_job: Add) -> None:
    pool = WorkerPool(replace(settings, time_limit_s=7, memory_bytes=3 << 30), store)
    for status, (state, code, values, deaths) in ENDS.items():
        job = add_job(queued=-1)
        store.jobs.claim("w")
        assert pool._note_end("w", status)
        ended = store.jobs.get("me", job)
        assert (ended.state, ended.deaths) == (state, deaths), status
        told = ended.error or {"code": None, "catalogue": {"values": None}}
        assert (told["code"], told["catalogue"]["values"]) == (code, values)
        store.jobs.delete(ended)


def test_the_third_death_ends_a_job(store: Store, add_job: Add) -> None:
    """As the documentation says."""
    job = add_job()
    for death in (1, 2):
        store.jobs.claim("w")
        store.jobs.note_worker_death("w")
        assert (store.jobs.get("me", job).state, store.jobs.get("me", job).deaths) == ("queued", death)
    store.jobs.claim("w")
    store.jobs.note_worker_death("w")
    ended = store.jobs.get("me", job)
    assert (ended.state, ended.error["catalogue"]["values"]) == ("failed", {"times": 3})


def test_a_server_that_stops_takes_nothing_from_its_jobs(store: Store, settings: Settings, add_job: Add) -> None:
    job = add_job()
    store.jobs.claim("w")
    pool = WorkerPool(replace(settings, workers=0), store)
    pool._stopping.set()
    assert pool._note_end("w", -signal.SIGKILL)
    assert (store.jobs.get("me", job).state, store.jobs.get("me", job).deaths) == ("queued", 0)


@pytest.mark.parametrize("error", [BusyError(front_ends.DATABASE_BUSY()), DiskFullError(front_ends.DISK_FULL())])
def test_an_end_that_can_not_be_noted_is_noted_later(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, error: WebError
) -> None:
    """Unless the server stops: then the claim runs out."""

    def busy(*_: object) -> None:
        raise error

    pool = WorkerPool(replace(settings, workers=0), store)
    monkeypatch.setattr(store.jobs, "note_worker_death", busy)
    assert not pool._note_end("w", 1)
    pool._stopping.set()
    monkeypatch.setattr(store.jobs, "release_worker_job", busy)
    assert pool._note_end("w", 1)


def test_a_deleted_job_is_gone_at_once(store: Store, add_job: Add) -> None:
    kept, gone = add_job(), add_job()
    store.jobs.delete(store.jobs.get("me", gone))
    assert [job.id for job in store.jobs.list_for_owner("me")] == [kept]
    assert isinstance(store.jobs.get("me", kept), WebJob)
