"""Sharding plans on the page and in the API."""

import pytest

ASKED = {"tables": "8*1Mx64:5:1.05\n2*1000x16", "cluster": "8xh100-sxm", "batch": 512}


def test_a_plan_on_the_page(start):
    client = start()
    assert client.get("/shard").status_code == 200
    page = client.get("/shard", params=ASKED)
    assert page.status_code == 200
    for expected in ("best found", "torchrec", "8*1Mx64:5:1.05"):
        assert expected in page.text


def test_a_plan_from_the_api(start):
    client = start()
    (cluster,) = client.get("/api/v1/shard.json", params=ASKED).json()["clusters"]
    assert (cluster["cluster"], cluster["ranks"], cluster["batch"]) == ("8xh100-sxm", 8, 512)
    (parameters,) = client.get("/api/v1/shard.torchrec", params=ASKED).json().values()
    assert list(parameters) == [f"table_{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tables": "5x"}, "table-malformed"),
        ({"tables": " "}, "sharding-tables-missing"),
        ({"cluster": "8xh123"}, ""),
        ({"cluster": ""}, ""),
        ({"cluster": "/etc/lab.toml"}, "server-reads-no-files"),
        ({"optimizer": "shampoo"}, "option-value"),
        ({"tables": "201*1000x16"}, "plan-too-large"),
        ({"cluster": "16x8xh100-sxm@ndr400"}, "plan-too-large"),
    ],
)
def test_what_cannot_be_planned_is_refused(start, change, code):
    client = start()
    answer = client.get("/api/v1/shard.json", params=ASKED | change)
    assert answer.status_code == 400
    assert not code or answer.json()["error"]["code"] == code
    page = client.get("/shard", params=ASKED | change)
    assert page.status_code == 400
    assert 'role="alert"' in page.text
