"""Pages that hold a report: what they may do, and the script that belongs to the report."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from tracekit.messages import front_ends
from tracekit.web.adjust import Slider
from tracekit.web.errors import NotFoundError
from tracekit.web.formats import FILE_FORMATS
from tracekit.web.jobs import WebJob
from tracekit.web.policies import REPORT_PAGE_POLICY
from tracekit.web.report_body import load_body
from tracekit.web.report_files import has_details
from tracekit.web.responses import ENVIRONMENT, render_page
from tracekit.web.routes import Id, StoreDependency
from tracekit.web.store import Store
from tracekit.web.timeline import can_show_timeline

ADJUST_HOOK = '<form id="adjust" aria-label="Recompute" hidden></form>'
"""Where a report's body leaves room for the sliders."""

router = APIRouter(include_in_schema=False)


def render_report_page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page that holds a report, or may hold one later without being loaded anew."""
    page = render_page(name, status, **values)
    page.headers["Content-Security-Policy"] = REPORT_PAGE_POLICY
    return page


def build_report_context(
    store: Store, job: WebJob, *, is_owner: bool, sliders: Sequence[Slider] = ()
) -> dict[str, Any]:
    """Build the template variables of a report: its body, its forms by suffix, and whether its timeline can be shown.

    Args:
        store: Where the report is.
        job: Its job.
        is_owner: Whether it is shown to its owner, with all details.
        sliders: What its owner may change.
    """
    forms = {suffix: FILE_FORMATS[suffix] for suffix in job.formats}
    body = None if job.is_active else load_body(store, job, with_details=is_owner)
    if body and sliders:
        form = ENVIRONMENT.get_template("adjust.html").render(job=job, sliders=sliders)
        body = replace(body, content=Markup(body.content.replace(Markup(ADJUST_HOOK), Markup(form), 1)))
    return {
        "forms": forms,
        "body": body,
        "timeline": can_show_timeline(job),
        "place": f"/api/v1/jobs/{job.id}" if is_owner else f"/r/{job.link}",
        "has_details": is_owner and has_details(store, job),
    }


@router.get("/r/{link}/body.js")
def serve_script(store: StoreDependency, link: Id) -> Response:
    """The script of a report's body."""
    body = load_body(store, store.jobs.get_by_link(link), with_details=False)
    if body is None:
        raise NotFoundError(front_ends.REPORT_PENDING())
    return Response(body.script, media_type="text/javascript")
