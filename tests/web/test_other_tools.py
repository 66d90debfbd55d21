"""Files of other tools than PyTorch's profiler, uploaded."""

import re
from pathlib import Path

from tests.ingest.formats import test_rocpd
from tests.ingest.formats.nsight_files import write_database
from tracekit import web
from tracekit.ingest import source


def test_a_database_is_a_job_like_any_other(api, work, tmp_path):
    path = write_database(tmp_path / "100_results.db", test_rocpd.build_tables())
    job = api.begin(api.put(path.read_bytes(), path.name), ask={"gpu": ["h100-sxm"]})
    work()
    done = api.job(job)
    assert done["state"] == "done"
    assert done["found"]["diagnosis"]["checks"][0]["name"] == "format"


def test_the_page_sends_what_a_folder_is_searched_for():
    script = Path(web.__file__).with_name("static").joinpath("upload.js").read_text()
    assert re.search(r"const TRACE = /(.+)/i;", script)[1] == source._TRACE_NAME.pattern
