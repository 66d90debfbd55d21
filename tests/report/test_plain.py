"""A report is plain data: it equals its copy read back from JSON, and every form is made from that copy."""

import dataclasses
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit as tk
from tests.conftest import SAMPLES
from tests.jobs import gradient_step, job
from tracekit.errors import TraceError
from tracekit.messages import Message
from tracekit.messages.predictions import GPU_ALSO_REQUESTED
from tracekit.render import html, markdown, tables
from tracekit.render import json as as_json
from tracekit.reporting import Report
from tracekit.reporting.plain import decode_plain, encode_plain
from tracekit.testing import TraceBuilder


def on_a_cluster():
    """A prediction with layout, pipeline, price and what-if edit, and a target that is refused."""
    trace = tk.load(SAMPLES / "synthetic_transformer_train.json.gz")
    clusters = ["2x8xh100-sxm@ndr400", "4xa100-sxm-80gb"]
    layout = {"dp": 8, "pp": 2}
    edit = ["scale(family=gemm, 0.5)"]
    return tk.report(tk.predict(trace, cluster=clusters, price={"h100-sxm": 2.5}, what_if=edit, **layout))


REPORTS = {
    "measured": lambda: tk.report(tk.load(SAMPLES / "synthetic_transformer_inference.json.gz")),
    "predicted": lambda: tk.report(
        tk.predict(tk.load(SAMPLES / "synthetic_transformer_train.json.gz"), gpu=["l40s", "mi300x"])
    ),
    "cluster": on_a_cluster,
    "ranks": lambda: tk.report(job(gradient_step(100, 300), gradient_step(150, 300))),
    "nothing known": lambda: tk.report(TraceBuilder().kernel("odd", 20, 100).load()),
}


@pytest.fixture(scope="module", params=REPORTS)
def report(request):
    return REPORTS[request.param]()


def test_a_report_equals_its_copy_from_json(report):
    assert type(report).from_json(report.to_json()) == report


def test_a_report_holds_numbers_and_strings_only(report):
    assert {type(leaf).__module__ for leaf in leaves(report)} == {"builtins"}


def leaves(value):
    if isinstance(value, Message):
        value = value.values
    if dataclasses.is_dataclass(value):
        value = [getattr(value, one.name) for one in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def test_all_forms_are_made_from_the_copy(report):
    copy = Report.from_json(report.to_json())
    assert html.render_page(copy) == html.render_page(report)
    assert markdown.render_report(copy) == markdown.render_report(report)
    assert tables.encode_csv(copy) == tables.encode_csv(report)
    assert as_json.dump_measured(copy, 10) == as_json.dump_measured(report, 10)
    assert as_json.dump_prediction(copy) == as_json.dump_prediction(report)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b'{"source": 1}', b'{"odd": 1}', b"\xff"])
def test_what_is_no_report_is_refused(content):
    with pytest.raises(TraceError) as refused:
        Report.from_json(content)
    assert refused.value.code == "not-a-report"


@dataclasses.dataclass(frozen=True)
class Inner:
    """Every kind of field that a report has."""

    name: str
    share: float | None
    pairs: tuple[tuple[str, float], ...]
    sizes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Outer:
    """A data class that holds others."""

    first: Inner | None
    others: tuple[Inner, ...]
    named: Mapping[str, Inner]
    notes: tuple[Message, ...]


finite = st.floats(allow_nan=False, allow_infinity=False)
inner = st.builds(
    Inner,
    st.text(),
    st.none() | finite,
    st.lists(st.tuples(st.text(), finite)).map(tuple),
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple),
)
notes = st.builds(lambda gpu, target: GPU_ALSO_REQUESTED(gpu=gpu, target=target), st.text(), st.text())
outer = st.builds(
    Outer,
    st.none() | inner,
    st.lists(inner, max_size=3).map(tuple),
    st.dictionaries(st.text(), inner, max_size=3),
    st.lists(notes, max_size=2).map(tuple),
)


@settings(deadline=None, max_examples=50)
@given(outer)
def test_plain_data_equals_its_copy(data):
    assert decode_plain(encode_plain(data), Outer) == data
