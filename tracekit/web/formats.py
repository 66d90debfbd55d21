"""The forms in which a report is given."""

from collections.abc import Callable
from dataclasses import dataclass

from tracekit.render import html, markdown, perfetto, tables, xlsx
from tracekit.render import json as as_json
from tracekit.replay.run import Run
from tracekit.reporting.model import Report
from tracekit.web.words import worded

TOP_KERNELS = 100
TIMELINE = "perfetto"


@dataclass(frozen=True, slots=True)
class Format:
    """One form of a report.

    Attributes:
        media_type: As in ``Content-Type``.
        render: The bytes, of a report and the run that it is about.
        title: What a page calls it.
        file_name: What it is called when it is kept.
    """

    media_type: str
    render: Callable[[Report, Run], bytes]
    title: str
    file_name: str


def _json(report: Report) -> str:
    return as_json.predicted(report) if report.targets else as_json.measured(report, TOP_KERNELS)


def _of_report(media_type: str, render: Callable[[Report], bytes | str], title: str, suffix: str) -> Format:
    def rendered(report: Report, run: Run) -> bytes:
        content = render(report)
        return content.encode() if isinstance(content, str) else content

    return Format(media_type, rendered, title, f"report.{suffix}")


SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
FORMATS = {
    "html": _of_report("text/html; charset=utf-8", lambda report: html.page(worded(report)), "HTML", "html"),
    "xlsx": _of_report(SHEET, xlsx.workbook, "Spreadsheet", "xlsx"),
    "json": _of_report("application/json", _json, "JSON", "json"),
    "md": _of_report("text/markdown; charset=utf-8", markdown.document, "Markdown", "md"),
    "csv": _of_report("text/csv; charset=utf-8", tables.csv, "CSV", "csv"),
    "parquet": _of_report("application/vnd.apache.parquet", tables.parquet, "Parquet", "parquet"),
    TIMELINE: Format(
        "application/gzip",
        lambda report, run: perfetto.document(run, report.targets),
        "Timeline",
        "timeline.json.gz",
    ),
}
