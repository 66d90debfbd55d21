"""What the server takes at each limit, and refuses just beyond it; what browsers and programs are told."""

import base64
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.web.conftest import listening
from tracekit.bounds import MAX_BODY_BYTES, MAX_UPLOAD_METADATA_CHARS
from tracekit.web import access
from tracekit.web.quotas import LOCAL_OWNER, hash_secret
from tracekit.web.settings import Settings
from tracekit.web.tus import _parse_name
from tracekit.web.uploads import clean_name

TOKEN = "a-token-of-enough-characters"
UPLOADS = "/api/v1/uploads"
TUS = {"Tus-Resumable": "1.0.0"}
Start = Callable[..., httpx.Client]


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def begin(client: httpx.Client, length: int, **headers: str) -> httpx.Response:
    return client.post(UPLOADS, headers={**TUS, "Upload-Length": str(length), **headers})


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, ending: list[Any]) -> Iterator[Start]:
    """Starts servers that all tests of this file share."""
    with ExitStack() as stack:

        def make(**changed: Any) -> httpx.Client:
            settings = Settings(data=tmp_path_factory.mktemp("lasting"), workers=0, min_free_bytes=0, **changed)
            url = stack.enter_context(listening(settings, ending))
            return stack.enter_context(httpx.Client(base_url=url, timeout=60, trust_env=False))

        yield make


@pytest.fixture(scope="module")
def both(lasting: Start) -> tuple[httpx.Client, httpx.Client]:
    return lasting(), lasting(token=TOKEN)


@pytest.fixture
def client(both: tuple[httpx.Client, httpx.Client]) -> httpx.Client:
    """A client without cookies of a server without a token."""
    both[0].cookies.clear()
    return both[0]


@pytest.fixture
def guarded(both: tuple[httpx.Client, httpx.Client]) -> httpx.Client:
    """A client without cookies of a server with a token."""
    both[1].cookies.clear()
    return both[1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the rules of access: seconds, and those that requests take."""
    now = SimpleNamespace(now=0.0, counts=itertools.count(0, 0.25))
    stopped = SimpleNamespace(time=lambda: now.now, perf_counter=lambda: next(now.counts))
    monkeypatch.setattr(access, "time", stopped)
    return now


def test_a_file_may_be_as_large_as_the_limit(start: Start) -> None:
    client = start(max_upload_bytes=10)
    assert client.put("/api/v1/traces/t", content=b"x" * 10).status_code == 201
    assert client.put("/api/v1/traces/t", content=iter([b"x" * 10])).status_code == 201
    assert begin(client, 10).status_code == 201
    for refused in (begin(client, 11), client.put("/api/v1/traces/t", content=iter([b"x" * 11]))):
        assert (refused.status_code, code(refused)) == (413, "upload-too-large")


def test_lengths_end_where_programs_stop_counting(client: httpx.Client) -> None:
    """At 2**53, of which doubles still hold every whole number: beyond, it isn't a size but a mistake."""
    assert begin(client, 9_007_199_254_740_992).status_code == 413
    assert begin(client, 9_007_199_254_740_993).status_code == 422
    place = begin(client, 4).headers["location"]
    headers = {**TUS, "Content-Type": "application/offset+octet-stream"}
    for offset, status in ((9_007_199_254_740_992, 409), (9_007_199_254_740_993, 422)):
        assert client.patch(place, headers={**headers, "Upload-Offset": str(offset)}).status_code == status


def test_names_may_have_so_many_characters(client: httpx.Client) -> None:
    assert client.put(f"/api/v1/traces/{'n' * 400}", content=b"").status_code == 201
    assert client.put(f"/api/v1/traces/{'n' * 401}", content=b"").status_code == 422


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("t.json", "t.json"),
        ("/run/t.json/ ", "run/t.json"),
        ("run\\t.json", "run/t.json"),
        (" / ", "unnamed"),
        ("a\tb\x7fc", "abc"),
        ("0" + "n" * 199, "0" + "n" * 199),
        ("01" + "n" * 199, "1" + "n" * 199),  # the end of a name tells more than its begin
    ],
)
def test_what_is_kept_of_a_name(given: str, kept: str) -> None:
    assert clean_name(given) == kept


def test_what_a_client_may_say_of_an_upload(client: httpx.Client) -> None:
    fitting = "a " + base64.b64encode(b"x" * 3069).decode()
    assert len(fitting) + 2 == MAX_UPLOAD_METADATA_CHARS
    assert begin(client, 4, **{"Upload-Metadata": f"bc{fitting}"}).status_code == 201
    refused = begin(client, 4, **{"Upload-Metadata": f"bcd{fitting}"})
    assert (refused.status_code, code(refused)) == (400, "upload-metadata-wrong")
    unreadable = begin(client, 4, **{"Upload-Metadata": "filename /w=="})
    assert (unreadable.status_code, code(unreadable)) == (400, "upload-name-unreadable")
    assert _parse_name("filename dC5qc29u , a YQ==") == "t.json"


def test_an_upload_says_when_it_ends(start: Start) -> None:
    ends = begin(start(keep_upload_s=5000), 4).headers["upload-expires"]
    assert ends.endswith(" GMT")
    assert parsedate_to_datetime(ends).timestamp() == pytest.approx(time.time() + 5000, abs=30)


@pytest.mark.parametrize("value", ["md5 AAAA", "sha1 ***", "SHA1 AAAA", "sha1 AAA", ""])
def test_a_checksum_that_can_not_be_read_is_no_wrong_one(client: httpx.Client, value: str) -> None:
    place = begin(client, 4).headers["location"]
    headers = {**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
    answer = client.patch(place, headers={**headers, "Upload-Checksum": value}, content=b"data")
    assert (answer.status_code, code(answer)) == (400, "upload-checksum-unknown")


@pytest.mark.parametrize(("more", "status"), [(0, 404), (1, 413)])
def test_a_body_may_have_so_many_bytes(client: httpx.Client, more: int, status: int) -> None:
    body = b'{"uploads": ["' + b"0" * 32 + b'"]}'
    content = body + b" " * (MAX_BODY_BYTES - len(body) + more)
    answer = client.post("/api/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status


@pytest.mark.parametrize(("uploads", "status"), [(0, 422), (1, 404), (4096, 404), (4097, 422)])
def test_a_job_may_have_so_many_uploads(client: httpx.Client, uploads: int, status: int) -> None:
    assert client.post("/api/v1/jobs", json={"uploads": ["0" * 32] * uploads}).status_code == status


def test_so_many_values_and_characters_may_be_asked(api: Any, make_trace: Callable[..., bytes]) -> None:
    job = api.begin(api.put(make_trace()))
    address = f"/api/v1/jobs/{job}/ask"
    for ask, refused in (
        ({"gpu": ["t4"] * 32}, "job-in-work"),
        ({"gpu": ["t4"] * 33}, "values-too-many"),
        ({"source_gpu": "t" * 300}, "gpu-unknown"),
        ({"source_gpu": "t" * 301}, "values-too-many"),
        ({"gpu": ["t4", "t" * 301]}, "values-too-many"),
    ):
        assert code(api.client.post(address, json=ask)) == refused, ask


def test_so_much_is_begun_in_a_minute(start: Start, clock: SimpleNamespace) -> None:
    """Uploads in whatever way, and jobs; what goes on with them isn't counted."""
    client = start(max_per_minute=3)
    place = begin(client, 4).headers["location"]
    clock.now = 59.0
    assert client.put("/api/v1/traces/t", content=b"data").status_code == 201
    assert client.post("/api/v1/jobs", json={"uploads": ["0" * 32]}).status_code == 404
    for _ in range(2):
        refused = client.put("/api/v1/traces/t", content=b"data")
        assert (refused.status_code, code(refused), refused.headers["retry-after"]) == (429, "rate-exceeded", "60")
    assert client.get("/api/v1/jobs").status_code == 200
    assert client.delete(place, headers=TUS).status_code == 204
    clock.now = 60.0
    assert begin(client, 4).status_code == 201


def test_a_request_is_a_line_of_the_log(
    client: httpx.Client, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.get(f"/api/v1/jobs/{'0' * 32}")
    assert [record.getMessage() for record in caplog.records if record.name == "tracekit.web"] == [
        "GET /api/v1/jobs/{job_id} 404 250 ms"
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9", "localhost:9", "localhost", "[::1]", "[::1]:9"])
def test_names_of_this_machine_are_taken(client: httpx.Client, host: str) -> None:
    assert client.get("/login", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:9", "127.0.0.1.evil.example", "[::2]", "::1"])
def test_other_names_are_refused_without_a_token(client: httpx.Client, guarded: httpx.Client, host: str) -> None:
    refused = client.get("/api/v1/gpus", headers={"Host": host})
    assert (refused.status_code, code(refused)) == (403, "host-name-foreign")
    assert guarded.get("/login", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://127.0.0.1:9", "Host": "127.0.0.1:9"}, 201),
        ({"Origin": "https://127.0.0.1:9", "Host": "127.0.0.1:9"}, 201),  # a proxy's TLS
        ({"Origin": "http://127.0.0.1:8", "Host": "127.0.0.1:9"}, 403),
        ({"Origin": "http://127.0.0.1", "Host": "127.0.0.1:9"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"}, 403),
    ],
)
def test_changes_come_from_pages_of_this_server(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    assert client.put("/api/v1/traces/t", content=b"data", headers=headers).status_code == status
    assert client.get("/api/v1/jobs", headers=headers).status_code == 200  # what changes nothing is let through


def test_cookies_are_kept_for_a_year_from_scripts_and_other_sites(guarded: httpx.Client) -> None:
    client = guarded
    told = client.get("/login").headers["set-cookie"]
    name, owner = told.partition(";")[0].split("=")
    assert (name, len(bytes.fromhex(owner))) == ("tracekit_owner", 16)
    assert told.removeprefix(f"{name}={owner}; ") == "Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000"
    again = client.get("/login", headers={"Cookie": f"tracekit_owner={owner}"})
    assert "set-cookie" not in again.headers
    client.cookies.clear()
    assert "set-cookie" not in client.get("/static/nothing.css").headers
    tls = {"X-Forwarded-Proto": "https"}
    assert client.get("/login", headers=tls).headers["set-cookie"].endswith("; Max-Age=31536000; Secure")
    login = {"data": {"token": TOKEN}, "headers": {"Cookie": f"tracekit_owner={owner}"}}
    kept = f"tracekit_token={TOKEN}; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000"
    assert client.post("/login", **login).headers["set-cookie"] == kept
    login["headers"] |= tls
    assert client.post("/login", **login).headers["set-cookie"] == f"{kept}; Secure"
    out = client.post("/logout", headers={"Cookie": f"tracekit_owner={owner}; tracekit_token={TOKEN}"})
    assert out.headers["set-cookie"] == 'tracekit_token=""; Path=/; HttpOnly; SameSite=Lax; Max-Age=0'


def test_programs_of_one_token_are_one_owner(guarded: httpx.Client, make_trace: Callable[..., bytes]) -> None:
    program = {"Authorization": f"Bearer  {TOKEN}"}
    upload = guarded.put("/api/v1/traces/t", content=make_trace(), headers=program).json()["id"]
    job = guarded.post("/api/v1/jobs", json={"uploads": [upload]}, headers=program).json()["id"]
    other = {"Authorization": f"Bearer {TOKEN}", "Cookie": "tracekit_owner=somebody"}
    assert [each["id"] for each in guarded.get("/api/v1/jobs", headers=other).json()] == [job]
    browser = {"Cookie": f"tracekit_token={TOKEN}; tracekit_owner=somebody"}
    assert guarded.get("/api/v1/jobs", headers=browser).json() == []


def test_owners_stay_who_they_were() -> None:
    """Their jobs are stored under this hash, BLAKE2b of 128 bits, by older versions too."""
    assert hash_secret("alice") == "69b5957599f918e276a3d2428acdc997"
    assert LOCAL_OWNER == "local"


def test_other_methods_than_the_one_sent_are_for_uploads_alone(api: Any, make_trace: Callable[..., bytes]) -> None:
    job = api.begin(api.put(make_trace()))
    over = {"X-HTTP-Method-Override": "DELETE"}
    assert api.client.post(f"/api/v1/jobs/{job}", headers=over).status_code == 405
    assert api.job(job)["state"] == "queued"


def test_a_job_says_when_it_was_made_and_ends(start: Start, as_api: Any, make_trace: Callable[..., bytes]) -> None:
    api = as_api(start(keep_s=3600))
    shown = api.job(api.begin(api.put(make_trace())))
    created, ends = (datetime.fromisoformat(shown[name]) for name in ("created", "expires"))
    assert (ends - created).total_seconds() == pytest.approx(3600)
    assert created.timestamp() == pytest.approx(time.time(), abs=30)
    assert api.job(api.begin(api.put(make_trace())))["ahead"] == 1
