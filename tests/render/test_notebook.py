"""The report in a notebook."""

import os
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import tracekit as tk
from tests.conftest import SAMPLES
from tests.render.conftest import NASTY
from tracekit.errors import TracekitError

NOTEBOOK = Path(__file__).parents[2] / "docs" / "report.ipynb"


def test_the_card_is_small_and_says_the_answer(report, nasty):
    card = report._repr_html_()
    assert len(card) < 20_000
    assert f"{report.targets[0].speedup:.2f}×" in card
    assert "<script" not in card
    assert NASTY not in nasty._repr_html_()


def test_the_card_says_how_many_gpus_it_leaves_out(report):
    assert "more:" not in report._repr_html_()
    many = replace(report, targets=report.targets * 3)
    assert "and 2 more:" in many._repr_html_()


@pytest.mark.parametrize("name", ["answer", "time", "roofline", "speeds", "steps", "queues", "copies"])
def test_every_chart_is_a_figure(report, nasty, name):
    assert report.figure(name).data
    assert nasty.figure(name).layout
    with pytest.raises(TracekitError, match="roofline"):
        report.figure("pie")


def test_what_a_session_shows_of_them_is_a_line():
    trace = tk.load(SAMPLES / "synthetic_transformer_inference.json.gz")
    predictions = tk.predict(trace, gpu=["h100-sxm", "l40s"])
    swept = tk.sweep(trace, cluster="8xh100-sxm")
    shown = [repr(one) for one in (predictions["l40s"], tk.report(predictions), tk.compare(trace, trace), swept)]
    assert all(len(text) < 200 and "\n" not in text for text in shown)
    assert "l40s" in shown[0]
    assert "90 % interval" in shown[0]


def test_predictions_make_a_report():
    predictions = tk.predict(tk.load(SAMPLES / "synthetic_transformer_inference.json.gz"), gpu="l40s")
    report = tk.report(predictions)
    assert [target.gpu for target in report.targets] == ["l40s"]
    assert report.to_html().startswith("<!doctype html>")


@pytest.mark.heavy
def test_the_notebook_runs(tmp_path, monkeypatch):
    """The worked example, as it stands in the documentation."""
    monkeypatch.chdir(NOTEBOOK.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(NOTEBOOK.parents[1]), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    ran = NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [output for cell in ran.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in outputs)
