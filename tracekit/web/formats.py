"""Formats in which the web page offers a report."""

from collections.abc import Callable
from dataclasses import dataclass

from tracekit.export import perfetto
from tracekit.prediction import Predictions
from tracekit.render import html, markdown, table_files, xlsx
from tracekit.render import json as as_json
from tracekit.reporting.model import Report
from tracekit.web.field_labels import name_field

TOP_KERNELS = 100
TIMELINE_FORMAT = "perfetto"


@dataclass(frozen=True, slots=True)
class ReportFormat:
    """One format of a report.

    Attributes:
        media_type: Value of ``Content-Type``.
        render: Function that encodes a report, and the predictions that it reports, as bytes.
        title: Name on the page.
        file_name: File name of a download.
    """

    media_type: str
    render: Callable[[Report, Predictions], bytes]
    title: str
    file_name: str


def _render_json(report: Report) -> str:
    return as_json.dump_prediction(report) if report.targets else as_json.dump_measured(report, TOP_KERNELS)


def _make_format(media_type: str, render: Callable[[Report], bytes | str], title: str, suffix: str) -> ReportFormat:
    def rendered(report: Report, predicted: Predictions) -> bytes:
        content = render(report)
        return content.encode() if isinstance(content, str) else content

    return ReportFormat(media_type, rendered, title, f"report.{suffix}")


XLSX_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
FORMATS = {
    "html": _make_format(
        "text/html; charset=utf-8",
        lambda report: html.render_page(report, name_field),
        "HTML",
        "html",
    ),
    "xlsx": _make_format(XLSX_MEDIA_TYPE, xlsx.render_workbook, "Spreadsheet", "xlsx"),
    "json": _make_format("application/json", _render_json, "JSON", "json"),
    "md": _make_format("text/markdown; charset=utf-8", markdown.render_report, "Markdown", "md"),
    "csv": _make_format("text/csv; charset=utf-8", table_files.encode_csv, "CSV", "csv"),
    "parquet": _make_format("application/vnd.apache.parquet", table_files.encode_parquet, "Parquet", "parquet"),
    TIMELINE_FORMAT: ReportFormat(
        "application/gzip",
        lambda report, predicted: perfetto.render_timeline(predicted.run, predicted.targets),
        "Timeline",
        "timeline.json.gz",
    ),
}
