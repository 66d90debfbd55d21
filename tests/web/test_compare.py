"""Two reports compared as the command line does it."""

import html
import re

import pytest


@pytest.fixture
def two(api, work, make_trace):
    """A prediction for an H100, and the same work measured on one; which is older isn't the order of the calls."""
    api.client.get("/")
    jobs = [
        api.begin(api.put(make_trace(), "here.json"), ask={"gpu": ["h100-sxm", "t4"]}),
        api.begin(api.put(make_trace(kernel="nvjet"), "<b>there.json"), ask={"source_gpu": "h100-sxm"}),
    ]
    work(), work()
    return jobs


def test_a_prediction_with_what_was_measured_since(api, two):
    found = api.client.get("/api/v1/compare.json", params={"a": two[0], "b": two[1]}).json()
    assert (found["a"]["predicted"], found["b"]["predicted"]) == (True, False)
    assert found["a"]["gpu"] == found["b"]["gpu"] == "h100-sxm"
    assert found["a"]["label"] == "here.json, predicted on h100-sxm"
    off = 100 * (found["a"]["step_time_us"] / found["b"]["step_time_us"] - 1)
    assert found["error_pct"] == pytest.approx(off)
    assert [row["what"] for row in found["matched"]] == ["aten::mm fp32 512×512, 512×512"]
    around = api.client.get("/api/v1/compare.json", params={"a": two[1], "b": two[0]}).json()
    assert around["error_pct"] == pytest.approx(off)


def test_the_measured_runs_as_on_the_command_line(api, two, make_trace, tmp_path, tracekit_json):
    paths = [tmp_path / "here.json", tmp_path / "there.json"]
    for path, kernel in zip(paths, ("ampere_sgemm_64x32", "nvjet"), strict=True):
        path.write_bytes(make_trace(kernel=kernel))
    printed = tracekit_json(tmp_path, "compare", *map(str, paths), "--top", "50")
    asked = {"a": two[0], "b": two[1], "of_a": "", "of_b": ""}
    found = api.client.get("/api/v1/compare.json", params=asked).json()
    for side in (*(found[name] for name in "ab"), *(printed[name] for name in "ab")):
        del side["label"], side["gpu"]
    assert found == printed


def test_the_page_shows_what_the_command_line_writes(api, two):
    page = api.client.get("/compare", params={"job": two[::-1]}).text
    assert '<option value="h100-sxm" selected>predicted on h100-sxm' in page
    assert "<b>there" not in page
    assert "The prediction is off by" in page
    report = api.client.get("/api/v1/compare.html", params={"a": two[0], "b": two[1]})
    assert report.headers["content-security-policy"].startswith("sandbox")
    assert "The prediction is off by" in report.text
    assert "aten::mm fp32 512×512, 512×512" in report.text
    assert "<b>there" not in report.text


def test_what_can_not_be_compared(api, two, make_trace):
    assert "Choose two" in api.client.get(f"/compare?job={two[0]}").text
    unasked = api.begin(api.put(make_trace()))
    answer = api.client.get("/api/v1/compare.json", params={"a": two[0], "b": unasked})
    assert answer.status_code == 404
    assert "no report to compare yet" in answer.json()["error"]["message"]
    answer = api.client.get("/api/v1/compare.json", params={"a": two[0], "b": two[1], "of_a": "b200"})
    assert "It was on: h100-sxm, t4." in answer.json()["error"]["hint"]


def test_the_steps_of_all_targets_that_both_reports_have(api, two, work, make_trace):
    later = api.begin(api.put(make_trace(), "later.json"), ask={"gpu": ["t4", "l4"]})
    work()
    page = api.client.get("/compare", params={"job": [two[0], later]}).text
    rows = re.findall(r'<tr><th scope="row"><a href="([^"]*)">([^<]*)</a>', page)
    assert [what for _, what in rows] == ["measured on a100-sxm-80gb", "predicted on t4"]
    chosen = api.client.get(html.unescape(rows[1][0])).text
    assert chosen.count('<option value="t4" selected>') == 2
    assert "The steps of both reports" not in api.client.get("/compare", params={"job": two}).text
