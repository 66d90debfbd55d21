"""Servers: one within the test's process, and real ones that can be killed."""

import contextlib
import html
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import httpx
import pytest
from sqlalchemy import delete
from typer.testing import CliRunner

from tracekit.cli.app import app as cli
from tracekit.testing import TraceBuilder
from tracekit.web import worker
from tracekit.web.database import METADATA
from tracekit.web.server import PageServer
from tracekit.web.settings import Settings
from tracekit.web.store import Store

# A PostgreSQL data base to use in place of SQLite; its tables are emptied.
VARIABLE = "TRACEKIT_TEST_DATABASE"

RUN = "import sys; from tracekit.web.server import run_server; from tracekit.web.settings import Settings; "
RUN += "run_server(Settings.from_json(sys.argv[1]))"


class Api:
    """What a client of the API does."""

    def __init__(self, client):
        self.client = client

    def put(self, data, name="trace.json"):
        answer = self.client.put(f"/api/v1/traces/{name}", content=data)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def begin(self, *uploads, ask=None):
        answer = self.client.post("/api/v1/jobs", json={"uploads": uploads, "ask": ask})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def job(self, job):
        return self.client.get(f"/api/v1/jobs/{job}").json()

    def done(self, job, timeout_s=60):
        """The job once it has ended."""
        until(lambda: self.job(job)["state"] not in ("queued", "running"), timeout_s)
        return self.job(job)


class Server(Api):
    """A server in a process of its own, with its workers; further options are those of ``subprocess.Popen``."""

    def __init__(self, settings, start_s=60, **options):
        super().__init__(httpx.Client(base_url=f"http://127.0.0.1:{settings.port}", timeout=60, trust_env=False))
        self.url = f"http://127.0.0.1:{settings.port}"
        self.process = subprocess.Popen([sys.executable, "-c", RUN, settings.to_json()], **options)
        until(self._answers, start_s)

    def _answers(self):
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.client.base_url}/login", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def workers(self):
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]

    def end(self, sign=signal.SIGKILL):
        if self.process.poll() is None:
            os.kill(self.process.pid, sign)
        self.process.wait()
        self.client.close()


def list_complaints(page):
    """What a page says is wrong, at its top and beside fields; the links to the fields are left out."""
    parts = r'role="alert"[^>]*>(.*?)</(?:section|div)>|<span class="mistake"[^>]*>(.*?)</span>'
    found = ["".join(groups) for groups in re.findall(parts, page.text, re.DOTALL)]
    texts = [html.unescape(re.sub(r"<[^>]+>|\s+", " ", text)).strip() for text in found]
    return [text for text in texts if not text.endswith("Nothing is lost.")]


def find_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(holds, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.03)


@pytest.fixture
def settings(tmp_path):
    settings = Settings(data=tmp_path / "data", database=os.environ.get(VARIABLE), workers=0, min_free_bytes=0)
    if settings.database is not None:
        with contextlib.closing(Store.open(settings)) as store:
            for table in METADATA.sorted_tables:
                store.database.write(delete(table))
    return settings


@pytest.fixture
def store(settings):
    store = Store.open(settings)
    yield store
    store.close()


@pytest.fixture(scope="module")
def ending():
    """Threads of servers that were told to end, which takes each of them a fifth of a second."""
    threads = []
    yield threads
    for thread in threads:
        thread.join()


@pytest.fixture
def start(settings, ending):
    """Serves an application of some settings from this process and gives its client."""
    with contextlib.ExitStack() as stack:

        def make(headers=None, **changed):
            url = stack.enter_context(listening(replace(settings, **changed), ending))
            return stack.enter_context(httpx.Client(base_url=url, timeout=60, trust_env=False, headers=headers))

        yield make


@contextlib.contextmanager
def listening(settings, ending):
    """Serves from a thread of this process, which is noted as it ends; gives its address."""
    server, listener = PageServer(settings), socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    until(lambda: server.started, 10)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    ending.append(thread)


@pytest.fixture(scope="module")
def held(tmp_path_factory, ending):
    """A server in this process for all tests of a file: what a client does, and what does the next job."""
    settings = Settings(data=tmp_path_factory.mktemp("held"), workers=0, min_free_bytes=0)
    with (
        contextlib.closing(Store.open(settings)) as store,
        listening(settings, ending) as url,
        httpx.Client(base_url=url, timeout=60, trust_env=False) as client,
    ):

        def work():
            worker.run_job_with_limits(store.jobs.claim("test"), settings, store)

        yield Api(client), work


@pytest.fixture
def api(start):
    return Api(start())


@pytest.fixture
def as_api():
    return Api


@pytest.fixture
def work(settings, store):
    """Does the next job in this process."""

    def do(**changed):
        job = store.jobs.claim("test")
        assert job is not None
        worker.run_job_with_limits(job, replace(settings, **changed), store)
        return job

    return do


@contextlib.contextmanager
def serving(settings):
    """Starts servers of one store, each on a port of its own."""
    servers = []

    def start(**changed):
        servers.append(Server(replace(settings, **{"port": find_free_port(), "workers": 1, **changed})))
        return servers[-1]

    yield start
    for server in servers:
        server.end(signal.SIGTERM)


@pytest.fixture
def serve(settings):
    """Servers of the test's own store."""
    with serving(settings) as start:
        yield start


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server for all tests of a file; its settings are with it."""
    settings = Settings(data=tmp_path_factory.mktemp("shared"), min_free_bytes=0)
    with serving(settings) as start:
        server = start()
        server.settings = settings
        yield server


@pytest.fixture
def tracekit_json(monkeypatch):
    """What a command prints as JSON."""

    def run(folder, *arguments):
        monkeypatch.chdir(folder)
        return json.loads(CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False).stdout)

    return run


@pytest.fixture
def make_trace():
    """The text of a small trace."""

    def make(rank=None, kernel="ampere_sgemm_64x32", world_size=2):
        builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
        if rank is not None:
            builder.metadata = {"distributedInfo": {"rank": rank, "world_size": world_size}, **builder.metadata}
        return builder.kernel(kernel, 20, 100, launch=10).to_json()

    return make
