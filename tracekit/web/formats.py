"""Formats in which the web page offers a report."""

from collections.abc import Callable
from dataclasses import dataclass

from tracekit.export import perfetto
from tracekit.fleet import FleetReport
from tracekit.prediction import Predictions
from tracekit.render import fleet, html, markdown, tables
from tracekit.render import json as as_json
from tracekit.render.screen import as_text
from tracekit.reporting.model import Report
from tracekit.web.field_labels import name_field

TOP_KERNELS = 100
TOP_RANKS = 10
TIMELINE_FORMAT = "perfetto"


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One kind of file.

    Attributes:
        media_type: Value of ``Content-Type``.
        title: Name on the page.
        file_name: File name of a download.
    """

    media_type: str
    title: str
    file_name: str


@dataclass(frozen=True, slots=True)
class ReportFormat(FileFormat):
    """One format of a report.

    Attributes:
        render: Function that encodes a report, and the predictions that it reports, as bytes.
    """

    render: Callable[[Report, Predictions], bytes]


@dataclass(frozen=True, slots=True)
class FleetFormat(FileFormat):
    """One format of the report of ranks that an engine worked on one by one.

    Attributes:
        render: Function that encodes it.
    """

    render: Callable[[FleetReport], str]


def _render_json(report: Report) -> str:
    return as_json.dump_prediction(report) if report.targets else as_json.dump_measured(report, TOP_KERNELS)


def _make_format(media_type: str, render: Callable[[Report], bytes | str], title: str, suffix: str) -> ReportFormat:
    def rendered(report: Report, predicted: Predictions) -> bytes:
        content = render(report)
        return content.encode() if isinstance(content, str) else content

    return ReportFormat(media_type, title, f"report.{suffix}", rendered)


XLSX_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
FORMATS = {
    "html": _make_format(
        "text/html; charset=utf-8",
        lambda report: html.render_page(report, name_field),
        "HTML",
        "html",
    ),
    "xlsx": _make_format(XLSX_MEDIA_TYPE, tables.render_workbook, "Spreadsheet", "xlsx"),
    "json": _make_format("application/json", _render_json, "JSON", "json"),
    "md": _make_format("text/markdown; charset=utf-8", markdown.render_report, "Markdown", "md"),
    "csv": _make_format("text/csv; charset=utf-8", tables.encode_csv, "CSV", "csv"),
    "parquet": _make_format("application/vnd.apache.parquet", tables.encode_parquet, "Parquet", "parquet"),
    TIMELINE_FORMAT: ReportFormat(
        "application/gzip",
        "Timeline",
        "timeline.json.gz",
        lambda report, predicted: perfetto.render_timeline(predicted.run, predicted.targets),
    ),
}
FLEET_FORMATS = {
    "html": FleetFormat(
        "text/html; charset=utf-8", "HTML", "report.html", lambda found: fleet.render_fleet_page(found, TOP_RANKS)
    ),
    "json": FleetFormat("application/json", "JSON", "report.json", fleet.dump_fleet),
    "txt": FleetFormat(
        "text/plain; charset=utf-8", "Text", "report.txt", lambda found: as_text(fleet.render_fleet(found, TOP_RANKS))
    ),
}
FILE_FORMATS: dict[str, FileFormat] = {**FLEET_FORMATS, **FORMATS}
