"""The API's page shows all of its OpenAPI document, and its links lead somewhere."""

import html
import re

import pytest


@pytest.fixture
def client(start):
    return start()


def test_everything_described_is_on_the_page(client):
    document = client.get("/api/v1/openapi.json").json()
    page = html.unescape(client.get("/api/docs").text)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f'<span class="method">{method.upper()}</span> {path}</code> {operation["summary"]}' in page
            for parameter in operation.get("parameters", ()):
                assert f"<code>{parameter['name']}</code>" in page
    for schema in document["components"]["schemas"].values():
        for name in schema.get("properties", ()):
            assert f"<code>{name}</code>" in page


def test_types_are_in_words(client):
    page = re.sub(r"<[^>]+>", "", client.get("/api/docs").text)
    for words in ("list of string", "integer, at least 1, at most 134,217,728", "html or json"):
        assert words in page


def test_links_lead_somewhere(client):
    page = client.get("/api/docs").text
    anchors = re.findall(r'id="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    linked = set(re.findall(r'href="#([^"]+)"', page))
    assert len(linked) >= 20
    assert linked <= set(anchors)
