"""Resumable uploads by the tus protocol, and plain ones."""

import asyncio
import base64
import errno
import fcntl
import os
import socket
from types import SimpleNamespace

import anyio
import pytest
from sqlalchemy import select

from tests.web.conftest import until
from tracekit.web.database import UPLOADS, Database
from tracekit.web.quotas import Requester
from tracekit.web.tus import put

TUS = {"Tus-Resumable": "1.0.0"}
DATA = {**TUS, "Content-Type": "application/offset+octet-stream"}
ADDRESS = "/api/v1/uploads"


def create(client, length, name="trace.json.gz"):
    metadata = f"filename {base64.b64encode(name.encode()).decode()},filetype"
    answer = client.post(ADDRESS, headers={**TUS, "Upload-Length": str(length), "Upload-Metadata": metadata})
    assert answer.status_code == 201, answer.text
    return answer.headers["location"]


def send(client, place, offset, data):
    return client.patch(place, headers={**DATA, "Upload-Offset": str(offset)}, content=data)


def stored(settings):
    return [path.read_bytes() for path in (settings.data / "files" / "uploads").glob("*")]


def test_what_the_server_can_do(api):
    headers = api.client.options(ADDRESS).headers
    assert headers["tus-version"] == "1.0.0"
    assert headers["tus-extension"] == "creation,termination,expiration,checksum"
    assert headers["tus-max-size"] == str(4 << 30)


def test_in_pieces_of_any_size(api, settings):
    data = os.urandom(3_000_000)
    place, offset = create(api.client, len(data)), 0
    for end in (1, 70_000, 2_500_000, 3_000_000):
        answer = send(api.client, place, offset, data[offset:end])
        assert (answer.status_code, answer.headers["upload-offset"]) == (204, str(end))
        offset = int(api.client.head(place, headers=TUS).headers["upload-offset"])
        assert offset == end
    assert api.client.head(place, headers=TUS).headers["upload-length"] == "3000000"
    assert "upload-expires" in answer.headers
    assert stored(settings) == [data]


def test_nothing_is_written_twice_or_left_out(api):
    place = create(api.client, 10)
    assert send(api.client, place, 0, b"01234").status_code == 204
    for wrong in (0, 4, 6):
        answer = send(api.client, place, wrong, b"56789")
        assert answer.status_code == 409
        assert "5 bytes have arrived" in answer.json()["error"]["message"]
    assert send(api.client, place, 5, b"567890").status_code == 413
    assert api.client.head(place, headers=TUS).headers["upload-offset"] == "5"


def test_an_empty_file_is_complete_at_once(api, settings):
    create(api.client, 0)
    assert stored(settings) == [b""]


def test_a_deleted_upload_leaves_nothing(api, settings):
    for arrived in (b"", b"abc", b"abcdef"):
        place = create(api.client, 6)
        send(api.client, place, 0, arrived)
        assert api.client.delete(place, headers=TUS).status_code == 204
        assert api.client.head(place, headers=TUS).status_code == 404
        assert send(api.client, place, 0, b"abcdef").status_code == 404
    assert stored(settings) == []
    assert os.listdir(settings.data / "arriving") == []


def test_other_versions_and_types_are_refused(api):
    place = create(api.client, 4)
    assert api.client.head(place).status_code == 412
    assert api.client.post(ADDRESS, headers={"Upload-Length": "4"}).status_code == 412
    assert api.client.patch(place, headers={**TUS, "Upload-Offset": "0"}, content=b"data").status_code == 415
    broken = {**TUS, "Upload-Length": "4", "Upload-Metadata": "filename ***"}
    assert api.client.post(ADDRESS, headers=broken).status_code == 400


def test_the_limit_is_named(start):
    client = start(max_upload_bytes=1 << 20)
    headers = {**TUS, "Upload-Length": str((1 << 20) + 1)}
    answers = [client.post(ADDRESS, headers=headers), client.put("/api/v1/traces/t", content=b" " * ((1 << 20) + 1))]
    answers.append(client.put("/api/v1/traces/t", content=iter([b" " * (1 << 20), b" "])))
    for answer in answers:
        assert answer.status_code == 413
        assert "server takes: 1 MiB" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..\\..\\boot.ini", "a\0b\n", "", "…" * 500, "con"]
)
def test_names_are_never_paths(name, api, settings, make_trace):
    place = create(api.client, len(make_trace()), name)
    send(api.client, place, 0, make_trace())
    job = api.job(api.begin(place.rsplit("/", 1)[-1]))
    assert len(job["uploads"][0]) <= 200
    assert job["uploads"][0].isprintable()
    files = [path for path in settings.data.rglob("*") if path.is_file() and path.suffix == ""]
    assert [path.name for path in files] == [place.rsplit("/", 1)[-1]]


def test_a_broken_connection_keeps_what_arrived(api):
    place = create(api.client, 5_000_000)
    url = api.client.base_url
    headers = {"Host": url.host, "Content-Length": 5_000_000, **DATA, "Upload-Offset": 0}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(f"PATCH {place} HTTP/1.1\r\n{head}\r\n".encode() + b"x" * 1_234_567)
    answers = (int(api.client.head(place, headers=TUS).headers["upload-offset"]) for _ in range(500))
    assert 1_234_567 in answers
    assert send(api.client, place, 1_234_567, b"x" * (5_000_000 - 1_234_567)).status_code == 204


def test_a_file_whose_size_is_not_announced(api, make_trace, settings, work):
    trace = make_trace()
    answer = api.client.put("/api/v1/traces/t.json", content=iter([trace[:10], trace[10:]]))
    assert (answer.status_code, answer.json()["length"]) == (201, len(trace))
    assert stored(settings) == [trace]
    assert os.listdir(settings.data / "arriving") == []
    assert api.client.head(f"{ADDRESS}/{answer.json()['id']}", headers=TUS).headers["upload-length"] == str(len(trace))
    job = api.begin(answer.json()["id"])
    work()
    assert api.job(job)["state"] == "found"


@pytest.mark.parametrize("announced", [b"Content-Length: 5000000", b"Transfer-Encoding: chunked"])
def test_a_plain_upload_that_breaks_off_leaves_nothing(api, settings, announced):
    url, arriving = api.client.base_url, settings.data / "arriving"
    with socket.create_connection((url.host, url.port)) as connection:
        begin = b"PUT /api/v1/traces/t HTTP/1.1\r\nHost: localhost\r\n" + announced + b"\r\n\r\n"
        connection.sendall(begin + b"200000\r\n" * (b"chunked" in announced) + b"x" * 2_000_000)
        until(lambda: any(path.stat().st_size for path in arriving.iterdir()))
    until(lambda: not os.listdir(arriving))
    assert stored(settings) == []
    assert api.client.put("/api/v1/traces/t", content=b"data").status_code == 201


def test_a_plain_upload_that_is_cancelled_leaves_nothing(store, settings):
    async def hang():
        yield b"data"
        await anyio.sleep_forever()

    request = SimpleNamespace(headers={}, stream=hang)

    async def cancel():
        with anyio.move_on_after(0.2):
            await put(request, store, Requester(), "t")

    anyio.run(cancel)
    assert os.listdir(settings.data / "arriving") == []
    assert store.database.read(select(UPLOADS)) == []


def test_an_upload_without_room_reserves_nothing(api, store, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tracekit.web.uploads.Path.touch", full)
    assert api.client.post(ADDRESS, headers={**TUS, "Upload-Length": "4"}).status_code == 507
    assert store.database.read(select(UPLOADS)) == []


def test_two_at_once_on_one_upload(api, settings):
    place = create(api.client, 4)
    with (settings.data / "arriving" / place.rsplit("/", 1)[-1]).open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert send(api.client, place, 0, b"data").status_code == 423
    assert send(api.client, place, 0, b"data").status_code == 204


def test_the_data_base_never_holds_up_other_requests(api, monkeypatch):
    """Statements wait for others' locks: they run beside the loop that serves all requests."""
    held_up = []

    def note(method):
        def noting(self, *values):
            if asyncio._get_running_loop():
                held_up.append(values)
            return method(self, *values)

        return noting

    for name in ("read", "transaction"):
        monkeypatch.setattr(Database, name, note(getattr(Database, name)))
    api.put(b"data")
    api.put(iter([b"da", b"ta"]))
    assert send(api.client, create(api.client, 4), 0, b"data").status_code == 204
    assert held_up == []


def test_a_full_disk_is_said_and_cleaned_up(api, monkeypatch, settings):
    def full(file, block):
        raise OSError(errno.ENOSPC, "No space left on device")

    place = create(api.client, 4)
    monkeypatch.setattr("tracekit.web.uploads._pour", full)
    for answer in (api.client.put("/api/v1/traces/t", content=b"data"), send(api.client, place, 0, b"data")):
        assert answer.status_code == 507
        assert "disk is full" in answer.json()["error"]["message"]
    assert len(os.listdir(settings.data / "arriving")) == 1
    monkeypatch.undo()
    assert send(api.client, place, 0, b"data").status_code == 204


def test_room_that_others_took_meanwhile_is_left_free(api, settings, monkeypatch):
    """Also of a file whose size its client doesn't tell."""
    place = create(api.client, 4)
    left = SimpleNamespace(free=settings.min_free_bytes + 3)
    monkeypatch.setattr("tracekit.web.uploads.shutil.disk_usage", lambda path: left)
    assert send(api.client, place, 0, b"data").status_code == 507
    assert api.client.put("/api/v1/traces/t", content=iter([b"da", b"ta"])).status_code == 507
    left.free += 1
    assert send(api.client, place, 0, b"data").status_code == 204


def test_room_on_the_disk_is_looked_at_first(start):
    client = start(min_free_bytes=1 << 60)
    answer = client.post(ADDRESS, headers={**TUS, "Upload-Length": "1"})
    assert answer.status_code == 507
    assert "no room" in answer.json()["error"]["message"]


def test_a_name_may_have_line_breaks(api):
    for name in ("a%0Ab.json", "a.json%0A", "%0A"):
        answer = api.client.put(f"/api/v1/traces/{name}", content=b"data")
        assert answer.status_code == 201
        assert "\n" not in answer.json()["name"]
