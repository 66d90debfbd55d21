"""Bad uploads of every kind end in one line that names the file as its owner did, and says what to try."""

import gzip
import io
import zipfile

import pytest

from tracekit.testing import TraceBuilder

GOOD = TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 100, launch=10).to_json()


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


BOMB = gzip.compress(bytes(80 << 20))
CASES = {
    "empty": (b"", "is empty"),
    "truncated": (GOOD[: len(GOOD) // 2], "cut short"),
    "nested bomb": (b"[" * 100_000, "cut short"),
    "deep in an event": (b'{"traceEvents": [{"args": ' + b"[" * 100_000, "cut short"),
    "only blanks": (b" " * 100_000, "no JSON"),
    "plain text": (b"hello world", "no JSON object"),
    "other JSON": (b'{"nodes": [1, 2]}', "traceEvents"),
    "no events": (b'{"traceEvents": []}', "no GPU activity"),
    "cut gzip": (gzip.compress(GOOD)[: len(GOOD) // 4], "gzip"),
    "corrupt gzip": (gzip.compress(GOOD)[:30] + b"\0" * 40, "gzip"),
    "cut zip": (zipped(a=GOOD)[:100], "zip"),
    "zip without traces": (zipped(**{"a.txt": b"x", "b.txt": b"y"}), "holds no traces"),
    "gzip bomb": (BOMB, "unpacks to more than 200 times its size"),
    "zip bomb": (zipped(**{"a.json": bytes(80 << 20)}), "unpacks to more than 200 times its size"),
    "markup": (b"<script>alert(1)</script>", "no JSON"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_clear_line(case, api, work, settings):
    data, says = CASES[case]
    job = api.begin(api.put(data, "mine <b>.json"))
    work()
    failed = api.job(job)
    assert failed["state"] == "failed"
    message = failed["error"]["message"]
    assert says in message
    assert "mine <b>.json" in message
    assert "\n" not in message
    assert str(settings.data) not in str(failed["error"])
    page = api.client.get("/").text
    assert "<b>" not in page


def test_bad_files_among_good_ones_are_left_out_and_named(api, work, make_trace):
    bad = {"empty.json": b"", "cut.json.gz": CASES["corrupt gzip"][0], "config.json": b'{"lr": 1}', "x.zip": b"PK\3\4"}
    ranks = [api.put(make_trace(rank), f"rank{rank}.json") for rank in (0, 1)]
    job = api.begin(*ranks, *(api.put(data, name) for name, data in bad.items()), ask={"gpu": ["l4"]})
    work()
    done = api.job(job)
    assert done["state"] == "done"
    assert done["found"]["diagnosis"]["ranks_read"] == 2
    said = " ".join(one["text"] for one in done["found"]["warnings"] if "left out" in one["text"])
    assert all(name in said for name in bad)
    assert "config.json" in api.client.get(done["reports"]["html"]).text


@pytest.mark.parametrize(
    ("limits", "says"),
    [({"max_unpacked_bytes": 1 << 20}, "takes: 1 MiB"), ({"max_files": 1}, "2 files are more than the 1")],
)
def test_limits_are_named(limits, says, api, work):
    data = zipped(**{"a.json": GOOD + b" " * (2 << 20), "b.json": GOOD})
    job = api.begin(api.put(data, "two.zip"))
    work(**limits)
    assert says in api.job(job)["error"]["message"]


def test_a_wrong_source_gpu_is_refused_when_asked(api):
    job = api.begin(api.put(GOOD))
    asks = (
        {"gpu": ["h1000"]},
        {"gpu": ["t4"], "source_gpu": "nothing"},
        {"cluster": ["8xnothing"]},
        {"gpu": ["t4"], "price": ["h1000=2"]},
    )
    for ask in asks:
        answer = api.client.post(f"/api/v1/jobs/{job}/ask", json=ask)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"]
        assert "tracekit gpus" not in answer.text
        assert ".toml" not in answer.text


@pytest.mark.parametrize("name", ["/etc/passwd.toml", "x.TOML", " a.toml ", "8x/etc/passwd.toml@ndr400"])
@pytest.mark.parametrize("where", ["gpu", "cluster"])
def test_no_file_of_the_server_is_read(name, where, api):
    answer = api.client.post("/api/v1/jobs", json={"uploads": [api.put(GOOD)], "ask": {where: [name]}})
    assert answer.status_code == 400
    assert "reads no files" in answer.json()["error"]["message"]


def test_an_option_that_does_not_exist_is_refused(api):
    job = api.begin(api.put(GOOD))
    assert api.client.post(f"/api/v1/jobs/{job}/ask", json={"gpus": ["t4"]}).status_code == 422


@pytest.mark.parametrize("ask", [{"gpu": ["t4"] * 33}, {"source_gpu": "t" * 301}, {"what_if": "x" * 301}])
def test_more_than_the_server_reads_is_refused(ask, api):
    answer = api.client.post("/api/v1/jobs", json={"uploads": [api.put(GOOD)], "ask": ask})
    assert (answer.status_code, "too long" in answer.text) == (400, True)


def test_steps_that_are_not_there(api, work):
    job = api.begin(api.put(GOOD), ask={"gpu": ["t4"], "steps": "7:9"})
    work()
    assert "step" in api.job(job)["error"]["message"].lower()
    assert api.client.post(f"/api/v1/jobs/{job}/ask", json={"steps": "; rm"}).status_code == 400
