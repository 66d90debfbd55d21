"""The forms in which a report is given."""

from collections.abc import Callable
from dataclasses import dataclass

from tracekit.render import html, markdown, tables, xlsx
from tracekit.render import json as as_json
from tracekit.reporting.model import Report

TOP_KERNELS = 100


@dataclass(frozen=True, slots=True)
class Format:
    """One form of a report.

    Attributes:
        media_type: As in ``Content-Type``.
        render: The report's bytes.
        title: What a page calls it.
    """

    media_type: str
    render: Callable[[Report], bytes]
    title: str


def _json(report: Report) -> bytes:
    return (as_json.predicted(report) if report.targets else as_json.measured(report, TOP_KERNELS)).encode()


FORMATS = {
    "html": Format("text/html; charset=utf-8", lambda report: html.page(report).encode(), "HTML"),
    "xlsx": Format("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", xlsx.workbook, "Spreadsheet"),
    "json": Format("application/json", _json, "JSON"),
    "md": Format("text/markdown; charset=utf-8", lambda report: markdown.document(report).encode(), "Markdown"),
    "csv": Format("text/csv; charset=utf-8", lambda report: tables.csv(report).encode(), "CSV"),
    "parquet": Format("application/vnd.apache.parquet", tables.parquet, "Parquet"),
}
