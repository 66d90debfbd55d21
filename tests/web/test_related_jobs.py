"""Jobs made from others: variants by a report's sliders, and the runs of traces that aren't one job's ranks."""

import re
from types import SimpleNamespace

import pytest

from tracekit.testing import TraceBuilder
from tracekit.web import work as work_module
from tracekit.web.jobs import MIN_FRACTION
from tracekit.web.prepared import CHECK_INTERVAL_S, KEEPER, KEPT_S

pytestmark = pytest.mark.heavy


@pytest.fixture
def reported(api, work, make_trace):
    """A job with a report."""
    api.client.get("/")
    job = api.begin(api.put(make_trace()), ask={"gpu": ["h100-sxm"], "price": ["h100-sxm=2.5"]})
    work()
    return job


def adjust(api, job, **values):
    answer = api.client.post(f"/jobs/{job}/adjust", data=values)
    assert answer.status_code == 303
    return answer.headers["location"].removeprefix("/jobs/")


def test_sliders_make_a_report_of_their_own(api, work, reported, monkeypatch):
    """The traces aren't read again; the report before stays, as does the other answer to the same question."""
    monkeypatch.setattr(work_module, "_prepare", lambda *_: pytest.fail("the traces are read again"))
    variant = adjust(api, reported, batch="1", host_speed="1", world_size="0")
    assert variant != reported
    work()
    assert api.job(reported)["ask"]["batch"] is None
    assert (api.job(variant)["ask"]["batch"], api.job(variant)["ask"]["gpu"]) == (2.0, ["h100-sxm"])
    report = api.client.get(api.job(variant)["reports"]["json"]).json()
    assert report["targets"][0]["layout"]["batch"] == 2
    assert adjust(api, reported, batch="1") == variant
    assert adjust(api, variant, batch="0", host_speed="1") == reported
    assert [job["id"] for job in api.client.get("/api/v1/jobs").json()] == [reported]
    assert f'href="/jobs/{reported}"' in api.client.get(f"/jobs/{variant}").text


def test_more_gpus_are_those_of_a_node(api, work, reported):
    four = adjust(api, reported, world_size="2")
    asked = api.job(four)["ask"]
    assert (asked["gpu"], asked["cluster"], asked["world_size"]) == ([], ["4xh100-sxm"], 4)
    work()
    eight = api.job(adjust(api, four, world_size="3"))["ask"]
    assert (eight["cluster"], eight["world_size"]) == (["8xh100-sxm"], 8)
    assert adjust(api, four, world_size="0") == reported


@pytest.mark.parametrize(("sent", "batch"), [("99", 32.0), ("-99", 0.125), ("x", None), ("nan", None), ("", None)])
def test_what_no_slider_sends(api, reported, sent, batch):
    assert api.job(adjust(api, reported, batch=sent))["ask"]["batch"] == batch


def test_variants_go_with_their_traces(api, work, store, reported):
    variant = adjust(api, reported, batch="2")
    work()
    link = api.job(variant)["link"]
    assert api.client.get(link).status_code == 200
    api.client.post(f"/jobs/{variant}/delete")
    assert api.client.get(link).status_code == 404
    assert api.client.get(f"/jobs/{reported}").status_code == 404
    assert store.files.list_names("jobs") == store.files.list_names("uploads") == []


def test_a_kept_run_is_dropped_when_its_traces_are_deleted_or_nobody_asks(api, store, reported, monkeypatch):
    now = KEEPER._used
    # Of that module only: a server's event loop in this process would sleep until the moment that is put on here.
    monkeypatch.setattr("tracekit.web.prepared.time", SimpleNamespace(monotonic=lambda: now))
    now += CHECK_INTERVAL_S
    KEEPER.drop_unused(store)
    assert KEEPER._kept is not None
    api.client.delete(f"/api/v1/jobs/{reported}")
    now += CHECK_INTERVAL_S
    KEEPER.drop_unused(store)
    assert KEEPER._kept is None
    KEEPER._traces_id, KEEPER._kept = "0" * 32, object()
    now += KEPT_S + CHECK_INTERVAL_S
    KEEPER.drop_unused(store)
    assert KEEPER._kept is None


def test_progress_only_grows(api, store, make_trace, work, monkeypatch):
    api.begin(api.put(make_trace()), ask={"gpu": ["l4"]})
    seen = []
    monkeypatch.setattr(store.jobs, "set_stage", lambda job, stage, fraction: seen.append(fraction))
    work()
    assert len(seen) > 8
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert MIN_FRACTION < seen[-1] < 1


@pytest.fixture
def other_trace():
    """A trace of another GPU."""
    builder = TraceBuilder({"name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9, "computeMinor": 0})
    builder.op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
    return builder.kernel("nvjet", 20, 50, launch=10).to_json()


def test_traces_of_several_runs_are_shown_side_by_side(api, work, make_trace, other_trace):
    api.client.get("/")
    uploads = [api.put(make_trace(), "<b>a100.json"), api.put(other_trace, "h100.json")]
    job = api.begin(*uploads)
    for _ in range(3):
        work()
    told = api.job(job)
    assert (told["state"], told["error"]) == ("split", None)
    parts = [api.job(part) for part in told["parts"]]
    assert sorted(part["found"]["source"]["gpu"] for part in parts) == ["a100-sxm-80gb", "h100-sxm"]
    page = api.client.get(f"/jobs/{job}").text
    assert "<b>a100" not in page
    assert 'name="source_gpu"' not in page
    assert api.client.post(f"/jobs/{job}/ask", data={"gpu": ["l4", "t4"], "price[l4]": "1"}).status_code == 303
    assert "data-waiting" in api.client.get(f"/jobs/{job}").text
    work(), work()
    page = api.client.get(f"/jobs/{job}").text
    assert "data-waiting" not in page
    a, b = (part["id"] for part in parts)
    assert re.search(rf"/compare\?job={a}&amp;job={b}|/compare\?job={b}&amp;job={a}", page)
    for row in ("decision", "gemm", "step on l4", "step on t4"):
        assert f'<th scope="row">{row}</th>' in page
    assert api.client.get(f"/compare?job={a}&job={b}").status_code == 200
    assert [each["id"] for each in api.client.get("/api/v1/jobs").json()] == [job]
    api.client.post(f"/jobs/{job}/delete")
    assert api.client.get(f"/jobs/{a}").status_code == 404


def test_ranks_of_one_job_still_join(api, work, make_trace):
    api.client.get("/")
    job = api.begin(*(api.put(make_trace(rank), f"rank{rank}.json") for rank in (0, 1)))
    work()
    assert (api.job(job)["state"], api.job(job)["found"]["diagnosis"]["ranks_read"]) == ("found", 2)


def test_folders_are_runs(api, work, make_trace):
    """Two folders with the same ranks: each is a job, whose ranks join."""
    api.client.get("/")
    names = [f"{run}/rank{rank}.json" for run in ("before", "after") for rank in (0, 1)]
    job = api.begin(*(api.put(make_trace(int(name[-6])), name.replace("/", "%2F")) for name in names))
    for _ in range(3):
        work()
    parts = [api.job(part) for part in api.job(job)["parts"]]
    assert {part["found"]["diagnosis"]["ranks_read"] for part in parts} == {2}
    assert len(parts) == 2


def test_more_runs_than_a_page_shows_are_refused_as_before(api, work, make_trace):
    api.client.get("/")
    job = api.begin(*(api.put(make_trace(), f"{number}.json") for number in range(9)))
    work()
    assert (api.job(job)["state"], api.job(job)["error"]["code"]) == ("failed", "ranks-ambiguous")
