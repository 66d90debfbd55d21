"""The stored forms of a report: what is shared, and beside it what its owner sees where that is more.

:mod:`tracekit.render.private_details` has the rule of what a shared report leaves out.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
from markupsafe import Markup

from tracekit.errors import TraceError
from tracekit.export import perfetto
from tracekit.fleet import FleetReport
from tracekit.prediction import Predictions
from tracekit.render import fleet, html, markdown, tables
from tracekit.render import json as as_json
from tracekit.render.fleet import render_fleet_body
from tracekit.render.html import ReportBody, render_report_body
from tracekit.reporting.model import Report
from tracekit.web.ask import name_field
from tracekit.web.jobs import WebJob
from tracekit.web.store import Store

TOP_KERNELS = 100
TOP_RANKS = 10
TIMELINE_FORMAT = "perfetto"


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One kind of file."""

    media_type: str
    title: str
    file_name: str


@dataclass(frozen=True, slots=True)
class ReportFormat(FileFormat):
    """One format of a report."""

    render: Callable[[Report, Predictions], bytes]


@dataclass(frozen=True, slots=True)
class FleetFormat(FileFormat):
    """One format of the report of ranks that an engine worked on one by one."""

    render: Callable[[FleetReport], bytes]


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


def _make_fleet_format(suffix: str, media_type: str, title: str) -> FleetFormat:
    return FleetFormat(
        media_type, title, f"report.{suffix}", lambda found: fleet.encode_fleet(found, suffix, TOP_RANKS)
    )


FLEET_FORMATS = {
    suffix: _make_fleet_format(suffix, FORMATS[suffix].media_type, FORMATS[suffix].title)
    for suffix in ("html", "xlsx", "json", "md", "csv", "parquet")
} | {"txt": _make_fleet_format("txt", "text/plain; charset=utf-8", "Text")}
FILE_FORMATS: dict[str, FileFormat] = {**FLEET_FORMATS, **FORMATS}


BODY_FORM = "body"
"""The form that the site's own pages show."""


def name_report_file(form: str, *, with_details: bool) -> str:
    """Return the name of a stored form, with or without prices and other details."""
    return f"{'details' if with_details else 'report'}.{form}"


def has_details(store: Store, job: WebJob) -> bool:
    """Return whether a job's report holds details that are not shared."""
    return store.files.has(_build_key(job, BODY_FORM, with_details=True))


def open_report(store: Store, job: WebJob, form: str, *, with_details: bool) -> BinaryIO:
    """Open a form of a job's report; with details where there are some and they are asked for.

    Raises:
        FileNotFoundError: The report doesn't exist in that form.
    """
    if with_details:
        with suppress(FileNotFoundError):
            return store.files.open(_build_key(job, form, with_details=True))
    return store.files.open(_build_key(job, form, with_details=False))


def _build_key(job: WebJob, form: str, *, with_details: bool) -> str:
    return f"jobs/{job.id}/{job.output}/{name_report_file(form, with_details=with_details)}"


REPORT_FILE = "report.data"
"""File beside a report's formats that holds :meth:`Report.to_json`."""


def load_report(store: Store, job: WebJob) -> Report | None:
    """Load a job's report; ``None`` if there is none, or another version of tracekit wrote it."""
    try:
        with store.files.open(f"jobs/{job.id}/{job.output}/{REPORT_FILE}") as file:
            return Report.from_json(file.read())
    except (FileNotFoundError, TraceError):
        return None


def encode_body(report: Report | FleetReport) -> bytes:
    """Render a report's body, and encode it with its script and its style for :func:`load_body`."""
    if isinstance(report, FleetReport):
        body = render_fleet_body(report, TOP_RANKS, name_field)
    else:
        body = render_report_body(report, name_field)
    return msgspec.json.encode({name: str(getattr(body, name)) for name in ("content", "style", "script")})


def load_body(store: Store, job: WebJob, *, with_details: bool) -> ReportBody | None:
    """Load the body of a job's report; ``None`` if there is no report, or only its forms."""
    if not job.formats:
        return None
    try:
        with open_report(store, job, BODY_FORM, with_details=with_details) as file:
            parts = msgspec.json.decode(file.read(), type=dict[str, str])
    except FileNotFoundError:
        return None
    return ReportBody(**{name: Markup(part) for name, part in parts.items()})
