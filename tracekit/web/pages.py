"""HTML pages: upload and the owner's reports, a report by its private link, the token."""

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tracekit.render.private_details import shorten_path
from tracekit.web import access, samples
from tracekit.web.api import Form as ReportForm
from tracekit.web.api import create_report_response
from tracekit.web.errors import UnauthorizedError
from tracekit.web.report_pages import build_report_context, render_report_page
from tracekit.web.responses import render_page
from tracekit.web.routes import Id, Owner, RequesterDependency, StoreDependency
from tracekit.web.settings import Settings

router = APIRouter(include_in_schema=False)


@router.get("/")
def show_home(request: Request, store: StoreDependency, owner: Owner) -> HTMLResponse:
    """Upload, and one's own reports."""
    settings: Settings = request.app.state.settings
    return render_page(
        "home.html", settings=settings, samples=samples.list_sample_names(), jobs=store.jobs.list_for_owner(owner)
    )


@router.post("/samples/{name}")
def create_sample_job(store: StoreDependency, requester: RequesterDependency, name: str) -> Response:
    """A job for a sample."""
    upload = samples.upload_sample(store.uploads, requester, name)
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
