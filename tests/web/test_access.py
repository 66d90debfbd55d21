"""Who may see and do what."""

import itertools
import logging
import re
import socket
import time
from types import SimpleNamespace

import pytest

from tracekit.errors import OutputError, TracekitError
from tracekit.web import access, api, api_docs, compare, job_pages, pages, serving, shard, tus
from tracekit.web.quotas import hash_network
from tracekit.web.server import run_server
from tracekit.web.settings import Settings, check_settings
from tracekit.web.store import Store

TOKEN = "a-token-of-enough-characters"


@pytest.fixture
def guarded(start):
    return start(token=TOKEN)


def owner_of(client):
    """A browser's cookies."""
    client.cookies.clear()
    client.get("/")
    return dict(client.cookies)


def test_one_user_sees_nothing_of_anothers(start, as_api, make_trace, work):
    mine, other = as_api(start()), as_api(start())
    owner_of(mine.client), owner_of(other.client)
    job = mine.begin(mine.put(make_trace()), ask={"gpu": ["t4"]})
    upload = mine.put(make_trace())
    work()
    done = mine.job(job)
    for address in (f"/api/v1/jobs/{job}", done["reports"]["json"], f"/jobs/{job}", f"/jobs/{job}/panel"):
        assert mine.client.get(address).status_code == 200
        assert other.client.get(address).status_code == 404
    assert other.client.get("/api/v1/jobs").json() == []
    assert job not in other.client.get("/").text
    assert job in mine.client.get("/").text
    assert other.client.delete(f"/api/v1/jobs/{job}").status_code == 404
    assert other.client.post(f"/jobs/{job}/delete").status_code == 404
    assert other.client.post("/api/v1/jobs", json={"uploads": [upload]}).status_code == 404
    assert other.client.get(f"/compare?job={job}&job={job}").status_code == 404
    shared = other.client.get(done["link"])
    assert shared.status_code == 200
    assert job not in shared.text
    assert other.client.get(f"{done['link']}/report.json").status_code == 200


def test_what_is_shared_has_no_prices_nor_paths_unless_its_owner_wants_them(start, as_api, make_trace, work):
    mine, other = as_api(start()), as_api(start())
    owner_of(mine.client), owner_of(other.client)
    ask = {"gpu": ["h100-sxm"], "price": ["h100-sxm=2.4937", "a100-sxm-80gb=1.2913"]}
    priced = mine.begin(mine.put(make_trace(), "acme/job/trace.json"), ask=ask)
    plain = mine.begin(mine.put(make_trace()), ask={"gpu": ["h100-sxm"]})
    work(), work()
    link = mine.job(priced)["link"]
    for form in ("html", "json", "md"):
        file = f"/api/v1/jobs/{priced}/report.{form}"
        for hidden in (mine.client.get(file), other.client.get(f"{link}/report.{form}?details=1")):
            assert hidden.status_code == 200
            assert not any(text in hidden.text for text in ("2.49", "1.29", "acme"))
        assert "2.49" in mine.client.get(f"{file}?details=1").text
    assert not any(text in other.client.get(link).text for text in ("2.49", "1.29", "acme"))
    page = mine.client.get(f"/jobs/{priced}").text
    assert "2.49" in page
    assert "?details=1" in page
    assert "?details=1" not in other.client.get(link).text + mine.client.get(f"/jobs/{plain}").text


def test_ids_are_long_and_never_alike(api, make_trace):
    jobs = [api.job(api.begin(api.put(make_trace()))) for _ in range(5)]
    secrets = [text for job in jobs for text in (job["id"], job["link"].removeprefix("/r/"))]
    assert len(set(secrets)) == 10
    assert all(re.fullmatch("[0-9a-f]{32}", secret) for secret in secrets)


def test_a_place_for_jobs_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="--data"):
        Store.open(Settings(data=tmp_path / "file"))


def test_a_port_that_is_taken_is_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listening = []
        with pytest.raises(OutputError, match=f"127.0.0.1:{port} can't be listened on: Address already in use. Choose"):
            run_server(Settings(data=tmp_path, port=port), lambda: listening.append(port))
    assert not listening


def test_without_the_token_nothing_is_shown(guarded):
    for method, address in (("GET", "/api/v1/jobs"), ("PUT", "/api/v1/traces/t"), ("GET", "/api/v1/gpus")):
        assert guarded.request(method, address).status_code == 401
        wrong = guarded.request(method, address, headers={"Authorization": "Bearer wrong"})
        assert wrong.status_code == 401
        assert TOKEN not in wrong.text
    assert guarded.get("/").headers["location"] == "/login"
    assert guarded.get("/api/v1/gpus", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def list_routes():
    """Every path and method, with ids that fit."""
    values = {"job_id": "0" * 32, "upload_id": "0" * 32, "link": "0" * 32, "form": "json", "name": "t", "path": "x"}
    areas = (api, api_docs, compare, job_pages, pages, serving, shard, tus)
    for route in itertools.chain(*(each.router.routes for each in areas)):
        path = re.sub(r"{(\w+)(:\w+)?}", lambda name: values[name[1]], route.path)
        yield from ((path, method) for method in route.methods)


def test_no_route_shows_anything_without_the_token(guarded):
    shown = set()
    for path, method in list_routes():
        answer = guarded.request(method, path)
        if answer.status_code != 401 and answer.headers.get("location") != "/login":
            shown.add(path)
    assert {path for path in shown if not path.startswith("/r/")} == {"/login", "/api/docs"}


@pytest.mark.parametrize(
    ("method", "address"),
    [("GET", "/api/v1/jobs"), ("GET", "/"), ("PATCH", f"/api/v1/uploads/{'0' * 32}"), ("POST", "/login")],
)
def test_wrong_tokens_are_slowed_on_every_route(guarded, method, address, monkeypatch):
    now = SimpleNamespace(time=lambda: 0.0, perf_counter=time.perf_counter)
    monkeypatch.setattr(access, "time", now)

    def guess(token):
        sent = {"data": {"token": token}} if address == "/login" else {"headers": {"Authorization": f"Bearer {token}"}}
        return guarded.request(method, address, **sent).status_code

    statuses = [guess(f"guess {number}") for number in range(access.MAX_WRONG_TOKENS_PER_MINUTE + 5)]
    assert statuses[-6:] == [303 if (method, address) == ("GET", "/") else 401] + [429] * 5
    assert guess(TOKEN) == 429
    other = guarded.get("/api/v1/jobs", headers={"Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "203.0.113.9"})
    assert other.status_code == 200
    now.time = lambda: 60.0
    assert guess(TOKEN) != 429


def test_a_missing_token_is_no_guess(guarded):
    assert {guarded.get("/api/v1/jobs").status_code for _ in range(30)} == {401}


def test_who_logs_out_needs_the_token_again(guarded):
    guarded.post("/login", data={"token": TOKEN})
    assert "/logout" in guarded.get("/").text
    assert guarded.post("/logout").headers["location"] == "/login"
    assert guarded.get("/").headers["location"] == "/login"
    assert guarded.cookies.get("tracekit_owner")
    assert guarded.post("/logout", headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_server_without_a_token_has_no_log_out(api):
    assert "/logout" not in api.client.get("/").text
    answer = api.client.post("/login", data={"token": "\u2028 whatever"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("203.0.113.1", "203.0.113.2", False),
        ("203.0.113.1", "::ffff:203.0.113.1", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::1%eth1", True),
        ("", "a socket", False),
    ],
)
def test_a_network_is_what_a_client_cannot_choose(one, other, same):
    assert (hash_network(one) == hash_network(other)) is same


def test_the_token_is_kept_by_the_browser(guarded):
    assert guarded.post("/login", data={"token": "wrong"}).status_code == 401
    answer = guarded.post("/login", data={"token": TOKEN})
    assert answer.status_code == 303
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert guarded.get("/").status_code == 200


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"host": "0.0.0.0"}, "must know a token"),
        ({"token": "short"}, "shorter"),
        ({"token": "ä" * 20}, "characters"),
        ({"memory_bytes": 1 << 20}, "2G"),
    ],
)
def test_unsafe_settings_are_refused(settings, says, tmp_path):
    with pytest.raises(TracekitError, match=says):
        check_settings(Settings(data=tmp_path, **settings))


def test_other_sites_can_do_nothing(api):
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        answer = api.client.put("/api/v1/traces/t", content=b"data", headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost:8321", 200), ("localhost", 200), ("127.0.0.1:80", 200), ("[::1]", 200), ("[::1]:8321", 200)),
        *(("evil.example", 403), ("evil.example:8321", 403), ("[::2]", 403), ("[::2]:8321", 403), ("::1.evil", 403)),
    ],
)
def test_only_this_machines_own_names_are_answered(api, host, status):
    """A page of another site may have its name resolve to this machine."""
    assert api.client.get("/", headers={"Host": host}).status_code == status


def test_pages_allow_only_their_own_scripts(api):
    for address in ("/", "/login", "/nothing", "/api/v1/gpus"):
        policy = api.client.get(address).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    assert re.search(r"<script(?!( defer)? src=)", api.client.get("/").text) is None


def test_reports_run_in_a_box(api, make_trace, work):
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    work()
    for form in api.job(job)["reports"].values():
        headers = api.client.get(form).headers
        assert headers["content-security-policy"].startswith("sandbox allow-scripts allow-downloads;")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_names_are_escaped(api, make_trace, work):
    api.client.get("/")
    name = "<img src=x onerror=alert(1)>.json"
    job = api.begin(api.put(make_trace(kernel="<script>alert(2)</script>"), name), ask={"gpu": ["t4"]})
    work()
    link = api.job(job)["link"]
    for address in ("/", f"/jobs/{job}", link, f"/compare?job={job}&job={job}"):
        text = api.client.get(address).text
        assert "<img src=x" not in text
        assert "<script>alert" not in text
        assert "&lt;img src=x" in text, address


def test_rates_are_limited(start):
    client = start(max_per_minute=3)
    statuses = [client.put("/api/v1/traces/t", content=b"data").status_code for _ in range(8)]
    assert statuses.count(429) >= 2
    assert client.get("/").status_code == 200


def test_bodies_are_limited(api):
    for content in (b"{" + b" " * (2 << 20), iter([b"{", b"}"])):
        answer = api.client.post("/api/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413


def test_the_log_holds_no_secrets(start, as_api, make_trace, caplog):
    caplog.set_level(logging.DEBUG)
    api = as_api(start(token=TOKEN, headers={"Authorization": f"Bearer {TOKEN}"}))
    job = api.begin(api.put(make_trace(), "secret-model.json"))
    link = api.job(job)["link"].removeprefix("/r/")
    api.client.get(f"/r/{link}?token={TOKEN}")
    lines = [record.getMessage() for record in caplog.records if record.name.startswith(("tracekit", "uvicorn"))]
    assert any("/api/v1/jobs/{job_id}" in line for line in lines)
    for secret in (TOKEN, job, link, "secret-model"):
        assert not any(secret in line for line in lines)


@pytest.mark.parametrize("address", ["/api/v1/gpus/", "/login/", "/api/v1/jobs/"])
def test_an_address_with_a_slash_too_many_is_unknown_and_leads_nowhere(api, address):
    answer = api.client.get(address, follow_redirects=False)
    assert answer.status_code == 404
    assert "location" not in answer.headers
