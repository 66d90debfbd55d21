"""Each format in which the page offers a report is what it says it is."""

import gzip
import io
import json
import zipfile
from functools import cache

import polars as pl
import pytest

import tracekit as tk
from tracekit.prediction import Predictions
from tracekit.reporting.model import Report
from tracekit.testing import TraceBuilder
from tracekit.web.reports import FORMATS


@cache
def reported(*gpus: str) -> tuple[Report, Predictions]:
    trace = TraceBuilder().op("aten::mm", 0, 30).kernel("gemm", 20, 100, launch=10).load()
    predictions = tk.predict(trace, gpu=[*gpus])
    return tk.report(predictions), predictions


def render(name: str, *gpus: str) -> bytes:
    return FORMATS[name].render(*reported(*gpus))


def test_texts():
    assert render("html", "t4").lstrip().lower().startswith(b"<!doctype html>")
    assert render("md", "t4").startswith(b"# ")
    assert [target["gpu"] for target in json.loads(render("json", "t4"))["targets"]] == ["t4"]


def test_tables():
    rows = pl.read_csv(io.BytesIO(render("csv", "t4")))
    same = pl.read_parquet(io.BytesIO(render("parquet", "t4")))
    assert rows.columns == same.columns
    assert rows.height == same.height > 0
    assert "xl/workbook.xml" in zipfile.ZipFile(io.BytesIO(render("xlsx", "t4"))).namelist()


def test_timeline():
    events = json.loads(gzip.decompress(render("perfetto", "t4")))["traceEvents"]
    assert "gemm" in {event["name"] for event in events}


@pytest.mark.parametrize(
    ("name", "media_type", "file_name"),
    [
        ("html", "text/html; charset=utf-8", "report.html"),
        ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "report.xlsx"),
        ("json", "application/json", "report.json"),
        ("md", "text/markdown; charset=utf-8", "report.md"),
        ("csv", "text/csv; charset=utf-8", "report.csv"),
        ("parquet", "application/vnd.apache.parquet", "report.parquet"),
        ("perfetto", "application/gzip", "report.timeline.json.gz"),
    ],
)
def test_types_and_names(name, media_type, file_name):
    assert FORMATS[name].media_type == media_type
    assert FORMATS[name].file_name.endswith(file_name.removeprefix("report."))
