"""Pages that hold a report: what they may do, and the script that belongs to the report."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from tracekit.messages import web_errors
from tracekit.web.errors import NotFoundError
from tracekit.web.formats import FORMATS, ReportFormat
from tracekit.web.jobs import WebJob
from tracekit.web.policies import REPORT_PAGE_POLICY
from tracekit.web.report_body import load_body
from tracekit.web.responses import render_page
from tracekit.web.routes import Id, StoreDependency
from tracekit.web.store import Store
from tracekit.web.timeline import can_show_timeline

router = APIRouter(include_in_schema=False)


def render_report_page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page that holds a report, or may hold one later without being loaded anew."""
    page = render_page(name, status, **values)
    page.headers["Content-Security-Policy"] = REPORT_PAGE_POLICY
    return page


def build_report_context(store: Store, job: WebJob) -> dict[str, Any]:
    """Build the template variables of a report: itself, its forms by suffix, and whether its timeline can be shown."""
    forms: dict[str, ReportFormat] = {suffix: FORMATS[suffix] for suffix in job.formats}
    body = None if job.is_active else load_body(store, job)
    return {"forms": forms, "body": body, "timeline": can_show_timeline(job)}


@router.get("/r/{link}/body.js")
def serve_script(store: StoreDependency, link: Id) -> Response:
    """The script of a report's body."""
    body = load_body(store, store.jobs.get_by_link(link))
    if body is None:
        raise NotFoundError(web_errors.REPORT_PENDING())
    return Response(body.script, media_type="text/javascript")
