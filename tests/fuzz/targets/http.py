"""Hostile requests to the web server's application: any method, path, headers and body, one after the other.

Hypothesis makes them out of what the routes know. That the API keeps to its description is schemathesis' matter, in
tests/web/test_openapi.py; here nothing has to fit a description.
"""

import asyncio
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from hypothesis import strategies as st

from tests.fuzz.documents import dump_case, values
from tests.fuzz.promises import require
from tests.fuzz.target import Target
from tracekit.messages.catalogue import CATALOGUE
from tracekit.testing import TraceBuilder
from tracekit.web.app import create_app
from tracekit.web.settings import Settings

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND"]
HEADERS: dict[str, list[str]] = {
    "Tus-Resumable": ["1.0.0", "0.2", "", "9" * 400],
    "Upload-Length": ["0", "10", "+5", "5.0", "-1", "9" * 30, "9" * 5000, "", "x", "٣"],
    "Upload-Offset": ["0", "10", "-1", "9" * 30, "", "x", "0x0"],
    "Upload-Metadata": [
        "filename dHJhY2UuanNvbg==",
        "filename",
        "filename !!",
        ",",
        "filename /w==",
        "a" * 5000,
        " , ,",
    ],
    "Upload-Defer-Length": ["1", "0"],
    "Upload-Concat": ["partial", "final;x"],
    "Upload-Checksum": ["sha1 x", "md5 ==", "sha256 " + "A" * 44, ""],
    "Content-Type": [
        "application/offset+octet-stream",
        "application/json",
        "text/plain; charset=utf-99",
        "",
        "multipart/form-data",
    ],
    "Content-Length": ["0", "5", "9" * 19],
    "Origin": ["null", "http://evil.example", "http://testserver"],
    "Sec-Fetch-Site": ["cross-site", "same-origin", ""],
    "Host": ["evil.example", "localhost:99999999", "[", "localhost:1@evil.example", ""],
    "Cookie": ["tracekit_owner=x", "tracekit_owner=" + "a" * 5000, "=;=;", "tracekit_token=\x7f"],
    "Authorization": ["Bearer x", "Basic !!", "Bearer", "\xff"],
    "Accept": ["application/json", "text/html", "*/*;q=x"],
    "Range": ["bytes=0-", "bytes=9-1", "x"],
    "Transfer-Encoding": ["chunked", "x"],
}
PATHS = [
    *(
        "/",
        "/login",
        "/compare",
        "/api/v1/jobs",
        "/api/v1/uploads",
        "/api/v1/traces/trace.json",
        "/api/v1/gpus",
        "/api/v1/clusters",
    ),
    *(
        "/api/v1/uploads/{upload}",
        "/api/v1/jobs/{job}",
        "/api/v1/jobs/{job}/ask",
        "/api/v1/jobs/{job}/report.html",
        "/api/v1/compare",
    ),
    *(
        "/jobs/{job}",
        "/jobs/{job}/panel",
        "/jobs/{job}/ask",
        "/jobs/{job}/delete",
        "/r/{link}",
        "/r/{link}/report.json",
        "/api/docs",
    ),
    *(
        "/r/{link}/timeline",
        "/r/{link}/timeline/index.html",
        "/samples/x",
        "/static/x",
        "/api/v1/openapi.json",
        "/nothing",
    ),
]
PIECES = [
    "",
    "/",
    "..",
    "%00",
    "%2e%2e%2f",
    "%ff",
    "%",
    "x" * 300,
    "é",
    "?",
    "?a=1&a=2",
    "?before={job}&after={job}",
    "#",
    "//",
    ".",
]
GOOD_BODIES: list[dict[str, Any]] = [
    {"uploads": ["{upload}"], "ask": {"gpu": ["h100-sxm"], "price": {"h100-sxm": 2.0}, "dp": 1}},
    {"gpu": ["h100-sxm"], "cluster": ["8xh100-sxm"], "what_if": ["scale(family=gemm, 0.5)"], "steps": "1"},
]
KEYS = [
    "uploads",
    "ask",
    "gpu",
    "price",
    "dp",
    "batch",
    "what_if",
    "steps",
    "host_speed",
    "samples",
    "x",
    "source_gpu",
    "world_size",
]

bodies = st.one_of(
    st.just(""),
    st.sampled_from(
        [
            "{",
            "null",
            "[]",
            "[" * 5000,
            '{"a":' * 2000,
            "9" * 6000,
            "\x00",
            '"\\ud800"',
            "gpu=h100-sxm&price=x",
            "a=1&" * 3000,
        ]
    ),
    st.builds(
        lambda body, key, value: json.dumps(body | {key: value}),
        st.sampled_from(GOOD_BODIES),
        st.sampled_from(KEYS),
        values,
    ),
    st.builds(
        lambda key, value: json.dumps({"uploads": ["{upload}"], "ask": {"gpu": ["t4"], key: value}}),
        st.sampled_from(KEYS),
        values,
    ),
    st.builds("{}={}".format, st.sampled_from(KEYS), st.text(max_size=10)),
    st.text(max_size=30),
)
paths = st.one_of(
    st.sampled_from(PATHS),
    st.sampled_from(PATHS),
    st.builds("{}{}".format, st.sampled_from(PATHS), st.sampled_from(PIECES)),
)
header = st.sampled_from([*HEADERS]).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(HEADERS[name])))
requests = st.fixed_dictionaries(
    {
        "method": st.sampled_from(METHODS),
        "path": paths,
        "headers": st.lists(header, max_size=3).map(dict),
        "body": bodies,
    }
)


class Client:
    """Client of an application without workers; an exception of the application comes through.

    Attributes:
        ids: Those of an upload, of a job, and of the job's link.
    """

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="tracekit-fuzz-"))
        unlimited = {"max_per_minute": 10**9, "max_queued": 10**6, "max_queued_per_owner": 10**6}
        app = create_app(Settings(data=folder, workers=0, min_free_bytes=0, **unlimited))
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
        self._runner = asyncio.Runner()
        trace = TraceBuilder().kernel("gemm", 20, 10, launch=0).to_json()
        free, used = (self.send("PUT", "/api/v1/traces/trace.json", {}, trace).json()["id"] for _ in range(2))
        asked = json.dumps({"uploads": [used], "ask": None}).encode()
        job = self.send("POST", "/api/v1/jobs", {"Content-Type": "application/json"}, asked).json()
        self.ids = {"upload": free, "job": job["id"], "link": job["link"].removeprefix("/r/")}

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        """Send a request.

        Raises:
            UnsendableError: httpx doesn't send such a request.
        """
        encoded = {name: value.encode("latin-1", "replace") for name, value in headers.items()}
        try:
            request = self._client.build_request(method, path, headers=encoded, content=body)
        except (ValueError, httpx.InvalidURL) as error:
            raise UnsendableError from error
        return self._runner.run(self._client.send(request))


class UnsendableError(Exception):
    """A request that can't be sent."""


@cache
def start_client() -> Client:
    """Start the application, once for all cases."""
    return Client()


def check(case: dict[str, Any]) -> None:
    """Send the requests."""
    client = start_client()
    for request in case["requests"]:
        path, body = (fill_in(request[key], client.ids) for key in ("path", "body"))
        try:
            answer = client.send(request["method"], path, request["headers"], body.encode())
        except UnsendableError:
            continue
        shown = (request, answer.status_code, answer.text[:2000])
        place = f"{request['method']} {request['path'][:60]}"
        require(answer.status_code < 500, f"no {answer.status_code} to {place}", shown)
        require("x-content-type-options" in answer.headers, "every answer has the security headers", shown)
        if answer.status_code >= 400 and path.startswith("/api/v1/") and request["method"] != "HEAD":
            check_refusal(answer.text, shown)


def fill_in(text: str, ids: dict[str, str]) -> str:
    """Replace the names of ids by them."""
    for name, value in ids.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def check_refusal(text: str, shown: object) -> None:
    """Check the body of a refusal: JSON with a message, of the catalogue if it has a code."""
    try:
        error = json.loads(text)["error"]
        known = bool(error["message"]) and (error["code"] in CATALOGUE or not error["code"])
    except (ValueError, KeyError, TypeError):
        known = False
    require(known, "refusals are as documented", shown)


TARGET = Target(
    name="http",
    cases=st.lists(requests, min_size=1, max_size=4).map(lambda sent: {"requests": sent}),
    check=check,
    load=json.loads,
    dump=dump_case,
    suffix=".json",
    examples=60,
)
