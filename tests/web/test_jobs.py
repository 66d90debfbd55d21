"""From traces to reports, and what happens to jobs whose workers die."""

import errno
import os
import re
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy import select, update

from tests.layers import NODE
from tests.prediction.test_experts import Model
from tracekit.messages import front_ends
from tracekit.testing import TraceBuilder
from tracekit.web import work as work_module
from tracekit.web.database import JOBS, METADATA, Database
from tracekit.web.errors import DiskFullError, WebError
from tracekit.web.jobs import MAX_DEATHS
from tracekit.web.store import Store
from tracekit.web.uploads import UploadStore


def leftovers(settings):
    return sorted(path.name for path in settings.data.rglob("*") if path.is_file() and ".sqlite" not in path.name)


def test_looking_first_then_asking(api, work, make_trace):
    job = api.begin(api.put(make_trace()))
    assert api.job(job)["state"] == "queued"
    work()
    found = api.job(job)
    assert (found["state"], found["reports"]) == ("found", {})
    assert found["found"]["source"]["gpu"] == "a100-sxm-80gb"
    assert found["found"]["source"]["trace"] == "trace.json"
    assert found["found"]["diagnosis"]["grade"] in "ABCD"
    asked = api.client.post(f"/api/v1/jobs/{job}/ask", json={"gpu": ["H100 SXM", "l40s"]})
    assert asked.json()["state"] == "queued"
    work()
    done = api.job(job)
    assert done["state"] == "done"
    report = api.client.get(done["reports"]["json"]).json()
    assert {target["gpu"] for target in report["targets"]} == {"h100-sxm", "l40s"}
    assert report["source"]["trace"] == "trace.json"


def test_a_layout_needs_a_cluster(api, work, make_trace, tmp_path, tracekit_json):
    shapes, layout = (512, 2048), {"tp": 2, "batch": 4.0}
    builder = TraceBuilder()
    for number, (k, n) in enumerate((shapes, shapes[::-1], shapes, shapes[::-1])):
        now = 100 * number
        builder.op("aten::mm", now, 30, dims=[[256, k], [k, n]], types=["float", "float"])
        builder.kernel("ampere_sgemm_64x32", now + 20, 60, launch=now + 10)
    job = api.begin(api.put(builder.to_json()), ask={"gpu": ["h100-sxm"], "cluster": ["8xh100-sxm"], **layout})
    work()
    (shared,) = api.client.get(f"/api/v1/jobs/{job}/report.json").json()["targets"]
    (tmp_path / "trace.json").write_bytes(builder.to_json())
    to = ("--gpu", "h100-sxm", "--cluster", "8xh100-sxm")
    printed = tracekit_json(tmp_path, "predict", "trace.json", *to, "--tp", "2", "--batch", "4")
    assert shared == printed["targets"][0]
    api.client.post(f"/api/v1/jobs/{job}/ask", json={"gpu": ["h100-sxm"], "tp": 2})
    work()
    assert "the links between them aren't known" in api.job(job)["error"]["message"]


def test_prices_are_written_as_on_the_command_line(api, work, make_trace, tmp_path, tracekit_json):
    trace = make_trace()
    api.client.get("/")
    job = api.begin(api.put(trace))
    work()
    api.client.post(f"/jobs/{job}/ask", data={"gpu": "h100-sxm", "price": "h100-sxm=2.49, a100-sxm-80gb = 1.5,"})
    work()
    page = api.client.get(f"/jobs/{job}").text
    for box, dollars in (("h100-sxm", "2.49"), ("source", "1.5")):
        assert re.search(rf'name="price\[{box}\]"[^>]* value="{dollars}"', page)
    (tmp_path / "trace.json").write_bytes(trace)
    to = ("--gpu", "h100-sxm", "--price", "h100-sxm=2.49", "--price", "a100-sxm-80gb=1.5")
    printed = tracekit_json(tmp_path, "predict", "trace.json", *to)
    report = api.client.get(f"/api/v1/jobs/{job}/report.json?details=1").json()
    assert report == printed
    assert report["source"]["dollars_per_1000_steps"] > 0


@pytest.mark.parametrize(
    ("price", "why"),
    [("h100-sxm", "Write it as h100-sxm=2.49"), ("no-gpu=2", "no-gpu"), ("mine.toml=2", "reads no files")],
)
def test_a_price_that_cannot_be_meant_is_refused_at_once(api, work, make_trace, price, why):
    api.client.get("/")
    job = api.begin(api.put(make_trace()))
    work()
    refused = api.client.post(f"/jobs/{job}/ask", data={"gpu": "h100-sxm", "price": price})
    assert refused.status_code == 400
    assert why in refused.text


def test_the_pages_field_for_ranks_that_share_experts(api, work, tmp_path, tracekit_json):
    model = Model(1).builder
    api.client.get("/")
    job = api.begin(api.put(model.to_json()))
    work()
    api.client.post(f"/jobs/{job}/ask", data={"cluster": NODE, "ep": 4})
    work()
    assert re.search(r'name="ep"[^>]* value="4"', api.client.get(f"/jobs/{job}").text)
    model.save(tmp_path / "trace.json")
    printed = tracekit_json(tmp_path, "predict", "trace.json", "--cluster", NODE, "--ep", "4")
    assert api.client.get(f"/api/v1/jobs/{job}/report.json").json() == printed
    assert printed["targets"][0]["layout"]["ep"] == 4


def test_the_json_is_the_command_lines(api, work, make_trace, tmp_path, tracekit_json):
    (tmp_path / "trace.json").write_bytes(make_trace())
    printed = tracekit_json(tmp_path, "predict", "trace.json", "--gpu", "h100-sxm")
    job = api.begin(api.put(make_trace()), ask={"gpu": ["h100-sxm"]})
    work()
    assert api.client.get(f"/api/v1/jobs/{job}/report.json").json() == printed


def test_what_was_found_of_ranks_is_what_info_says(api, work, tmp_path, tracekit_json):
    for rank, late in ((0, 0), (1, 400)):
        builder = TraceBuilder()
        builder.metadata = {"distributedInfo": {"rank": rank, "world_size": 2}, **builder.metadata}
        builder.op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
        (tmp_path / f"rank{rank}.json").write_bytes(builder.kernel("sgemm", 20, 100 + late, launch=10).to_json())
    job = api.begin(*(api.put((tmp_path / f"rank{rank}.json").read_bytes(), f"rank{rank}.json") for rank in (0, 1)))
    work()
    shown, printed = api.job(job)["found"], tracekit_json(tmp_path, "info", "rank0.json", "rank1.json")
    assert shown["source"]["step_time_us"] == printed["source"]["step_time_us"] == pytest.approx(520)
    assert shown["coverage"] == printed["coverage"]


@pytest.mark.parametrize("shapes", [True, False])
def test_an_unnamed_gpu_says_what_stays_as_measured(api, work, shapes):
    builder = TraceBuilder(device=None)
    builder.op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]] if shapes else None, types=["float", "float"])
    api.client.get("/")
    job = api.begin(api.put(builder.kernel("ampere_sgemm_64x32", 20, 100, launch=10).to_json()))
    work()
    page = api.client.get(f"/jobs/{job}").text
    assert "isn't recorded: fill it in, or kernels are predicted without what they took there" in page
    assert "→ fill it in below" in page
    assert "--source-gpu" not in page.partition("Warnings")[0]
    assert ("of the step stays as measured</em>" in page) is not shapes


def test_ranks_of_one_job(api, work, make_trace):
    uploads = [api.put(make_trace(rank), f"rank{rank}/trace.json") for rank in (0, 1)]
    job = api.begin(*uploads)
    work()
    diagnosis = api.job(job)["found"]["diagnosis"]
    assert api.job(job)["uploads"] == ["rank0/trace.json", "rank1/trace.json"]
    assert (diagnosis["ranks_read"], diagnosis["world_size"]) == (2, 2)


def test_files_of_the_same_name(api, work, make_trace):
    job = api.begin(*(api.put(make_trace(rank)) for rank in (0, 1)))
    work()
    assert api.job(job)["found"]["diagnosis"]["ranks_read"] == 2


def test_asking_again_replaces_the_report(api, work, make_trace, settings):
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    work()
    before = leftovers(settings)
    api.client.post(f"/api/v1/jobs/{job}/ask", json={"gpu": ["l40s"]})
    assert api.client.get(f"/api/v1/jobs/{job}/report.json").json()["targets"][0]["gpu"] == "t4"
    work()
    assert api.client.get(f"/api/v1/jobs/{job}/report.json").json()["targets"][0]["gpu"] == "l40s"
    assert len(leftovers(settings)) == len(before)


def test_a_deleted_job_leaves_nothing(api, work, make_trace, settings):
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    work()
    assert leftovers(settings) != []
    link = api.job(job)["link"]
    assert api.client.delete(f"/api/v1/jobs/{job}").status_code == 204
    assert leftovers(settings) == []
    for address in (f"/api/v1/jobs/{job}", f"/api/v1/jobs/{job}/report.json", link, f"{link}/report.json"):
        assert api.client.get(address).status_code == 404


def test_deleting_makes_room_on_a_full_disk(api, make_trace, settings, monkeypatch):
    write = Database.write

    def full(self, change):
        if any((settings.data / "files" / "uploads").iterdir()) and change.is_update:
            raise DiskFullError(front_ends.DISK_FULL())
        return write(self, change)

    job = api.begin(api.put(make_trace()))
    monkeypatch.setattr(Database, "write", full)
    assert api.client.delete(f"/api/v1/jobs/{job}").status_code == 204
    assert leftovers(settings) == []
    assert api.client.get("/api/v1/jobs").json() == []


def test_files_that_can_not_be_reached(start, as_api, settings, make_trace, monkeypatch):
    def down(self, *_):
        raise RuntimeError("no route to host")

    api = as_api(start(files="memory://out-of-reach"))
    upload = api.put(make_trace())
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.info", down)
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.put_file", down)
    answers = (
        api.client.put("/api/v1/traces/t", content=b"data"),
        api.client.post("/api/v1/jobs", json={"uploads": [upload]}),
    )
    for answer in answers:
        assert answer.status_code == 503
        assert "can't reach the place" in answer.json()["error"]["message"]
    monkeypatch.undo()
    assert api.job(api.begin(upload))["state"] == "queued"


def test_what_expires_leaves_nothing(start, as_api, settings, make_trace, work, store):
    api = as_api(start(keep_s=0, keep_upload_s=0))
    kept = as_api(start())
    api.client.put("/api/v1/traces/t", content=b"data")
    job = kept.begin(kept.put(make_trace()), ask={"gpu": ["t4"]})
    work()
    store.delete_expired()
    assert kept.job(job)["state"] == "done"
    store.database.write(update(JOBS).values(expires=time.time() - 1))
    assert kept.client.get(f"/api/v1/jobs/{job}").status_code == 404
    store.delete_expired()
    assert leftovers(settings) == []
    for table in METADATA.sorted_tables:
        assert store.database.read(select(table)) == []


def test_files_that_nothing_refers_to_are_swept(store, settings):
    for orphan in ("files/jobs/x/y/report.json", "files/uploads/x", "arriving/x", "scratch/x/report.json"):
        path = settings.data / orphan
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left by a killed process")
    store.delete_expired()
    assert leftovers(settings) == []


def test_one_job_for_one_worker(api, settings, make_trace):
    jobs = {api.begin(api.put(make_trace())) for _ in range(20)}
    claimed = []

    def claim():
        with closing(Store.open(settings)) as own:
            while job := own.jobs.claim(threading.current_thread().name):
                claimed.append(job.id)

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(jobs)


@pytest.fixture
def hasty(settings):
    """A store whose claims are over at once."""
    with closing(Store.open(replace(settings, lease_s=-1))) as store:
        yield store


def test_a_worker_taken_for_dead_changes_nothing(api, hasty, make_trace):
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    first, second = hasty.jobs.claim("first"), hasty.jobs.claim("second")
    assert first.id == second.id == job
    assert not hasty.jobs.renew(first)
    assert not hasty.jobs.finish(first, ["json"])
    assert not hasty.jobs.fail(first, WebError(front_ends.SERVER_BUG()))
    assert hasty.jobs.renew(second)
    assert hasty.jobs.finish(second, ["json"])
    assert api.job(job)["state"] == "done"


def write_report(store, job, name):
    """A worker's report, stored under its claim."""
    path = store.jobs.get_scratch_directory(f"of {name}")
    path.parent.mkdir(exist_ok=True)
    path.write_text(name)
    store.files.keep(path, f"jobs/{job.id}/{job.claim}/report.json")


@pytest.mark.parametrize("formats", [["json"], []])
def test_a_worker_taken_for_dead_leaves_the_others_report(api, hasty, make_trace, formats):
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    first, second = hasty.jobs.claim("first"), hasty.jobs.claim("second")
    write_report(hasty, first, "first")
    write_report(hasty, second, "second")
    assert hasty.jobs.finish(second, ["json"])
    assert not hasty.jobs.finish(first, formats)
    assert not hasty.jobs.set_found(first, {"source": {}})
    assert not hasty.jobs.set_stage(first, "late", 0.5)
    hasty.jobs.note_worker_death("first")
    hasty.jobs.release_worker_job("first")
    hasty.jobs.fail_worker_job("first", WebError(front_ends.SERVER_BUG()))
    assert api.client.get(f"/api/v1/jobs/{job}/report.json").text == "second"
    assert (api.job(job)["state"], api.job(job)["found"]) == ("done", None)
    assert hasty.files.list_names(f"jobs/{job}") == [second.claim]


def test_a_worker_that_lost_its_job_takes_its_report_away(api, store, make_trace, work, monkeypatch):
    job = api.begin(api.put(make_trace()), ask={"gpu": ["t4"]})
    store_reports, others = work_module._store_reports, []

    def lose(*arguments):
        store.database.write(update(JOBS).values(lease=0))
        others.append(store.jobs.claim("second"))
        write_report(store, others[0], "second")
        assert store.jobs.finish(others[0], ["json"])
        return store_reports(*arguments)

    monkeypatch.setattr(work_module, "_store_reports", lose)
    work()
    assert store.files.list_names(f"jobs/{job}") == [others[0].claim]
    assert api.client.get(f"/api/v1/jobs/{job}/report.json").text == "second"


def test_the_servers_deaths_are_not_the_jobs(api, hasty, make_trace):
    """Claims that run out, and workers that end with their server, are tried again and again."""
    job = api.begin(api.put(make_trace()))
    for attempt in range(1, 20):
        claimed = hasty.jobs.claim(f"worker {attempt}")
        assert (claimed.attempts, claimed.deaths) == (attempt, 0)
        if attempt % 2:
            hasty.jobs.release_worker_job(f"worker {attempt}")
            assert api.job(job)["state"] == "queued"


def test_a_job_at_which_a_worker_died_lets_others_pass(api, store, make_trace):
    first, second = (api.begin(api.put(make_trace())) for _ in range(2))
    assert store.jobs.claim("one").id == first
    store.jobs.note_worker_death("one")
    assert store.jobs.claim("two").id == second
    store.jobs.release_worker_job("two")
    assert [store.jobs.claim("three").id, store.jobs.claim("four").id] == [second, first]


def test_asking_anew_forgets_the_deaths(api, store, make_trace):
    job = api.begin(api.put(make_trace()))
    for _ in range(MAX_DEATHS):
        store.jobs.claim("doomed")
        store.jobs.note_worker_death("doomed")
    assert api.client.post(f"/api/v1/jobs/{job}/ask", json={"gpu": ["t4"]}).status_code == 200
    assert (store.jobs.claim("another").deaths, api.job(job)["error"]) == (0, None)


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_job_in_work_takes_no_other_request(api, store, make_trace, state):
    job = api.begin(api.put(make_trace()))
    if state == "running":
        store.jobs.claim("busy")
    answer = api.client.post(f"/api/v1/jobs/{job}/ask", json={"gpu": ["t4"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "job-in-work")


def test_a_job_that_kills_its_workers_ends(api, store, make_trace):
    job = api.begin(api.put(make_trace()))
    for death in range(1, MAX_DEATHS + 1):
        assert api.job(job)["state"] == "queued"
        assert store.jobs.claim(f"doomed {death}").attempts == death
        store.jobs.note_worker_death(f"doomed {death}")
    assert store.jobs.claim("another") is None
    assert api.job(job)["state"] == "failed"
    assert api.job(job)["error"]["code"] == "workers-died"


def test_waiting_jobs_are_limited(start, as_api, make_trace):
    api = as_api(start(max_queued_per_owner=2))
    uploads = [api.put(make_trace()) for _ in range(3)]
    for upload in uploads[:2]:
        api.begin(upload)
    refused = api.client.post("/api/v1/jobs", json={"uploads": uploads[2:]})
    assert refused.status_code == 429
    assert "2 of your jobs" in refused.json()["error"]["message"]


def test_an_upload_belongs_to_one_job(api, make_trace):
    upload = api.put(make_trace())
    api.begin(upload)
    assert api.client.post("/api/v1/jobs", json={"uploads": [upload]}).status_code == 404


def test_a_job_that_can_not_be_noted_leaves_its_upload(api, make_trace, monkeypatch):
    upload = api.put(make_trace())

    def full(*_):
        raise DiskFullError(front_ends.DISK_FULL())

    monkeypatch.setattr(UploadStore, "take", full)
    assert api.client.post("/api/v1/jobs", json={"uploads": [upload]}).status_code == 507
    monkeypatch.undo()
    assert api.begin(upload)


def test_an_incomplete_upload_begins_nothing(api):
    answer = api.client.post("/api/v1/uploads", headers={"Tus-Resumable": "1.0.0", "Upload-Length": "5"})
    upload = answer.headers["location"].rsplit("/", 1)[-1]
    assert api.client.post("/api/v1/jobs", json={"uploads": [upload]}).status_code == 409


def test_a_disk_that_fills_while_reports_are_written(api, work, make_trace, settings, monkeypatch):
    def full(self, path, key):
        raise OSError(errno.ENOSPC, "No space left on device")

    job = api.begin(upload := api.put(make_trace()), ask={"gpu": ["t4"]})
    with monkeypatch.context() as patch:
        patch.setattr("tracekit.web.files.Files.keep", full)
        work()
    assert api.job(job)["error"]["message"] == "The server's disk is full."
    assert leftovers(settings) == [upload]
    api.client.post(f"/api/v1/jobs/{job}/ask", json={"gpu": ["t4"]})
    work()
    assert api.job(job)["state"] == "done"


@pytest.mark.parametrize("url", ["memory://store", "local://{tmp_path}/elsewhere"])
def test_files_at_any_fsspec_url(url, tmp_path):
    from tracekit.web.files import Files

    files = Files(url.format(tmp_path=tmp_path))
    for key in ("uploads/a", "jobs/b/c/report.json"):
        path = tmp_path / "file"
        path.write_text(key)
        files.keep(path, key)
        assert not path.exists()
        assert files.has(key)
        assert files.fetch(key, tmp_path).read_text() == key
        with files.open(key) as file:
            assert file.read() == key.encode()
    assert files.list_names("jobs") == ["b"]
    files.remove("jobs/b")
    files.remove("uploads/a")
    assert files.list_names("jobs") == files.list_names("uploads") == []
    assert not files.has("uploads/a")
    files.remove("uploads/a")


def test_every_directory_is_the_users_own(store, settings):
    assert os.stat(settings.data).st_mode & 0o077 == 0
