"""Endings of traces' names: what a format reads is found in folders, taken by the server, and named to people."""

import re
from pathlib import Path

import pytest

from tracekit import web
from tracekit.ingest import source
from tracekit.ingest.formats import FORMATS
from tracekit.messages.traces import TRACES_NOT_FOUND

ENDINGS = [ending.replace("\\", "") for ending in re.search(r"\((.*)\)", source._FORMATS)[1].split("|")]
ALIASES = ("perfetto-trace",)
"""Endings that aren't named to people, as another of the same format is."""
WEB = Path(web.__file__).parent
PLACES = {
    "message": TRACES_NOT_FOUND.hint,
    "script": (WEB / "static" / "upload.js").read_text(),
    "page": (WEB / "templates" / "home.html").read_text(),
}
TRACE = re.compile(re.search(r"const TRACE = /(.*)/i;", PLACES["script"])[1], re.IGNORECASE)


@pytest.mark.parametrize("form", [form for form in FORMATS if form.name], ids=lambda form: form.module)
def test_names_of_each_format_end_in_a_known_ending(form):
    mine = [ending for ending in ENDINGS if re.search(form.name, f"trace.{ending}")]
    alternatives = form.name.count("|") + 1
    assert len(mine) == alternatives


@pytest.mark.parametrize("ending", ENDINGS)
def test_each_ending_is_found_and_taken(ending):
    for name in (f"trace.{ending}", f"trace.{ending}.gz", f"TRACE.{ending.upper()}.zst"):
        assert source._TRACE_NAME.search(name)
        assert source._ARCHIVED_NAME.search(name)
        assert TRACE.search(name)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ending", [ending for ending in ENDINGS if ending not in ALIASES])
def test_each_ending_is_named(ending, place):
    assert f".{ending}" in re.sub(r"const TRACE = .*", "", PLACES[place])
