"""A short run of what :mod:`tests.web.long_run` runs for hours; and that it notices what goes wrong."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.web.chaos import Use, fill_disk
from tests.web.long_run import LongRun, Ticket, list_logged_bugs, run_for, summarize


@pytest.mark.heavy
def test_a_round_of_all_faults_loses_nothing(tmp_path):
    """In half a minute on an idle machine."""
    run, summary = run_for(tmp_path, 0.2, seed=5, pauses_s=(1.0, 3.0))
    assert summary["wrong"] == []
    assert {"worker killed", "server killed", "clock jumps"} <= set(summary["faults"])
    assert sum(run.done.values()) > 5
    assert not run.at_work


def make_run(*jobs):
    """A run whose servers know these jobs and nothing else."""
    known = {job["id"]: job for job in jobs}

    def request(method, path, **_):
        job = known.get(path.rsplit("/", 1)[-1])
        return SimpleNamespace(status_code=404 if job is None else 200, json=lambda: job, text="", is_success=True)

    page = SimpleNamespace(raise_for_status=lambda: None)
    client = SimpleNamespace(get=lambda _: page, cookies={}, request=request)
    server = SimpleNamespace(client=client, process=SimpleNamespace(pid=1))
    chaos = SimpleNamespace(steady=server, servers=[server], faults=Counter())
    return LongRun(chaos, random.Random(1), {})


def make_job(number, state, code=None):
    error = code and {"code": code}
    return {"id": number, "state": state, "stage": "", "error": error, "parts": [], "reports": {}, "link": ""}


def test_what_goes_wrong_is_noticed(tmp_path):
    run = make_run(make_job("1", "failed", "server-bug"), make_job("2", "running"), make_job("3", "failed", "x"))
    run.at_work = [
        Ticket("1", "whole", "done"),
        Ticket("2", "whole", "done", begun=-1e9),
        Ticket("3", "damaged", "failed"),
        Ticket("4", "whole", "done"),
    ]
    run.reports["damaged"] = "y"
    run.check_all()
    said = ["1 is failed", "2 hangs", "3 tells something else", "4 is lost"]
    assert [text for text, wanted in zip(run.wrong, said, strict=True) if wanted in text] == run.wrong
    assert run.at_work == []


def test_a_job_is_deleted_only_once_its_parts_have_ended(monkeypatch):
    monkeypatch.setattr("tests.web.long_run.MOST_KEPT", 0)
    run, deleted = make_run(), []
    monkeypatch.setattr(run, "delete", lambda ticket: deleted.append(ticket.job))
    run.kept = [Ticket("1", "split", "split"), Ticket("2", "examined", "found"), Ticket("3", "whole", "done")]
    run.at_work = [Ticket("5", "part", "done", "1"), Ticket("2", "whole", "done")]
    run.delete_some()
    assert (deleted, [one.job for one in run.kept]) == (["3"], ["1", "2"])


def test_memory_that_grows_is_noticed():
    """By the medians of the second and the last quarter: 137 and 187 MiB."""
    run = make_run()
    run.uses = [Use(1, [*range(100 << 20, 200 << 20, 1 << 20)], [5] * 100), Use(2, [1 << 30] * 100, [5] * 100)]
    assert summarize(run)["wrong"] == ["the server's memory grows from 144 to 196 MB"]


def test_a_traceback_in_the_log_is_noticed(tmp_path):
    (tmp_path / "log").write_text(
        'GET / 200\n  File "a.py", line 1, in f\n    f()\n  File "b.py"\n    g()\n KeyError\nGET\n'
    )
    assert list_logged_bugs(tmp_path / "log") == ['logged: File "b.py" | g() | KeyError']


def test_a_full_disk_takes_nothing_more(monkeypatch, tmp_path):
    """Down to its last byte."""
    monkeypatch.setattr("tests.web.chaos.BLOCK_BYTES", 8)
    room = [20]

    class File:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, data):
            if len(data) > room[0]:
                raise OSError("full")
            room[0] -= len(data)
            return len(data)

    fill_disk(SimpleNamespace(open=lambda *_, **__: File()))
    assert room == [0]
