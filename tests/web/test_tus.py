"""What tus 1.0 demands of a server, and its extensions creation, termination, expiration and checksum."""

import base64
import hashlib
import os
import socket
from email.utils import parsedate_to_datetime

import pytest

from tests.web.conftest import until
from tests.web.test_uploads import ADDRESS, DATA, TUS, create, send, stored
from tracekit.web.tus import _parse_name

NOWHERE = f"{ADDRESS}/{'0' * 32}"


def checksum(data, algorithm="sha1"):
    return {"Upload-Checksum": f"{algorithm} {base64.b64encode(hashlib.new(algorithm, data).digest()).decode()}"}


def offset_of(client, place):
    return int(client.head(place, headers=TUS).headers["upload-offset"])


def test_each_answer_has_its_status(api):
    client = api.client
    assert client.options(ADDRESS).status_code == 204
    begun = client.post(ADDRESS, headers={**TUS, "Upload-Length": "4"})
    place = begun.headers["location"]
    assert begun.status_code == 201
    assert client.head(place, headers=TUS).status_code == 200
    assert send(client, place, 0, b"da").status_code == 204
    assert send(client, place, 2, b"ta").status_code == 204
    assert client.head(place, headers=TUS).status_code == 200
    assert client.delete(place, headers=TUS).status_code == 204


def test_refusals_say_the_version(start):
    client = start(max_upload_bytes=10)
    place = create(client, 4)
    refused = {
        412: [client.head(place), client.post(ADDRESS), client.patch(place, content=b"d"), client.delete(place)],
        404: [client.head(NOWHERE, headers=TUS), send(client, NOWHERE, 0, b"d"), client.delete(NOWHERE, headers=TUS)],
        405: [client.get(place, headers=TUS), client.put(place, headers=TUS)],
        409: [send(client, place, 1, b"d")],
        413: [client.post(ADDRESS, headers={**TUS, "Upload-Length": "11"})],
        415: [client.patch(place, headers={**TUS, "Upload-Offset": "0"}, content=b"d")],
        422: [client.post(ADDRESS, headers=TUS), client.patch(place, headers=DATA, content=b"d")],
        403: [client.post(ADDRESS, headers={**TUS, "Origin": "http://evil.example"})],
    }
    for status, answers in refused.items():
        for answer in answers:
            assert answer.status_code == status
            assert answer.headers["tus-resumable"] == "1.0.0"
            assert answer.headers["cache-control"] == "no-store"
            assert (answer.headers.get("tus-version") == "1.0.0") is (status == 412)
    assert client.options(ADDRESS).headers["tus-version"] == "1.0.0"
    assert start(token="a-token-of-enough-characters").head(NOWHERE).headers["tus-resumable"] == "1.0.0"


def test_another_version_is_refused_before_anything_else(api):
    place = create(api.client, 4)
    other = {**DATA, "Tus-Resumable": "0.2.2", "Upload-Offset": "0"}
    assert api.client.patch(place, headers=other, content=b"data").status_code == 412
    assert offset_of(api.client, place) == 0


@pytest.mark.parametrize("length", ["+5", "5.0", "-1", "", "5e0", "0x5", "5_0", "٥", "9" * 30, "five", "5,5"])
def test_lengths_and_offsets_are_whole_numbers(api, length):
    headers = {**TUS, "Upload-Length": length.encode()}
    assert api.client.post(ADDRESS, headers=headers).status_code == 422
    place = create(api.client, 5)
    answer = api.client.patch(place, headers={**DATA, "Upload-Offset": length.encode()}, content=b"x")
    assert answer.status_code == 422
    assert offset_of(api.client, place) == 0


@pytest.mark.parametrize("arrived", [0, 4, 10])
@pytest.mark.parametrize("announced", [True, False])
def test_more_than_was_announced_is_refused_and_not_dropped(api, settings, arrived, announced):
    place = create(api.client, 10)
    send(api.client, place, 0, b"0123456789"[:arrived])
    more = b"0123456789!"[arrived:]
    assert send(api.client, place, arrived, more if announced else iter([more])).status_code == 413
    assert offset_of(api.client, place) == arrived
    assert send(api.client, place, arrived, b"0123456789"[arrived:]).status_code == 204
    assert stored(settings) == [b"0123456789"]


def test_the_checksum_extension_is_announced(api):
    headers = api.client.options(ADDRESS).headers
    assert "checksum" in headers["tus-extension"].split(",")
    assert headers["tus-checksum-algorithm"] == "sha1,sha256"


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_data_with_a_checksum(api, settings, algorithm):
    data = os.urandom(2_500_000)
    place = create(api.client, len(data))
    for begin, end in ((0, 1_500_000), (1_500_000, len(data))):
        headers = {**DATA, "Upload-Offset": str(begin), **checksum(data[begin:end], algorithm)}
        answer = api.client.patch(place, headers=headers, content=data[begin:end])
        assert (answer.status_code, answer.headers["upload-offset"]) == (204, str(end))
    assert stored(settings) == [data]


def test_damaged_data_is_not_kept(api, settings):
    place = create(api.client, 2_000_000)
    assert send(api.client, place, 0, b"begin").status_code == 204
    headers = {**DATA, "Upload-Offset": "5", **checksum(b"x" * 1_999_995)}
    answer = api.client.patch(place, headers=headers, content=b"x" * 1_999_994 + b"y")
    assert (answer.status_code, answer.json()["error"]["code"]) == (460, "upload-checksum-wrong")
    assert offset_of(api.client, place) == 5
    assert api.client.patch(place, headers=headers, content=b"x" * 1_999_995).status_code == 204
    assert os.listdir(settings.data / "arriving") == []


def test_data_with_a_checksum_ends_within_the_upload(api, settings):
    """Also where its size isn't announced: nothing beyond it is kept, not even until it is verified."""
    place, room = create(api.client, 2_000_000), settings.data / "arriving"
    headers = {**DATA, "Upload-Offset": "0", **checksum(b"x" * 2_000_001)}
    assert api.client.patch(place, headers=headers, content=iter([b"x" * 2_000_001])).status_code == 413
    assert [path.stat().st_size for path in room.iterdir()] == [0]


def test_a_piece_that_breaks_off_before_its_checksum_is_not_kept(api):
    place = create(api.client, 3_000_000)
    url = api.client.base_url
    headers = {"Host": url.host, "Content-Length": 3_000_000, **DATA, "Upload-Offset": 0, **checksum(b"x")}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(f"PATCH {place} HTTP/1.1\r\n{head}\r\n".encode() + b"x" * 2_000_000)
    until(lambda: send(api.client, place, 0, b"").status_code == 204)
    assert offset_of(api.client, place) == 0


@pytest.mark.parametrize("value", ["md4 AAAA", "sha1", "sha1 ***", "", "SHA1 AAAA", "sha1 ä"])
def test_checksums_that_cannot_be_verified_are_refused(api, value):
    place = create(api.client, 4)
    headers = {**DATA, "Upload-Offset": "0", "Upload-Checksum": value.encode()}
    assert api.client.patch(place, headers=headers, content=b"data").status_code in (400, 460)
    assert offset_of(api.client, place) == 0


def test_clients_get_their_metadata_back(api):
    metadata = "filename dC5qc29u,purpose,digest c2hh"
    place = api.client.post(ADDRESS, headers={**TUS, "Upload-Length": "4", "Upload-Metadata": metadata}).headers
    assert api.client.head(place["location"], headers=TUS).headers["upload-metadata"] == metadata
    assert "upload-metadata" not in api.client.head(create_bare(api.client), headers=TUS).headers
    assert parsedate_to_datetime(place["upload-expires"]).timestamp() > 0


def create_bare(client):
    return client.post(ADDRESS, headers={**TUS, "Upload-Length": "4"}).headers["location"]


@pytest.mark.parametrize("metadata", ["a AA==,a AA==", "a AA==,", ",", "a b c", "ä YQ==", "a " + "A" * 5000])
def test_metadata_that_is_none_is_refused(api, metadata):
    headers = {**TUS, "Upload-Length": "4", "Upload-Metadata": metadata.encode()}
    assert api.client.post(ADDRESS, headers=headers).status_code == 400


def test_clients_without_patch_and_delete(api):
    place = create(api.client, 4)
    over = {"X-HTTP-Method-Override": "PATCH", **DATA, "Upload-Offset": "0"}
    assert api.client.post(place, headers=over, content=b"data").status_code == 204
    assert offset_of(api.client, place) == 4
    hidden = {**TUS, "X-HTTP-Method-Override": "DELETE", "Sec-Fetch-Site": "cross-site"}
    assert api.client.get(place, headers=hidden).status_code == 403
    assert api.client.post(place, headers={**TUS, "X-HTTP-Method-Override": "delete"}).status_code == 204
    assert api.client.head(place, headers=TUS).status_code == 404


@pytest.mark.parametrize(
    ("metadata", "name"),
    [("", ""), ("filename dC5qc29u", "t.json"), ("purpose, filename dC5qc29u", "t.json"), ("filename", "")],
)
def test_the_name_of_an_upload_is_among_its_metadata(metadata, name):
    """Clients may write a blank behind the comma."""
    assert _parse_name(metadata) == name
