"""kill -9 of a worker or a server at any moment loses nothing; two servers share a store."""

import errno
import hashlib
import os
import signal
import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.web.conftest import until
from tests.web.kill_storm import run_storm
from tracekit.web.database import JOBS
from tracekit.web.worker import WorkerPool

pytestmark = pytest.mark.heavy

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "synthetic_transformer_train.json.gz"
TUS = {"Tus-Resumable": "1.0.0"}


def test_a_storm_of_kills_loses_doubles_and_gives_up_nothing(tmp_path):
    outcome = run_storm(tmp_path / "data", kills=3, jobs=3, workers=1, seed=3, longest_s=1.0)
    assert outcome.kills == {"server": 1, "worker": 1, "both": 1}
    assert outcome.states == {"done": 3}
    assert (outcome.lost, outcome.doubled, outcome.reports) == (0, 0, 1)


def test_a_worker_that_can_not_be_started_is_tried_again(settings, store, monkeypatch):
    tried, again = [], threading.Event()

    def none_left(*arguments, **options):
        tried.append(arguments)
        if len(tried) > 1:
            again.set()
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("tracekit.web.worker.subprocess.Popen", none_left)
    monkeypatch.setattr("tracekit.web.worker.PAUSE_S", 0.01)
    workers = WorkerPool(replace(settings, workers=1), store)
    workers.start()
    assert again.wait(10)
    workers.stop()


def test_a_worker_takes_its_code_from_where_the_server_does(settings, store, monkeypatch, tmp_path):
    """Not from the folder that the server was started in, such as another version's checkout."""
    (tmp_path / "tracekit").mkdir()
    (tmp_path / "tracekit" / "__init__.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    commands = []

    def note(command, **options):
        commands.append(command)
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr("tracekit.web.worker.subprocess.Popen", note)
        with pytest.raises(OSError, match="temporarily"):
            WorkerPool(settings, store)._run_worker("w")
    ended = subprocess.run(commands[0], input=f"{settings.to_json()}\n", text=True, check=False)
    assert ended.returncode == os.EX_TEMPFAIL


def test_a_server_killed_during_an_upload(serve, settings):
    data = os.urandom(2_000_000)
    server = serve(workers=0)
    headers = {**TUS, "Upload-Length": str(len(data))}
    place = server.client.post("/api/v1/uploads", headers=headers).headers["location"]
    url = server.client.base_url
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(
            f"PATCH {place} HTTP/1.1\r\nHost: {url.host}\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
            f"Content-Type: application/offset+octet-stream\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data[:1_500_000]
        )
        upload = settings.data / "arriving" / place.rsplit("/", 1)[-1]
        until(lambda: upload.stat().st_size > 0)
        server.end()
    again = serve(workers=0)
    offset = int(again.client.head(place, headers=TUS).headers["upload-offset"])
    assert 0 < offset <= 1_500_000
    headers = {**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
    assert again.client.patch(place, headers=headers, content=data[offset:]).status_code == 204
    stored = (settings.data / "files" / "uploads" / upload.name).read_bytes()
    assert hashlib.sha256(stored).digest() == hashlib.sha256(data).digest()


def test_killed_between_the_last_byte_and_the_move(api, store, settings):
    headers = {**TUS, "Upload-Length": "4"}
    upload = api.client.post("/api/v1/uploads", headers=headers).headers["location"].rsplit("/", 1)[-1]
    (settings.data / "arriving" / upload).write_bytes(b"data")
    job = api.begin(upload)
    assert api.job(job)["state"] == "queued"
    assert (settings.data / "files" / "uploads" / upload).read_bytes() == b"data"


def test_two_servers_run_no_job_twice(serve, store, make_trace):
    servers = [serve(), serve()]
    uploads = [servers[i % 2].put(make_trace(), f"{i}.json") for i in range(4)]
    jobs = [servers[(i + 1) % 2].begin(upload, ask={"gpu": ["t4"]}) for i, upload in enumerate(uploads)]
    assert [servers[0].done(job)["state"] for job in jobs] == ["done"] * 4
    rows = store.database.read(select(JOBS))
    assert [row["attempts"] for row in rows] == [1] * 4
    assert len({row["worker"] for row in rows}) == 2


def test_a_job_that_takes_too_long_ends_with_that_reason(serve):
    server = serve(time_limit_s=0.05)
    late = server.done(server.begin(server.put(SAMPLE.read_bytes())))
    assert late["state"] == "failed"
    assert late["error"]["code"] == "job-too-slow"


def test_a_worker_that_is_killed_fails_its_job_with_that_reason(serve):
    server = serve()
    job = server.begin(server.put(SAMPLE.read_bytes()))
    until(lambda: server.job(job)["state"] == "running")
    os.kill(server.workers[0], signal.SIGABRT)  # how polars ends where no memory is left
    until(lambda: server.job(job)["state"] == "failed")
    assert "more memory than a worker may take" in server.job(job)["error"]["message"]


def test_a_job_without_memory_says_so(api, make_trace, work, monkeypatch):
    def hungry(*_, **__):
        raise MemoryError

    monkeypatch.setattr("tracekit.request.answers.prepare_run", hungry)
    job = api.begin(api.put(make_trace()))
    work(memory_bytes=3 << 30)
    assert "3 GiB" in api.job(job)["error"]["message"]
