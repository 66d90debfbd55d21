"""Every form has every figure: those that are declared for people, in all forms of a measured report."""

import html as entities
import io
import json
import re
from typing import Annotated

import openpyxl
import pytest

import tracekit as tk
from tests.conftest import SAMPLES
from tests.jobs import gradient_step, job
from tracekit.format import format_duration
from tracekit.prediction.model import PredictedStep
from tracekit.render import html, markdown, tables, terminal
from tracekit.render import json as as_json
from tracekit.render.screen import as_text
from tracekit.reporting import build_prediction_report, build_report
from tracekit.reporting.columns import Column
from tracekit.reporting.step_row import StepRow
from tracekit.reporting.tables import (
    COLLECTIVES,
    COPIES,
    CRITICAL,
    IDLE,
    KERNEL_TIMES,
    LAWS,
    MODULES,
    OVER_BOUND,
    PARTS,
    PHASES,
    RANKS,
    STEP,
    STEPS,
    STREAMS,
    TABLES,
    build_answer_frame,
    list_rows,
)
from tracekit.run import prepare_run

SECTIONS = {
    KERNEL_TIMES: "kernels",
    PARTS: "parts",
    PHASES: "phases",
    MODULES: "modules",
    IDLE: "idle",
    STREAMS: "streams",
    CRITICAL: "critical_path",
    COLLECTIVES: "communication",
    COPIES: "copies",
    RANKS: "ranks",
    STEPS: "steps",
    LAWS: "accuracy",
}
"""Keys of the tables' rows in the JSON of a measured report."""
WIDE = (STEPS, LAWS, PARTS, OVER_BOUND, STREAMS)
LEFT_OUT = {"screen": (*WIDE, COPIES), "markdown": WIDE, "page": (STEPS, PARTS, STREAMS, LAWS)}
"""Tables that a form goes without or draws: `-v` has copies and streams, `info` the kernels over their bound.

The page has the laws' errors where there are targets.
"""
SHORTENED = {
    KERNEL_TIMES: ("name", "op", "shape"),
    MODULES: ("path", "modules", "backward_us", "own_us"),
    IDLE: ("meaning", "line"),
}
"""Names that forms cut, and figures that they leave out where they are none."""


@pytest.fixture(scope="module")
def reports():
    ranks = build_report(prepare_run(job(gradient_step(150, 412), gradient_step(350, 412, clock=30))), ())
    return ranks, tk.report(tk.load(SAMPLES / "synthetic_transformer_train.json.gz"))


@pytest.fixture(scope="module")
def predicted():
    found = tk.predict(tk.load(SAMPLES / "synthetic_transformer_train.json.gz"), gpu="l40s")
    return build_prediction_report(found)


def read_forms(report):
    """The text of each form."""
    page = re.sub(r"<(script|style)\b.*?</\1>", "", html.render_page(report), flags=re.DOTALL)
    return {
        "screen": as_text(terminal.render_measured(report, 20)),
        "markdown": markdown.render_report(report).replace("\\", ""),
        "page": entities.unescape(re.sub(r"<[^>]+>", " ", page)),
    }


def find_missing(report, table, forms):
    """Yield the figures of the first row that a form lacks; one phase alone isn't worth a line."""
    rows = list(list_rows(report, table))
    if not rows or (table is PHASES and len(rows) == 1):
        return
    row = rows[0][0] if isinstance(rows[0], tuple) else rows[0]
    shown = {name: table.show(name, getattr(row, name)) for name in table.shown if name not in SHORTENED.get(table, ())}
    for form, text in forms.items():
        if table not in LEFT_OUT[form]:
            absent = [name for name, figure in shown.items() if figure not in ("–", "0") and figure not in text]
            yield from ((form, table.name, name) for name in absent)


def test_each_figure_for_people_stands_in_each_form(reports):
    told = [(report, read_forms(report)) for report in reports]
    assert [one for report, forms in told for table in SECTIONS for one in find_missing(report, table, forms)] == []


def test_each_figure_is_a_key_of_json(reports):
    for report in reports:
        told = json.loads(as_json.dump_measured(report, 20))
        for table, key in SECTIONS.items():
            rows = told[key]["ops"] if table is CRITICAL else told[key]
            fields = {name for name in table.columns if name not in ("tile_m", "tile_n", "split_k", "waves")}
            fields -= {"cause", "meaning", "time_us"} if table is STREAMS else set()
            assert all(fields <= {*row} for row in rows), key


def test_each_figure_is_a_column_of_the_spreadsheet(reports):
    for report in reports:
        book = openpyxl.load_workbook(io.BytesIO(tables.render_workbook(report)))
        for table in TABLES:
            if any(True for _ in list_rows(report, table)):
                first = [cell.value for cell in book[table.name][1]]
                assert set(table.schema.dtypes) <= {*first}


@pytest.fixture
def _ends_us(monkeypatch):
    """A figure of a step that nothing else declares."""

    def read(row: StepRow) -> Annotated[float, Column(heading="from the start")]:
        """Time until the step's end."""
        return 1234.5 + row.of.step.step_time_us if isinstance(row.of, PredictedStep) else 77.0

    def forget():
        for kept in ("_fields", "schema", "columns", "shown"):
            STEP.__dict__.pop(kept, None)

    monkeypatch.setattr(StepRow, "ends_us", property(read), raising=False)
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.mark.usefixtures("_ends_us")
def test_a_figure_of_a_step_is_declared_once(predicted):
    target = predicted.targets[0]
    ends_us = 1234.5 + target.step.step_time_us
    assert json.loads(as_json.dump_prediction(predicted))["targets"][0]["ends_us"] == ends_us
    assert build_answer_frame(predicted)["ends_us"].to_list() == [77.0, ends_us]
    page = entities.unescape(re.sub(r"<[^>]+>", " ", html.render_page(predicted)))
    for text in (as_text(terminal.render_predicted(predicted, 5)), markdown.render_report(predicted), page):
        assert "from the start" in text
        assert format_duration(ends_us) in text


def test_each_column_says_what_it_means():
    for table in TABLES:
        for name, column in table.columns.items():
            assert column.meaning.endswith("."), (table.name, name)
        headings = [column.heading for column in table.shown.values()]
        assert len(headings) == len({*headings})
