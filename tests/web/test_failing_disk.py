"""Uploads and jobs on a disk that fails at each operation in turn: nothing half written is taken for whole, or lost."""

import errno

import pytest

from tests.failing_disk import fail_in_turn, failing_disk

ASK = {"gpu": ["h100-sxm"]}
TUS = {"Tus-Resumable": "1.0.0"}
TRIED = 3
"""Operations of a job that fail, of some dozens; a job takes a second."""


def list_files(settings):
    """The stored files; the data base's own aren't Python's to write."""
    folders = (settings.data / "arriving", settings.data / "files")
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def test_an_upload_is_whole_or_refused(api, settings, make_trace):
    data, answers = make_trace(), []

    def put():
        answers.append(api.client.put("/api/v1/traces/trace.json", content=data))

    def delete_stored():
        for answer in answers:
            if answer.status_code == 201:
                place = f"/api/v1/uploads/{answer.json()['id']}"
                assert api.client.head(place, headers=TUS).headers["Upload-Offset"] == str(len(data))
                assert api.client.delete(place, headers=TUS).status_code == 204
        answers.clear()

    def check(operation, error):
        (answer,) = answers
        assert answer.status_code == 201 or (answer.status_code >= 500 and answer.json()["error"]["message"]), operation
        delete_stored()
        left = list_files(settings)
        # On a disk that stays broken nothing can be removed either; what is left expires and tells its own size.
        assert error == errno.ENOSPC or left == [], operation
        for place in {f"/api/v1/uploads/{path.stem}" for path in left}:
            told = api.client.head(place, headers=TUS)
            assert told.status_code == 404 or int(told.headers["Upload-Offset"]) <= len(data), operation
            assert api.client.delete(place, headers=TUS).status_code in (204, 404)

    assert fail_in_turn(settings.data, delete_stored, put, check)
    put()
    assert answers[-1].status_code == 201


@pytest.mark.heavy
def test_a_job_is_done_whole_or_says_why(api, settings, work, make_trace):
    def begin():
        return api.begin(api.put(make_trace()), ask=ASK)

    job = begin()
    with failing_disk(settings.data) as disk:
        work()
    assert api.job(job)["state"] == "done"
    assert disk.operations
    every = 1 + len(disk.operations) // TRIED
    for fail_at in (*range(0, len(disk.operations), every), len(disk.operations) - 1):
        operation, job = disk.operations[fail_at], begin()
        with failing_disk(settings.data, fail_at, errno.ENOSPC, for_good=True):
            work()
        told = api.job(job)
        assert told["state"] in ("done", "failed"), operation
        if told["state"] == "failed":
            assert told["error"]["message"], operation
        else:
            assert api.client.get(told["reports"]["json"]).status_code == 200, operation
    job = begin()
    work()
    assert api.job(job)["state"] == "done"
