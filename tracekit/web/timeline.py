"""Show a report's timeline in Perfetto's page, served by this server: the trace goes nowhere else.

Perfetto needs storage, so the page shares our origin. Its policy allows requests only below the report's private
link: a script injected by a name in a trace would see only what everyone with the link sees.
"""

import re
from functools import cache
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from tracekit.messages import front_ends
from tracekit.render import viewer
from tracekit.render.html.page import hash_script
from tracekit.web.errors import NotFoundError
from tracekit.web.formats import TIMELINE_FORMAT
from tracekit.web.jobs import WebJob
from tracekit.web.routes import Id, StoreDependency

TIMELINE_POLICY = (
    "sandbox allow-scripts allow-same-origin allow-downloads allow-modals; default-src 'none'; "
    "script-src {place} {inline} 'wasm-unsafe-eval'; worker-src {place} blob:; connect-src {place} data: blob:; "
    "style-src {place} 'unsafe-inline'; font-src {place} data:; img-src {place} data: blob:; manifest-src {place}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CACHE_MAX_AGE_S = 86_400

router = APIRouter(include_in_schema=False)


def can_show_timeline(job: WebJob) -> bool:
    """Return whether the job has a timeline and Perfetto's page is installed."""
    return TIMELINE_FORMAT in job.formats and viewer.folder() is not None


@router.get("/r/{link}/timeline")
def open_timeline(request: Request, link: Id) -> Response:
    """Perfetto's page, told where the timeline is."""
    place = _build_base_url(request, link)
    trace = quote(f"{place}report.{TIMELINE_FORMAT}", safe="")
    return RedirectResponse(
        f"{place}timeline/#!/viewer?hideSidebar=true&url={trace}&{viewer.build_startup_commands()}", 303
    )


@router.get("/r/{link}/timeline/{path:path}")
def serve_viewer_file(request: Request, store: StoreDependency, link: Id, path: str) -> Response:
    """One of the files of Perfetto's page."""
    page = viewer.folder()
    file = viewer.find_asset(page, path) if page and can_show_timeline(store.jobs.get_by_link(link)) else None
    if file is None:
        raise NotFoundError(front_ends.TIMELINE_MISSING(extra=viewer.VIEWER_EXTRA))
    policy = TIMELINE_POLICY.format(
        place=_build_base_url(request, link), inline=_hash_inline_scripts(file.with_name("index.html"))
    )
    return FileResponse(
        file, headers={"Content-Security-Policy": policy, "Cache-Control": f"private, max-age={CACHE_MAX_AGE_S}"}
    )


def _build_base_url(request: Request, link: str) -> str:
    return f"{request.base_url}r/{link}/"


@cache
def _hash_inline_scripts(index: Path) -> str:
    """Return the content-security-policy sources of the scripts within a page."""
    scripts = re.findall(rb"<script[^>]*>(.+?)</script>", index.read_bytes(), re.DOTALL) if index.is_file() else []
    return " ".join(map(hash_script, scripts))
