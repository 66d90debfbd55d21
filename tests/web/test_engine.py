"""Jobs of many ranks go to the server's engine: what is reported, refused and said if it fails."""

import json
import sys

import pytest

import tracekit as tk
from tests.fleet.test_fleet import save
from tests.web.conftest import list_complaints
from tracekit.cli.app import main
from tracekit.errors import TraceTooLargeError
from tracekit.messages.traces import TRACES_TOO_LARGE
from tracekit.render.fleet import dump_fleet
from tracekit.web import rank_by_rank
from tracekit.web import work as work_module

ASKED = {"gpu": ["h100-sxm"]}
ENGINE = {"engine": "local", "engine_ranks": 4}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return save(tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def begin(api, ranks):
    def begin(ask=None):
        api.client.get("/")
        return api.begin(*(api.put(path.read_bytes(), path.name) for path in sorted(ranks.iterdir())), ask=ask)

    return begin


@pytest.mark.heavy
def test_the_report_is_the_fleets(api, work, begin, ranks, settings):
    ask = ASKED | {"price": ["h100-sxm=2.49"]}
    job = begin(ask)
    work(**ENGINE)
    done = api.job(job)
    assert (done["state"], set(done["reports"])) == ("done", {"html", "xlsx", "json", "md", "csv", "parquet", "txt"})
    assert (done["found"]["diagnosis"]["ranks_read"], done["found"]["rank_by_rank"]) == (4, 4)
    fleet = tk.predict_fleet(str(ranks), engine="local", **ask)
    shown, expected = api.client.get(done["reports"]["json"] + "?details=1").json(), json.loads(dump_fleet(fleet))
    assert shown["job"].pop("source") == "rank0.json.gz"
    del expected["job"]["source"]
    assert shown == expected
    assert '"price": null' in api.client.get(done["reports"]["json"]).text
    assert api.client.get(done["reports"]["txt"]).headers["content-type"].startswith("text/plain")
    for page in (f"/jobs/{job}", done["link"]):
        assert "Ranks that hold up the job" in api.client.get(page).text
    assert f'value="{job}" aria-label="compare' in api.client.get("/").text
    assert api.client.get(f"/api/v1/compare.json?a={job}&b={job}").json()["error"]["code"] == "report-not-comparable"
    assert not [*(settings.data / "scratch").iterdir()]


def test_one_rank_is_looked_at_before_all_are_asked_about(api, work, begin, monkeypatch):
    """What all ranks at once would need is refused beside its field; of one rank it is asked."""
    job = begin()
    with monkeypatch.context() as patched:
        patched.setattr(rank_by_rank, "open_engine", lambda *_: pytest.fail("nothing is asked yet"))
        work(**ENGINE)
    found = api.job(job)["found"]
    assert (found["diagnosis"]["ranks_read"], found["diagnosis"]["world_size"], found["rank_by_rank"]) == (1, 4, 4)
    assert not [one for one in found["diagnosis"]["checks"] if one["name"] == "ranks" and one["status"] != "ok"]
    page = f"/jobs/{job}/ask"
    refused = api.client.post(page, data={"gpu": "h100-sxm", "price[h100-sxm]": "2", "unprofiled_step": "1ms"})
    assert refused.status_code == 400
    assert sum("4 ranks of this job are worked on one by one" in one for one in list_complaints(refused)) == 1
    api.client.post(f"/api/v1/jobs/{job}/ask", json=ASKED | {"unprofiled_step": "1ms"})
    work(**ENGINE)
    assert api.job(job)["error"]["code"] == "ranks-without-option"
    assert api.client.post(page, data={"gpu": "h100-sxm", "host_speed": "2", "ranks": "1"}).status_code == 303


def test_few_ranks_stay_in_one_piece_unless_they_are_too_large(api, work, begin, monkeypatch):
    few = ENGINE | {"engine_ranks": 5}
    job = begin()
    work(**few)
    assert "rank_by_rank" not in api.job(job)["found"]

    def refuse(*_, **__):
        raise TraceTooLargeError(TRACES_TOO_LARGE(path="rank1.json.gz", limit_bytes=1))

    monkeypatch.setattr(work_module, "load_recording", refuse)
    refused, large = begin(ASKED | {"unprofiled_step": "1ms"}), begin({})
    work(**few)
    work(**few)
    assert api.job(refused)["error"]["code"] == "worker-tables-too-large"
    assert set(api.job(large)["reports"]) == {"html", "xlsx", "json", "md", "csv", "parquet", "txt"}


def test_a_lost_scheduler_fails_the_job_and_no_other(api, work, begin, make_trace, monkeypatch):
    monkeypatch.setattr("tracekit.engine.on_dask.PATIENCE", "1s")
    job, other = begin(ASKED), api.begin(api.put(make_trace()))
    away = ENGINE | {"engine": "tcp://127.0.0.1:1"}
    work(**away)
    work(**away)
    error = api.job(job)["error"]
    assert (error["code"], "tcp://127.0.0.1:1" in error["message"]) == ("engine-failed", True)
    assert api.job(other)["state"] == "found"


def test_workers_that_lack_the_files_are_named(api, work, begin, monkeypatch):
    monkeypatch.setattr(rank_by_rank, "_can_use", lambda places: False)
    job = begin(ASKED)
    work(**ENGINE)
    error = api.job(job)["error"]
    assert (error["code"], "1 of 1 workers" in error["message"]) == ("engine-without-files", True)


def test_several_jobs_of_many_ranks_are_split(api, work, ranks):
    paths = sorted(ranks.iterdir())
    job = api.begin(*(api.put(path.read_bytes(), f"{run}/{path.name}") for run in "ab" for path in paths), ask={})
    work(**ENGINE)
    assert (api.job(job)["state"], len(api.job(job)["parts"])) == ("split", 2)


@pytest.mark.parametrize(
    ("engine", "status", "code"),
    [("ray", 2, "[engine-unknown]"), ("tcp://127.0.0.1:1", 1, "[scheduler-unreachable]")],
)
def test_an_engine_that_is_none_ends_the_command(engine, status, code, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tracekit.engine.on_dask.PATIENCE", "1s")
    monkeypatch.setattr(sys, "argv", ["tracekit", "serve", "--data", str(tmp_path / "data"), "--engine", engine])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    assert code in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
