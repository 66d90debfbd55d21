"""What an owner may keep, and a network, whose owners can be made up."""

import itertools

import pytest

from tracekit.web.quotas import NETWORK_FACTOR

NAMES = itertools.count()


@pytest.fixture
def visit(start):
    """Gives clients of one server, each with cookies of its own."""

    def open_server(**changed):
        client = start(**changed)

        def make_up():
            client.headers["Cookie"] = f"tracekit_owner={next(NAMES)}"
            return client

        return make_up

    return open_server


def put(client, size, *, announced=True):
    content = b"x" * size
    return client.put("/api/v1/traces/t", content=content if announced else iter([content]))


@pytest.mark.parametrize("announced", [True, False])
def test_bytes_of_an_owner(visit, announced):
    client = visit(max_stored_bytes=1000)()
    assert put(client, 600).status_code == 201
    refused = put(client, 401, announced=announced)
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "quota-used-up")
    kept = put(client, 400, announced=announced)
    assert kept.status_code == 201
    assert put(client, 1, announced=announced).status_code == 413
    tus = {"Tus-Resumable": "1.0.0"}
    assert client.post("/api/v1/uploads", headers={**tus, "Upload-Length": "1"}).status_code == 413
    assert client.delete(f"/api/v1/uploads/{kept.json()['id']}", headers=tus).status_code == 204
    assert put(client, 400, announced=announced).status_code == 201


def test_bytes_of_made_up_owners(visit):
    make_up = visit(max_stored_bytes=1000)
    assert [put(make_up(), 1000).status_code for _ in range(NETWORK_FACTOR + 1)] == [201] * NETWORK_FACTOR + [413]


def test_a_stream_reserves_what_it_takes(visit, monkeypatch):
    monkeypatch.setattr("tracekit.web.uploads.BLOCK_BYTES", 100)
    monkeypatch.setattr("tracekit.web.uploads.RESERVED_BLOCK_BYTES", 300)
    client = visit(max_stored_bytes=1000)()
    assert client.put("/api/v1/traces/t", content=iter([b"x" * 100] * 11)).status_code == 413
    assert client.put("/api/v1/traces/t", content=iter([b"x" * 100] * 9)).status_code == 201
    assert put(client, 100).status_code == 201


def test_reports_count(visit, as_api, make_trace, work):
    client = visit(max_stored_bytes=200_000)()
    api = as_api(client)
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    work()
    assert put(client, 1).status_code == 413
    assert client.delete(f"/api/v1/jobs/{job}").status_code == 204
    assert put(client, 1).status_code == 201


def begin(client, trace):
    upload = client.put("/api/v1/traces/t", content=trace).json()["id"]
    return client.post("/api/v1/jobs", json={"uploads": [upload]})


def test_made_up_owners_leave_places_for_others(visit, make_trace):
    make_up = visit(max_queued=8, max_queued_per_owner=2)
    statuses = [begin(make_up(), make_trace()).status_code for _ in range(6)]
    assert statuses == [201] * 4 + [429] * 2


def test_the_word_of_a_client_about_its_address(visit, make_trace):
    """Without a token there is no proxy, so that nobody's is taken."""
    make_up = visit(max_queued=4)
    for number in range(3):
        client = make_up()
        client.headers["X-Forwarded-For"] = f"203.0.113.{number}"
        status = begin(client, make_trace()).status_code
    assert status == 429


def test_networks_behind_a_proxy_have_their_own(start, make_trace):
    token = "a-token-of-enough-characters"
    client = start(max_queued=6, max_queued_per_owner=3, token=token, headers={"Authorization": f"Bearer {token}"})
    client.headers["X-Forwarded-For"] = "203.0.113.1"
    assert [begin(client, make_trace()).status_code for _ in range(4)] == [201] * 3 + [429]
    client.headers["X-Forwarded-For"] = "203.0.113.2"
    assert begin(client, make_trace()).status_code == 429  # the token is the owner
    del client.headers["Authorization"]
    client.headers["Cookie"] = f"tracekit_token={token}; tracekit_owner=me"
    assert begin(client, make_trace()).status_code == 201


def test_kept_jobs_are_limited(visit, as_api, make_trace, work):
    make_up = visit(max_jobs_per_owner=2)
    client = make_up()
    jobs = []
    for _ in range(2):
        jobs.append(begin(client, make_trace()).json()["id"])
        work()
    refused = begin(client, make_trace())
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "jobs-too-many")
    asked = client.post(f"/api/v1/jobs/{jobs[0]}/ask", json={"gpu": ["t4"]})
    assert asked.status_code == 200
    assert client.delete(f"/api/v1/jobs/{jobs[1]}").status_code == 204
    assert begin(client, make_trace()).status_code == 201


def test_uploads_without_a_job_are_limited(visit):
    client = visit(max_files=1)()
    statuses = [put(client, 1).status_code for _ in range(5)]
    assert statuses == [201] * 4 + [429]
