"""What the API's description promises, and what pages show of jobs and GPUs."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tracekit.web import ask, pages, responses
from tracekit.web.app import create_app
from tracekit.web.ask import USUAL_GPUS
from tracekit.web.settings import Settings

ALWAYS = {"401", "403", "422", "429", "500", "503", "507"}
OPERATIONS = {
    "post /api/v1/jobs": ("jobs", {"201", "400", "404", "409"}),
    "get /api/v1/jobs": ("jobs", {"200"}),
    "get /api/v1/jobs/{job_id}": ("jobs", {"200", "404"}),
    "delete /api/v1/jobs/{job_id}": ("jobs", {"204", "404"}),
    "post /api/v1/jobs/{job_id}/ask": ("jobs", {"200", "400", "404", "409"}),
    "get /api/v1/jobs/{job_id}/report.{form}": ("jobs", {"200", "404"}),
    "get /api/v1/compare.{form}": ("jobs", {"200", "404"}),
    "get /api/v1/shard.{form}": ("sharding", {"200", "400"}),
    "get /api/v1/serving.json": ("serving", {"200", "400"}),
    "get /api/v1/gpus": ("names", {"200"}),
    "get /api/v1/clusters": ("names", {"200"}),
    "options /api/v1/uploads": ("uploads", {"204"}),
    "post /api/v1/uploads": ("uploads", {"201", "400", "412", "413"}),
    "head /api/v1/uploads/{upload_id}": ("uploads", {"200", "404", "412"}),
    "patch /api/v1/uploads/{upload_id}": ("uploads", {"204", "400", "404", "409", "412", "413", "415", "423", "460"}),
    "delete /api/v1/uploads/{upload_id}": ("uploads", {"204", "404", "412"}),
    "put /api/v1/traces/{name}": ("uploads", {"201", "413"}),
}


@pytest.fixture
def described(settings: Settings) -> dict[str, Any]:
    app = create_app(settings)
    app.state.store.close()
    return app.openapi()


def test_each_operation_names_its_statuses_and_its_group(described: dict[str, Any]) -> None:
    found = {f"{method} {path}": one for path, ways in described["paths"].items() for method, one in ways.items()}
    assert found.keys() == OPERATIONS.keys()
    for name, (group, statuses) in OPERATIONS.items():
        assert found[name]["tags"] == [group], name
        assert set(found[name]["responses"]) == statuses | ALWAYS, name
        assert found[name]["summary"]
        assert found[name]["description"]


def test_what_is_not_plain_is_explained(described: dict[str, Any]) -> None:
    bodies = described["components"]["schemas"]
    explained = {name for name, field in bodies["JobBody"]["properties"].items() if field.get("description")}
    named = "state stage ahead uploads found error reports link parts done_fraction"
    assert explained == set(named.split())
    assert bodies["NewJob"]["properties"]["ask"]["description"]
    assert bodies["Refusal"]["properties"]["code"]["description"]
    assert (described["info"]["title"], bool(described["info"]["description"])) == ("tracekit", True)
    compare = described["paths"]["/api/v1/compare.{form}"]["get"]["parameters"]
    assert [one["name"] for one in compare if one["in"] == "query" and not one.get("description")] == []
    headers = [one for one in described["paths"]["/api/v1/uploads"]["post"]["parameters"] if one["in"] == "header"]
    assert {one["name"] for one in headers} == {"upload-length", "upload-metadata", "tus-resumable"}


def test_the_api_lists_what_it_knows(api: Any) -> None:
    gpus = {one["slug"]: one for one in api.client.get("/api/v1/gpus").json()}
    h100 = gpus["h100-sxm"]
    assert (h100["vendor"], h100["year"], h100["memory_bytes"]) == ("nvidia", 2022, 80 << 30)
    assert (h100["name"], h100["bandwidth_gbps"]) == ("NVIDIA H100 SXM5 80 GB", 3352.0)
    assert h100["aliases"]
    clusters = {one["slug"]: one for one in api.client.get("/api/v1/clusters").json()}
    assert clusters["dgx-h100"] == {"slug": "dgx-h100", "gpu": "h100-sxm", "nodes": 1, "gpus": 8}


def test_a_refusal_is_given_with_its_code_and_hint(api: Any) -> None:
    error = api.client.get(f"/api/v1/jobs/{'0' * 32}").json()["error"]
    assert error == {
        "message": "There is no such report.",
        "hint": "It may have expired, or its owner deleted it.",
        "code": "report-missing",
    }
    missing = api.client.get("/api/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["message"]) == (404, "Not Found.")
    assert api.client.put("/api/v1/jobs").headers["allow"] in ("GET", "POST")
    page = api.client.get("/nothing")
    assert (page.status_code, "Not Found." in page.text) == (404, True)
    invalid = api.client.post("/api/v1/jobs", json={"uploads": 5}).json()["error"]["message"]
    assert invalid.startswith("body.uploads: ")


@pytest.fixture
def page(api: Any, work: Any, make_trace: Callable[..., bytes]) -> Callable[..., httpx.Response]:
    """The page of a job that has been looked at, and what it answers to a choice."""
    api.client.get("/")
    job = api.begin(api.put(make_trace()))
    work()

    def ask(**entered: Any) -> httpx.Response:
        if not entered:
            return api.client.get(f"/jobs/{job}")
        return api.client.post(f"/jobs/{job}/ask", data=entered)

    return ask


def test_gpus_that_were_chosen_come_first(page: Callable[..., httpx.Response]) -> None:
    def list_offered(**entered: Any) -> list[str]:
        return re.findall(r'name="gpu" value="([a-z0-9-]+)"', page(**entered).text)

    usual = list(USUAL_GPUS)
    first, again = list_offered(), list_offered(gpu=["t4", "l4"], steps="x")
    assert first[: len(usual)] == usual
    assert again[: len(usual) + 2] == [*usual, "l4", "t4"]
    assert sorted(first) == sorted(again)


def test_a_field_that_can_not_be_read_is_explained_beside_it(page: Callable[..., httpx.Response]) -> None:
    refused = page(gpu="t4", dp="many")
    assert refused.status_code == 400
    assert 'id="mistake-dp">dp can&#39;t be &#39;many&#39;.' in refused.text
    priced = page(**{"gpu": "t4", "price[t4]": "3,29"})
    assert 'id="mistake-price[t4]">&#39;3,29&#39; is no price. Write dollars with a point, such as 2.49.' in priced.text
    asked = page(gpu="t4")
    assert asked.status_code == 303
    in_work = page(gpu="l4")
    assert in_work.status_code == 409  # as the error says, not 400 for all


@pytest.mark.parametrize(
    ("missing", "offered"),
    [
        ((), "Without a GPU: a trace of a CPU with shapes, or a Hugging Face model's config.json."),
        (("transformers",), "Without a GPU: a trace of a CPU with shapes, but no model's config.json: this"),
        (("torch", "transformers"), "No model's config.json and no trace of a CPU: this"),
    ],
)
def test_programs_are_offered_where_they_can_be_captured(
    api: Any, monkeypatch: Any, missing: Any, offered: str
) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda package: None if package in missing else object())
    text = api.client.get("/").text
    assert offered in text
    assert ("pip install 'tracekit-gpu[capture]'" in text) == bool(missing)


def test_several_values_are_shown_as_they_are_entered() -> None:
    fields = ask.FIELDS
    assert responses.format_values({"h100-sxm": 2.5, "t4": 0.1 + 0.2}, fields["price"]) == "h100-sxm=2.5, t4=0.3"
    assert responses.format_values(["a", "b"], fields["price"]) == "a, b"


def test_the_login_says_what_was_wrong_and_where_it_leads(start: Callable[..., httpx.Client]) -> None:
    client = start(token="a-token-of-enough-characters")
    first, wrong = client.get("/login"), client.post("/login", data={"token": "guess"})
    assert (first.status_code, wrong.status_code) == (200, 401)
    assert first.text != wrong.text
    right = client.post("/login", data={"token": "a-token-of-enough-characters"})
    assert (right.status_code, right.headers["location"]) == (303, "/")
    out = client.post("/logout")
    assert (out.status_code, out.headers["location"]) == (303, "/login")
