"""Options of any type, as Python's callers and the JSON of the web page give them: a request is made or refused.

Hypothesis makes the values: they are no bytes, and a request is made of thousands in a second.
"""

import json
from typing import Any

from hypothesis import strategies as st

from predictors import PredictorError
from tests.fuzz.documents import dump_case, values
from tests.fuzz.target import Target
from tests.fuzz.targets.options import OPTIONS
from tracekit.errors import TracekitError
from tracekit.request import ExportRequest, PredictRequest, ReportRequest, Request, SweepRequest, list_fields

REQUESTS: dict[str, type[Request]] = {
    one.__name__: one for one in (ExportRequest, PredictRequest, ReportRequest, SweepRequest)
}
words = st.one_of(values, *OPTIONS.values())
mappings = st.dictionaries(st.one_of(st.sampled_from(["h100-sxm", "t4", "x"]), st.text(max_size=5)), values, max_size=2)
given = st.one_of(words, st.lists(words, max_size=3), mappings)


def make_case(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy of requests of a class."""
    names = st.sampled_from([field.name for field in list_fields(REQUESTS[name])])
    options = st.dictionaries(names, given, min_size=1, max_size=3).map(lambda made: {"gpu": "t4"} | made)
    return st.builds(lambda made: {"request": name, "options": made}, options)


def check(case: dict[str, Any]) -> None:
    """Make a request; write it as JSON and make it again."""
    kind = REQUESTS[case["request"]]
    known = {field.name for field in list_fields(kind)}
    try:
        request = kind(**{name: value for name, value in case["options"].items() if name in known})
    except (TracekitError, PredictorError):
        return
    assert kind(**json.loads(json.dumps(request.to_dict()))).to_dict() == request.to_dict()


TARGET = Target(
    name="requests",
    cases=st.sampled_from([*REQUESTS]).flatmap(make_case),
    check=check,
    load=json.loads,
    dump=dump_case,
    suffix=".json",
    examples=200,
)
