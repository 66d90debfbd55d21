"""What ends requests, jobs and workers: each failure has its status and code, and says nothing of the user's data."""

import errno
import io
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from h11 import RemoteProtocolError
from sqlalchemy import select
from starlette.requests import ClientDisconnect

from predictors.errors import AmbiguousGpuError
from tests.codes import has_code
from tests.ingest.test_source import FORMS, zipped
from tracekit.errors import DamagedTraceError, OutputError, TraceTooLargeError
from tracekit.ingest.source import expand_inputs, make_file_source
from tracekit.messages import front_ends, traces
from tracekit.web import api, errors, server, worker
from tracekit.web import work as work_module
from tracekit.web.database import JOBS
from tracekit.web.errors import explain_failure
from tracekit.web.responses import format_input
from tracekit.web.server import ConnectionTable
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.traces import check_unpacked_size
from tracekit.web.tus import MediaTypeError

STATUSES = {
    errors.WebError: (400, None),
    errors.UnauthorizedError: (401, None),
    errors.ForbiddenError: (403, None),
    errors.NotFoundError: (404, None),
    errors.ConflictError: (409, None),
    errors.TooLargeError: (413, None),
    MediaTypeError: (415, None),
    errors.LockedError: (423, None),
    errors.TooManyError: (429, "60"),
    errors.BugError: (500, None),
    errors.UnreachableError: (503, "10"),
    errors.BusyError: (503, "5"),
    errors.DiskFullError: (507, None),
}


def test_each_refusal_has_its_status_and_says_when_to_try_again() -> None:
    for kind, (status, retry_after) in STATUSES.items():
        assert (kind.status, kind.headers.get("Retry-After")) == (status, retry_after), kind


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OSError(errno.EMFILE, "Too many open files"), 503, "server-busy"),
        (OSError(errno.ENFILE, "Too many open files"), 503, "server-busy"),
        (OSError(errno.ENOSPC, "No space left on device"), 507, "disk-full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 507, "disk-full"),
        (OSError(errno.EIO, "Input/output error"), 503, "files-unusable"),
        (ValueError("of a user"), 500, "server-bug"),
        (errors.ForbiddenError(front_ends.ORIGIN_FOREIGN()), 403, "origin-foreign"),
    ],
)
def test_a_request_that_fails_is_answered(error: Exception, status: int, code: str) -> None:
    refusal = explain_failure(error)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (status, code)
    assert "of a user" not in str(refusal)


def test_a_failure_without_a_reason_is_called_by_its_kind() -> None:
    refusal = explain_failure(OSError())
    assert refusal is not None
    assert refusal.catalogue_message.values == {"reason": "OSError"}
    refusal = explain_failure(OSError(errno.EIO, "Input/output error"))
    assert refusal is not None
    assert refusal.catalogue_message.values == {"reason": "Input/output error"}


@pytest.mark.parametrize(
    "error", [ClientDisconnect(), BrokenPipeError(), ConnectionResetError(), RemoteProtocolError("x")]
)
def test_a_client_that_left_is_not_answered(error: Exception) -> None:
    assert explain_failure(error) is None


def test_errors_are_given_to_programs_with_their_parts() -> None:
    told = errors.serialize_error(errors.WebError(front_ends.WORKERS_DIED(times=3)))
    assert (told["code"], told["catalogue"]["values"]) == ("workers-died", {"times": 3})
    assert told["message"] == "A worker died at this job 3 times."
    assert told["hint"] == "It may need more memory than there is."
    assert errors.serialize_error(AmbiguousGpuError("a100", ["one", "two"]))["catalogue"] is None


@pytest.fixture
def run_into(store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Runs a job that fails; gives what is noted of it."""
    noted: list[Any] = []

    def run(error: BaseException) -> list[Any]:
        def fail(*_: object) -> None:
            raise error

        noted.clear()
        monkeypatch.setattr(work_module, "execute_job", fail)
        monkeypatch.setattr(store.jobs, "fail", lambda job, why: noted.append(why))
        worker._run_and_record_failure(SimpleNamespace(id="1"), settings, store)
        return [(why.code, dict(why.catalogue_message.values)) for why in noted]

    return run


def test_a_job_that_fails_says_why(run_into: Callable[..., Any], settings: Settings) -> None:
    too_large = TraceTooLargeError(traces.TRACE_TOO_LARGE(path="t.json", limit_bytes=5))
    assert run_into(too_large) == [("worker-tables-too-large", {"reason": too_large.message})]
    damaged = DamagedTraceError(traces.FILE_EMPTY(path="t.json"))
    assert run_into(damaged) == [("file-empty", {"path": "t.json"})]
    assert run_into(MemoryError()) == [("worker-out-of-memory", {"max_bytes": settings.worker_bytes})]
    assert run_into(OSError(errno.ENOSPC, "No space")) == [("disk-full", {})]
    assert run_into(OSError(errno.EIO, "Input/output error")) == [("files-unusable", {"reason": "Input/output error"})]


def test_a_bug_in_a_job_is_logged_without_the_users_data(run_into: Callable[..., Any], capfd: Any) -> None:
    assert run_into(KeyError("my-model")) == [("server-bug", {})]
    logged = capfd.readouterr().err
    assert "in fail" in logged
    assert "KeyError" in logged
    assert "my-model" not in logged


def test_a_job_that_meets_a_busy_database_is_left_for_later(run_into: Callable[..., Any]) -> None:
    with pytest.raises(SystemExit) as left:
        run_into(errors.BusyError(front_ends.DATABASE_BUSY()))
    assert left.value.code == 75


class Renewals:
    """A job's store and clock: each renewal is a result or an error, after which as many seconds have passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *renewals: Any) -> None:
        self.waits: list[float] = []
        self.left: list[int] = []
        self._now, self._renewals = 0.0, iter(renewals)
        self.error: errors.WebError = errors.BusyError(front_ends.DATABASE_BUSY())
        monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: self._now))
        monkeypatch.setattr(worker.os, "_exit", self._leave)

    def _leave(self, status: int) -> None:
        self.left.append(status)
        raise SystemExit

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return False

    def is_set(self) -> bool:
        return False

    def renew(self, job: object) -> bool:
        result = next(self._renewals)
        if isinstance(result, float):
            self._now += result
            raise self.error
        return bool(result)

    def run(self) -> None:
        settings, store = Settings(data=Path("/x"), lease_s=20.0), SimpleNamespace(jobs=self)
        with pytest.raises((SystemExit, StopIteration)):
            worker._renew_claim(SimpleNamespace(id="1"), settings, store, self)


def test_a_claim_is_renewed_four_times_in_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Renewals(monkeypatch, True, True)
    kept.run()
    assert (kept.waits, kept.left) == ([5.0] * 3, [])


def test_a_worker_ends_when_its_claim_is_lost_or_has_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Renewals(monkeypatch, True, False, True)
    lost.run()
    assert (len(lost.waits), lost.left) == (2, [75])
    busy = Renewals(monkeypatch, 10.0, 9.0)
    busy.run()
    assert busy.left == []
    too_long = Renewals(monkeypatch, 10.0, 10.0, True)
    too_long.run()
    assert (len(too_long.waits), too_long.left) == (2, [75])
    full = Renewals(monkeypatch, 10.0, 10.0, True)
    full.error = errors.DiskFullError(front_ends.DISK_FULL())
    full.run()
    assert (len(full.waits), full.left) == (2, [75])


def test_a_worker_outlives_a_full_disk(settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims can't be stored; the next try finds room, and no job."""
    tries = iter([errors.DiskFullError(front_ends.DISK_FULL()), None])

    def claim(name: str) -> None:
        error = next(tries)
        if error is not None:
            raise error

    monkeypatch.setattr(worker.sys, "stdin", io.StringIO(f"{settings.to_json()}\nw\n"))
    monkeypatch.setattr(worker, "_end_with_parent", lambda: None)
    monkeypatch.setattr(worker.resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(worker, "POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr(worker.Store, "open_prepared", lambda *_: store)
    monkeypatch.setattr(store.jobs, "claim", claim)
    with pytest.raises(StopIteration):
        worker.main()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(server.socket, "getaddrinfo", lambda *_, **__: found)


def test_a_server_listens_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of a name that this machine lacks, as ::1 without IPv6, are left out."""
    resolve_to(monkeypatch, "203.0.113.1", "127.0.0.1", "127.0.0.1", "127.0.0.2")
    opened = server._open_sockets("name", 0)
    assert [each.getsockname()[0] for each in opened] == ["127.0.0.1", "127.0.0.2"]
    for each in opened:
        each.close()
    resolve_to(monkeypatch, "203.0.113.1")
    with pytest.raises(OutputError, check=has_code("address-unusable")) as refused:
        server._open_sockets("name", 1234)
    values = refused.value.catalogue_message.values
    assert values == {"host": "name", "port": 1234, "reason": "Cannot assign requested address"}


def test_a_server_takes_all_addresses_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    create = socket.create_server

    def listen(address: tuple[str, int], **options: Any) -> socket.socket:
        if address[0] == "127.0.0.2":
            raise OSError(errno.EADDRINUSE, "Address already in use (while attempting to bind)")
        begun.append(create(address, **options))
        return begun[-1]

    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    monkeypatch.setattr(server.socket, "create_server", listen)
    with pytest.raises(OutputError) as refused:
        server._open_sockets("name", 0)
    assert refused.value.catalogue_message.values["reason"] == "Address already in use"
    assert [each.fileno() for each in begun] == [-1]


class Connection:
    """A connection that waits for its client, or for the server."""

    def __init__(self, waits: bool = True) -> None:
        self.waits_for_client, self.ended = waits, False

    def end(self) -> None:
        self.ended = True


def test_a_new_connection_takes_the_place_of_the_one_that_waited_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_last_logged", {})
    table = ConnectionTable(3, 30.0)
    busy, first, second, third, last = Connection(False), *(Connection() for _ in range(4))
    for each in (busy, first, second):
        table.add(each)
    assert not first.ended
    table.note_progress(first)
    table.add(third)
    assert [each.ended for each in (busy, first, second, third)] == [False, False, True, False]
    for each in (second, first, third):
        table.remove(each)
    alone = ConnectionTable(1, 30.0)
    alone.add(busy)
    alone.add(last)
    assert (busy.ended, last.ended) == (False, True)


def test_connections_stall_beyond_the_time_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(server, "time", now)
    table, client, busy = ConnectionTable(9, 30.0), Connection(), Connection(False)
    table.add(client), table.add(busy)
    now.monotonic = lambda: 130.0
    table.end_stalled()
    assert not client.ended
    now.monotonic = lambda: 130.5
    table.end_stalled()
    assert (client.ended, busy.ended) == (True, False)
    busy.waits_for_client = True
    now.monotonic = lambda: 160.0
    table.end_stalled()
    assert not busy.ended  # it counts from when the server was last seen to work on it


def test_a_line_is_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(server, "_last_logged", {})
    for now, lines in ((5.0, 1), (64.9, 1), (65.0, 2), (124.0, 2), (125.0, 3)):
        monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda now=now: now))
        server.log_sparingly("full")
        assert len(caplog.records) == lines
    server.log_sparingly("other")
    assert len(caplog.records) == 4


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def save(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return save


@pytest.mark.parametrize("form", ["gzip", "members", "zstd", "zip"])
def test_files_may_unpack_to_so_much(form: str, write: Callable[..., Path]) -> None:
    sources = expand_inputs([write("t", FORMS[form]), write("plain.json", FORMS["plain"])]).traces
    size = len(FORMS["plain"])  # once: what isn't compressed was bounded when it was uploaded
    check_unpacked_size(sources, most_bytes=size, most_files=2)
    with pytest.raises(errors.TooLargeError, check=has_code("files-unpack-too-large")) as refused:
        check_unpacked_size(sources, most_bytes=size - 1, most_files=2)
    assert refused.value.catalogue_message.values == {"name": sources[0].name, "max_bytes": size - 1}
    with pytest.raises(errors.TooLargeError, check=has_code("files-too-many")) as refused:
        check_unpacked_size(sources, most_bytes=size, most_files=1)
    assert refused.value.catalogue_message.values == {"files": 2, "max_files": 1}


def test_files_unpack_together(write: Callable[..., Path]) -> None:
    size = len(FORMS["plain"])
    two = expand_inputs(write("t.zip", zipped({"a.json": FORMS["plain"], "b.json": FORMS["plain"]}))).traces
    check_unpacked_size(two, most_bytes=2 * size, most_files=2)
    with pytest.raises(errors.TooLargeError) as refused:
        check_unpacked_size(two, most_bytes=2 * size - 1, most_files=2)
    assert refused.value.catalogue_message.values["name"] == two[1].name


def test_one_damaged_file_of_several_is_left_to_the_reader(write: Callable[..., Path]) -> None:
    damaged = make_file_source(write("empty", b""))
    with pytest.raises(DamagedTraceError, check=has_code("file-empty")):
        check_unpacked_size([damaged], most_bytes=9, most_files=9)
    listed = expand_inputs(write("t.zip", zipped({"a.json": b"", "b.json": b"{}"}))).traces
    check_unpacked_size(listed, most_bytes=2, most_files=2)


def test_numbers_are_shown_as_they_are_entered() -> None:
    assert [format_input(value) for value in (0.1 + 0.2, 2.0, 7, "x", None, 0)] == ["0.3", "2", "7", "x", "", ""]


def test_a_report_is_read_in_blocks_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "BLOCK_BYTES", 4)
    (tmp_path / "report").write_bytes(b"0123456789")
    file = (tmp_path / "report").open("rb")
    assert [*api._read_blocks(file)] == [b"0123", b"4567", b"89"]
    assert file.closed


def test_what_reports_take_is_noted(api: Any, store: Store, settings: Settings, work: Any, make_trace: Any) -> None:
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    work()
    [row] = store.database.read(select(JOBS.c.report_bytes, JOBS.c.output))
    kept = list((settings.data / "files" / "jobs" / job / row["output"]).iterdir())
    forms = ("body", "data", *api.job(job)["reports"])
    assert {path.name for path in kept} == {f"report.{form}" for form in forms}
    assert row["report_bytes"] == sum(path.stat().st_size for path in kept)


def test_half_of_a_workers_memory_is_for_tables(api: Any, work: Any, make_trace: Any, monkeypatch: Any) -> None:
    given: list[dict[str, Any]] = []
    load = work_module.load_recording

    def note(sources: Any, **options: Any) -> Any:
        given.append(options)
        return load(sources, **options)

    monkeypatch.setattr(work_module, "load_recording", note)
    api.begin(api.put(make_trace(0)), api.put(make_trace(1)))
    work(memory_bytes=6 << 30)
    assert (given[0]["memory"], given[0]["cache"], given[0]["ranks"]) == (3 << 30, False, None)
    api.begin(api.put(make_trace(0)), api.put(make_trace(1)), ask={"ranks": 1})
    work(memory_bytes=6 << 30)
    assert given[1]["ranks"] == [1]


def test_files_of_one_name_are_told_apart(api: Any, work: Any, make_trace: Any) -> None:
    job = api.begin(*(api.put(data) for data in (b"", b"", make_trace(), b"")))
    work()
    [damaged] = (one for one in api.job(job)["found"]["warnings"] if one["code"] == "files-damaged")
    names = ["trace.json", *(f"trace.json ({number})" for number in (2, 3, 4))]
    assert damaged["values"]["files"] == 3
    assert damaged["values"]["names"] in [", ".join(names[:i] + names[i + 1 :]) for i in range(4)]
