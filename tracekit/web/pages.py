"""The pages: upload, what was found and what to ask, progress, the report, and one's own reports."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form
from pydantic import field_validator
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from predictors import Gpu, list_gpus, load_gpu
from tracekit.comm import list_clusters, load_cluster
from tracekit.render.doctor import MEANINGS
from tracekit.web import access, samples, timeline
from tracekit.web.answers import page
from tracekit.web.api import Ask, asked, report_of
from tracekit.web.api import Form as ReportForm
from tracekit.web.errors import UnauthorizedError
from tracekit.web.formats import FORMATS, Format
from tracekit.web.jobs import Job
from tracekit.web.layout import NUMBERS, change_of
from tracekit.web.routes import Id, Opened, Owner
from tracekit.web.settings import Settings
from tracekit.web.store import Store

DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Chosen(Ask):
    """What was chosen on the page, where fields may be left blank."""

    @field_validator("clusters", mode="before")
    @classmethod
    def _without_blanks(cls, names: list[str]) -> list[str]:
        return [name for name in names if name.strip()]

    @field_validator("prices", mode="before")
    @classmethod
    def _one_by_one(cls, written: list[str]) -> list[str]:
        return [price.strip() for line in written for price in line.split(",") if price.strip()]

    @field_validator(*NUMBERS, mode="before")
    @classmethod
    def _blank_is_none(cls, number: str) -> str | None:
        return number or None


router = APIRouter(include_in_schema=False)


@router.get("/")
def home(request: Request, store: Opened, owner: Owner) -> HTMLResponse:
    """Upload, and one's own reports."""
    settings: Settings = request.app.state.settings
    return page("home.html", settings=settings, samples=samples.names(), jobs=_rows(store, owner))


@router.post("/samples/{name}")
def sample(store: Opened, owner: Owner, name: str) -> Response:
    """A job for a sample."""
    upload = samples.upload(store.uploads, owner, name)
    return RedirectResponse(f"/jobs/{store.jobs.create(owner, [upload.id], None).id}", 303)


@router.get("/jobs/{job_id}")
def job(store: Opened, owner: Owner, job_id: Id) -> HTMLResponse:
    """What a job found, asks or does, or its report."""
    return page("job.html", **_shown(store, store.jobs.get(owner, job_id)))


@router.get("/jobs/{job_id}/panel")
def panel(store: Opened, owner: Owner, job_id: Id) -> HTMLResponse:
    """The part of a job's page that changes by itself."""
    return page("panel.html", **_shown(store, store.jobs.get(owner, job_id)))


@router.post("/jobs/{job_id}/ask")
def ask(store: Opened, owner: Owner, job_id: Id, ask: Annotated[Chosen, Form()]) -> Response:
    """Queue a job again with what was chosen."""
    store.jobs.ask(store.jobs.get(owner, job_id), asked(ask))
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/delete")
def delete(store: Opened, owner: Owner, job_id: Id) -> Response:
    """Delete a job with everything that belongs to it."""
    store.jobs.delete(store.jobs.get(owner, job_id))
    return RedirectResponse("/", 303)


@router.get("/r/{link}")
def shared(store: Opened, link: Id) -> HTMLResponse:
    """A report by its private link."""
    job = store.jobs.by_link(link)
    return page("shared.html", job=job, expires=_date(job.expires), **_report(job))


@router.get("/r/{link}/report.{form}")
def shared_report(store: Opened, link: Id, form: ReportForm) -> Response:
    """One form of a report by its private link."""
    return report_of(store, store.jobs.by_link(link), form)


@router.get("/login")
def login(request: Request) -> HTMLResponse:
    """Where the token is asked for."""
    return page("login.html", wrong=False)


@router.post("/login")
def logged_in(request: Request, token: Annotated[str, Form(max_length=1000)]) -> Response:
    """Keep the token in the browser."""
    try:
        access.check_token(request.app.state.settings, token)
    except UnauthorizedError:
        return page("login.html", 401, wrong=True)
    answer = RedirectResponse("/", 303)
    is_secure = request.url.scheme == "https"
    answer.headers.append("set-cookie", access.cookie(access.TOKEN_COOKIE, token, secure=is_secure))
    return answer


@router.get("/api/docs")
def docs() -> HTMLResponse:
    """The API's description, to read and try."""
    answer = page("docs.html")
    answer.headers["Content-Security-Policy"] = DOCS_POLICY
    return answer


def _shown(store: Store, job: Job) -> dict[str, Any]:
    """What a job's page shows; GPUs that were chosen stand first in their list, which scrolls."""
    chosen = (job.request or {}).get("gpus") or []
    return {
        "job": job,
        "ahead": store.jobs.ahead_of(job) if job.is_active else 0,
        "expires": _date(job.expires),
        "gpus": [load_gpu(slug) for slug in sorted(list_gpus(), key=lambda slug: slug not in chosen)],
        "clusters": [load_cluster(name) for name in list_clusters()],
        "layout": NUMBERS,
        "laid_out": change_of(job.request or {}).asked,
        "meanings": MEANINGS,
        "words": _words,
        **_report(job),
    }


def _words(gpu: Gpu) -> str:
    """What a search for a GPU may go by."""
    return " ".join((gpu.slug, gpu.name, gpu.vendor, gpu.architecture, *gpu.aliases)).lower()


def _report(job: Job) -> dict[str, Any]:
    """The forms that are there, by suffix, and whether the timeline can be looked at."""
    forms: dict[str, Format] = {suffix: FORMATS[suffix] for suffix in job.formats}
    return {"forms": forms, "timeline": timeline.is_shown(job)}


def _rows(store: Store, owner: str) -> list[dict[str, Any]]:
    return [{"job": job, "created": _date(job.created), "expires": _date(job.expires)} for job in store.jobs.of(owner)]


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
