"""The pages: upload, what was found and what to ask, progress, the report, and one's own reports."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from predictors import Gpu, PredictorError, list_gpus, load_gpu
from tracekit.comm import list_clusters, load_cluster
from tracekit.errors import TracekitError
from tracekit.render.doctor import MEANINGS
from tracekit.web import access, samples, timeline
from tracekit.web.answers import page
from tracekit.web.api import Ask, asked, report_of
from tracekit.web.api import Form as ReportForm
from tracekit.web.errors import UnauthorizedError, WebError
from tracekit.web.formats import FORMATS, Format
from tracekit.web.jobs import Job
from tracekit.web.layout import NUMBERS
from tracekit.web.routes import Id, Opened, Owner
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.words import FIELDS

DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)


LISTS = ("gpus", "clusters", "prices")


async def _entered(request: Request) -> dict[str, Any]:
    """What was entered on the page: fields that aren't blank."""
    form = await request.form()
    filled = [(name, value.strip()) for name, value in form.multi_items() if isinstance(value, str) and value.strip()]
    lists = {field: [value for name, value in filled if name == field] for field in LISTS}
    lists["prices"] = [price.strip() for line in lists["prices"] for price in line.split(",") if price.strip()]
    return {name: value for name, value in filled if name not in LISTS} | lists


Entered = Annotated[dict[str, Any], Depends(_entered)]
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
def ask(store: Opened, owner: Owner, job_id: Id, entered: Entered) -> Response:
    """Queue a job again with what was chosen, or say on its page why that can't be."""
    job = store.jobs.get(owner, job_id)
    try:
        store.jobs.ask(job, asked(Ask.model_validate(entered | {"source_gpu": _source_gpu(job, entered)})))
    except ValidationError as error:
        return _refused(store, job, entered, WebError(*_invalid(error)))
    except (TracekitError, PredictorError) as error:
        return _refused(store, job, entered, error)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.get("/jobs/{job_id}/ask")
def asked_before(job_id: Id) -> Response:
    """Where a reload leads after a refusal."""
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


def _shown(store: Store, job: Job, entered: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a job's page shows; GPUs that were chosen stand first in their list, which scrolls."""
    wanted = entered or job.request or {}
    chosen = wanted.get("gpus") or []
    return {
        "job": job,
        "wanted": wanted,
        "refused": None,
        "ahead": store.jobs.ahead_of(job) if job.is_active else 0,
        "expires": _date(job.expires),
        "gpus": [load_gpu(slug) for slug in sorted(list_gpus(), key=lambda slug: slug not in chosen)],
        "clusters": [load_cluster(name) for name in list_clusters()],
        "layout": NUMBERS,
        "laid_out": any(wanted.get(name) for name in (*NUMBERS, "fsdp")),
        "fields": FIELDS,
        "meanings": MEANINGS,
        "words": _words,
        **_report(job),
    }


def _source_gpu(job: Job, entered: Mapping[str, Any]) -> str | None:
    """The GPU that was entered for the trace; None if that is what the trace itself says."""
    told = (job.found or {}).get("source", {}).get("gpu") if not (job.request or {}).get("source_gpu") else None
    gpu: str | None = entered.get("source_gpu")
    return None if gpu == told else gpu


def _invalid(error: ValidationError) -> tuple[str, str]:
    """What is wrong with a field."""
    first = error.errors()[0]
    name = str(first["loc"][0])
    return f"{FIELDS.get(name, name)}: {first['msg']}.", ""


def _refused(store: Store, job: Job, entered: dict[str, Any], error: TracekitError | PredictorError) -> HTMLResponse:
    """The job's page with what was entered, and what is wrong with it."""
    status = error.status if isinstance(error, WebError) else 400
    return page("job.html", status, **_shown(store, job, entered) | {"refused": error})


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
