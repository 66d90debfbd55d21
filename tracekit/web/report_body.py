"""The report as a part of the site's pages, stored beside its other forms."""

import msgspec
from markupsafe import Markup

from tracekit.fleet import FleetReport
from tracekit.render.fleet import render_fleet_body
from tracekit.render.html import ReportBody, render_report_body
from tracekit.reporting.model import Report
from tracekit.web.field_labels import name_field
from tracekit.web.formats import TOP_RANKS
from tracekit.web.jobs import WebJob
from tracekit.web.report_files import BODY_FORM, open_report
from tracekit.web.store import Store


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
