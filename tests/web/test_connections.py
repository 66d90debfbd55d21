"""Clients that keep their connections without using them, and others that misbehave: the page answers all the same."""

import errno
import logging
import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from starlette.responses import Response

from tests.codes import has_code
from tests.web.conftest import RUN, find_free_port, until
from tracekit.bounds import MIN_PROGRESS_BYTES
from tracekit.errors import OutputError
from tracekit.web import server
from tracekit.web.errors import explain_failure

REQUEST = b"GET /login HTTP/1.1\r\nHost: localhost\r\n"
UPLOAD = b"PUT /api/v1/traces/t HTTP/1.1\r\nHost: localhost\r\n"
BODY = UPLOAD + b"Content-Length: %d\r\n\r\n"
WAIT_S = 0.5


@pytest.fixture
def connect():
    """Opens connections to the server of a client."""
    with ExitStack() as stack:

        def make(client, sent=b""):
            url = httpx.URL(str(client.base_url))
            connection = stack.enter_context(socket.create_connection((url.host, url.port), timeout=10))
            connection.sendall(sent)
            return connection

        yield make


def is_ended(connection, within_s=5.0):
    connection.settimeout(within_s)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.fixture
def lines(caplog):
    """What the server logs."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    for record in caplog.records:
        assert record.exc_info is None, record
        assert "Traceback" not in record.getMessage()


@pytest.fixture
def few(start, monkeypatch):
    """A client of a server of eight connections."""
    monkeypatch.setattr("tracekit.web.server.get_connection_limit", lambda: 8)
    return start()


@pytest.mark.parametrize("sent", [b"", REQUEST, REQUEST + b"\r\n", BODY % 1000, BODY % 10_000_000 + b"x" * 20_000])
def test_more_connections_than_there_may_be(sent, few, connect, lines):
    silent = []
    for _ in range(5):
        silent += [connect(few, sent) for _ in range(8)]
        assert httpx.get(f"{few.base_url}/login", trust_env=False, timeout=5).status_code == 200
    assert sum(is_ended(one, 0.05) for one in silent) >= 40 - 8


def test_a_client_that_sends_keeps_its_place(few, connect):
    upload = connect(few, BODY % (20 * MIN_PROGRESS_BYTES))
    for _ in range(20):
        upload.sendall(b"x" * MIN_PROGRESS_BYTES)
        assert few.get("/login").status_code == 200  # the server has seen all until here
        for _ in range(3):
            connect(few)
    assert upload.recv(1000).startswith(b"HTTP/1.1 201")


@pytest.mark.heavy
def test_descriptors_run_out_for_nobody(settings, tmp_path):
    """As by ``ulimit -n 128``: the connections stay below it, and nothing is said about them but one line."""
    port, log = find_free_port(), tmp_path / "log"

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    own = replace(settings, port=port, data=tmp_path / "own", database=None)
    with log.open("wb") as output:
        command = [sys.executable, "-c", RUN, own.to_json()]
        process = subprocess.Popen(command, stderr=output, preexec_fn=limit)
    url = f"http://127.0.0.1:{port}/login"

    def answers():
        try:
            return httpx.get(url, trust_env=False, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    until(answers, 20)
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        assert answers()
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < 128
    process.terminate()
    process.wait()
    said = [line for line in log.read_text().splitlines() if "GET /login" not in line]
    assert len(said) == 1
    assert "connections" in said[0]


@pytest.mark.heavy
def test_clients_may_keep_the_server_waiting_for_so_long(start, connect, lines):
    client = start(client_wait_s=WAIT_S)
    begun = time.monotonic()
    sent = (b"", REQUEST, BODY % 1000 + b"x", REQUEST + b"\r\n" + REQUEST)
    for silent in [connect(client, each) for each in sent]:
        assert is_ended(silent)
    assert WAIT_S - 0.1 < time.monotonic() - begun < 8


def test_single_bytes_are_no_progress(start, connect, lines):
    client = start(client_wait_s=WAIT_S)
    header, body = connect(client, REQUEST + b"X: "), connect(client, BODY % 100_000)
    end = time.monotonic() + 10
    for slow in (header, body):
        with suppress(ConnectionError):
            while time.monotonic() < end:
                slow.sendall(b"x")
                time.sleep(0.05)
    assert time.monotonic() < end


@pytest.mark.heavy
def test_a_slow_upload_that_goes_on_may_take_its_time(start, connect):
    upload = connect(start(client_wait_s=WAIT_S), BODY % (10 * MIN_PROGRESS_BYTES))
    for _ in range(10):
        upload.sendall(b"x" * MIN_PROGRESS_BYTES)
        time.sleep(0.18)
    assert upload.recv(1000).startswith(b"HTTP/1.1 201")


@pytest.mark.heavy
def test_an_answer_that_nobody_takes_is_given_up(start, connect, monkeypatch, lines):
    monkeypatch.setattr("tracekit.web.pages.render_page", lambda *_, **__: Response(b"x" * 30_000_000))
    connection = connect(start(client_wait_s=WAIT_S), REQUEST + b"\r\n")
    time.sleep(4 * WAIT_S)
    connection.settimeout(5)
    received = 0
    with suppress(ConnectionError):
        while block := connection.recv(1 << 20):
            received += len(block)
    assert received < 30_000_000


BROKEN = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00",
    "no length": b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
    "bad chunk": UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nzz\r\n",
    "more behind an answer": REQUEST + b"\r\n" + b"\x00\xff" * 100,
    "endless header": REQUEST + b"X: " + b"x" * 100_000,
    "cut form": b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 100\r\n\r\ntoken=",
    "cut JSON": b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{",
    "cut upload": BODY % 100 + b"data",
    "an upgrade": REQUEST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a refused body": b"PATCH /api/v1/uploads/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_clients_break_is_a_line_at_most(kind, api, connect, lines):
    for _ in range(3):
        with connect(api.client, BROKEN[kind]) as connection:
            connection.settimeout(0.1)
            with suppress(TimeoutError):
                connection.recv(100)
    assert api.client.get("/login").status_code == 200


def test_without_descriptors_a_request_is_refused(api, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("tracekit.web.uploads.UploadStore.get", full)
    answer = api.client.head(f"/api/v1/uploads/{'0' * 32}", headers={"Tus-Resumable": "1.0.0"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_a_bug_is_logged_without_the_users_data(api, monkeypatch, caplog):
    def broken(*_, **__):
        raise KeyError(secret)

    secret = "my-model"
    monkeypatch.setattr("tracekit.web.jobs.JobQueue.list_for_owner", broken)
    answer = api.client.get("/api/v1/jobs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "server-bug")
    assert "KeyError" in caplog.text
    assert "my-model" not in caplog.text
    assert explain_failure(ConnectionResetError()) is None


def test_connections_that_cannot_be_accepted_are_said_once(caplog, monkeypatch):
    monkeypatch.setattr(server, "_last_logged", {})
    for _ in range(100):
        server.handle_loop_error(None, {"exception": OSError(errno.EMFILE, "Too many open files")})
    assert [record.getMessage() for record in caplog.records] == ["connections can't be accepted: Too many open files"]


def test_an_address_that_this_machine_lacks_is_skipped_beside_one_that_it_has(monkeypatch):
    """Names such as localhost mean ::1 and 127.0.0.1; many containers have no IPv6."""
    both = [(family, socket.SOCK_STREAM, 6, "", (f"address {family}", 0)) for family in (1, 2, 2)]
    opened = []

    def create_server(address, *, family):
        if family == 1:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        opened.append(address)
        return socket.socket()

    monkeypatch.setattr(server.socket, "getaddrinfo", lambda *args, **options: both)
    monkeypatch.setattr(server.socket, "create_server", create_server)
    for one in server._open_sockets("localhost", 0):
        one.close()
    assert opened == [("address 2", 0)]
    monkeypatch.setattr(server.socket, "getaddrinfo", lambda *args, **options: both[:1])
    with pytest.raises(OutputError, check=has_code("address-unusable")):
        server._open_sockets("localhost", 0)


@pytest.mark.parametrize(
    ("cycle", "write_paused", "read_paused", "waits"),
    [
        (None, False, False, True),
        ((True, False, False), False, False, True),
        ((False, True, False), False, False, True),
        ((False, True, False), False, True, False),
        ((False, True, True), False, False, False),
        ((False, False, False), False, False, False),
        ((False, False, False), True, True, True),
    ],
    ids=[
        *("no request", "answered", "more of the body", "the server reads no more", "the server was asked to go on"),
        *("the server works", "the answer isn't taken"),
    ],
)
def test_whose_turn_it_is(cycle, write_paused, read_paused, waits):
    """Only a client that holds things up loses its connection, not one that waits for the server."""
    names = ("response_complete", "more_body", "waiting_for_100_continue")
    state = SimpleNamespace(
        cycle=None if cycle is None else SimpleNamespace(**dict(zip(names, cycle, strict=True))),
        flow=SimpleNamespace(write_paused=write_paused, read_paused=read_paused),
    )
    assert server.BoundedProtocol.waits_for_client.fget(state) is waits
