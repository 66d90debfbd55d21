"""HTML pages: upload and the owner's reports, a report by its private link, its timeline, the token.

The timeline is shown in Perfetto's page, served by this server: the trace goes nowhere else. Perfetto needs storage, so
the page shares our origin. Its policy allows requests only below the report's private link: a script injected by a name
in a trace would see only what everyone with the link sees.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Form
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from tracekit.messages import front_ends
from tracekit.packaged import find_samples
from tracekit.render import viewer
from tracekit.render.html.page import hash_script
from tracekit.render.private_details import shorten_path
from tracekit.web import access
from tracekit.web.access import REPORT_PAGE_POLICY, Id, Owner, RequesterDependency, StoreDependency
from tracekit.web.api import Form as ReportForm
from tracekit.web.api import create_report_response
from tracekit.web.database import DONE
from tracekit.web.errors import NotFoundError, UnauthorizedError
from tracekit.web.form import Slider
from tracekit.web.jobs import WebJob
from tracekit.web.quotas import Requester
from tracekit.web.reports import FILE_FORMATS, TIMELINE_FORMAT, has_details, load_body
from tracekit.web.responses import ENVIRONMENT, render_page
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.uploads import Upload, UploadStore

router = APIRouter(include_in_schema=False)


CAPTURE_PACKAGES = {"torch": "PyTorch", "transformers": "Hugging Face's transformers"}
"""Packages that programs which never ran are captured with, and their names; a model's config.json takes all."""


def list_missing_packages() -> list[str]:
    """Return the names of the packages for captures that aren't installed here."""
    return [name for package, name in CAPTURE_PACKAGES.items() if find_spec(package) is None]


def list_sample_names() -> list[str]:
    """Return the names of the samples."""
    return list(find_samples())


def upload_sample(uploads: UploadStore, requester: Requester, name: str) -> Upload:
    """Copy a sample as the requester's upload.

    Raises:
        NotFoundError: There is no such sample.
    """
    path = find_samples().get(name)
    if path is None:
        raise NotFoundError(front_ends.SAMPLE_UNKNOWN(known=list_sample_names()))
    return uploads.copy(requester, path)


TIMELINE_POLICY = (
    "sandbox allow-scripts allow-same-origin allow-downloads allow-modals; default-src 'none'; "
    "script-src {place} {inline} 'wasm-unsafe-eval'; worker-src {place} blob:; connect-src {place} data: blob:; "
    "style-src {place} 'unsafe-inline'; font-src {place} data:; img-src {place} data: blob:; manifest-src {place}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CACHE_MAX_AGE_S = 86_400


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


ADJUST_HOOK = '<form id="adjust" aria-label="Recompute" hidden></form>'
"""Where a report's body leaves room for the sliders."""


def render_report_page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page that holds a report, or may hold one later without being loaded anew."""
    page = render_page(name, status, **values)
    page.headers["Content-Security-Policy"] = REPORT_PAGE_POLICY
    return page


def build_report_context(
    store: Store, job: WebJob, *, is_owner: bool, sliders: Sequence[Slider] = ()
) -> dict[str, Any]:
    """Build the template variables of a report: its body, its forms by suffix, whether its timeline can be shown."""
    forms = {suffix: FILE_FORMATS[suffix] for suffix in job.formats}
    body = None if job.is_active else load_body(store, job, with_details=is_owner)
    if body and sliders:
        form = ENVIRONMENT.get_template("adjust.html").render(job=job, sliders=sliders)
        body = replace(body, content=Markup(body.content.replace(Markup(ADJUST_HOOK), Markup(form), 1)))
    return {
        "forms": forms,
        "body": body,
        "timeline": can_show_timeline(job),
        "can_draw": is_owner and job.state == DONE and not job.is_fleet and not (job.request or {}).get("timeline"),
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


@router.get("/")
def show_home(request: Request, store: StoreDependency, owner: Owner) -> HTMLResponse:
    """Upload, and one's own reports."""
    settings: Settings = request.app.state.settings
    return render_page(
        "home.html",
        settings=settings,
        samples=list_sample_names(),
        jobs=store.jobs.list_for_owner(owner),
        missing=list_missing_packages(),
        takes_recordings=find_spec("torch") is not None,
    )


@router.post("/samples/{name}")
def create_sample_job(store: StoreDependency, requester: RequesterDependency, name: str) -> Response:
    """A job for a sample."""
    upload = upload_sample(store.uploads, requester, name)
    return RedirectResponse(f"/jobs/{store.jobs.create(requester, [upload.id], None).id}", 303)


@router.get("/r/{link}")
def show_shared_report(store: StoreDependency, link: Id) -> HTMLResponse:
    """A report by its private link."""
    job = store.jobs.get_by_link(link)
    context = build_report_context(store, job, is_owner=False)
    return render_report_page("shared.html", job=job, run_name=shorten_path(job.name), **context)


@router.get("/r/{link}/report.{form}")
def download_shared_report(store: StoreDependency, link: Id, form: ReportForm) -> Response:
    """One form of a report by its private link."""
    return create_report_response(store, store.jobs.get_by_link(link), form, with_details=False)


@router.get("/login")
def show_login(request: Request) -> HTMLResponse:
    """Where the token is asked for."""
    return render_page("login.html", wrong=False)


@router.post("/login")
def submit_login(request: Request, token: Annotated[str, Form(max_length=1000)]) -> Response:
    """Keep the token in the browser."""
    try:
        request.app.state.tokens.check(access.get_network(request.scope), token)
    except UnauthorizedError:
        return render_page("login.html", 401, wrong=True)
    settings: Settings = request.app.state.settings
    return _redirect_with_token(request, "/", settings.token or "", access.COOKIE_MAX_AGE_S)


@router.post("/logout")
def log_out(request: Request) -> Response:
    """Remove the token from the browser; its reports stay until somebody logs in there again."""
    return _redirect_with_token(request, "/login", "", 0)


def _redirect_with_token(request: Request, place: str, token: str, max_age_s: int) -> Response:
    is_secure = request.url.scheme == "https"
    cookie = access.format_cookie(access.TOKEN_COOKIE, token, secure=is_secure, max_age_s=max_age_s)
    return RedirectResponse(place, 303, headers={"set-cookie": cookie})
