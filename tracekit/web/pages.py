"""HTML pages: upload, trace summary and choice of targets, progress, report, and the owner's reports."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from predictors import Gpu, PredictorError, list_gpus, load_gpu
from tracekit.comm import list_clusters, load_cluster
from tracekit.errors import TracekitError
from tracekit.messages import web_errors
from tracekit.render.doctor import GRADE_MEANINGS
from tracekit.web import access, samples, timeline
from tracekit.web.api import Form as ReportForm
from tracekit.web.api import create_report_response
from tracekit.web.ask import FIELDS, Ask
from tracekit.web.errors import UnauthorizedError, WebError, serialize_error
from tracekit.web.formats import FORMATS, ReportFormat
from tracekit.web.jobs import WebJob
from tracekit.web.responses import render_page
from tracekit.web.routes import Id, Owner, RequesterDependency, StoreDependency
from tracekit.web.settings import Settings
from tracekit.web.store import Store

PLACED_FIELDS = ("gpu", "cluster", "source_gpu", "source_cluster", "steps", "price")
"""Options that have a place of their own in the form; the others follow one another."""
ASK = TypeAdapter(Ask)


async def _parse_form(request: Request) -> dict[str, Any]:
    """Return the form's fields that aren't blank."""
    form = await request.form()
    filled = [(name, value.strip()) for name, value in form.multi_items() if isinstance(value, str) and value.strip()]
    entered: dict[str, Any] = {name: value for name, value in filled if name in FIELDS and not FIELDS[name].is_several}
    for field in FIELDS.values():
        if field.is_several:
            lines = [value for name, value in filled if name == field.name]
            parts = [part.strip() for line in lines for part in line.split(field.option.separator)]
            entered[field.name] = [part for part in parts if part]
    return entered


FormFields = Annotated[dict[str, Any], Depends(_parse_form)]
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


@router.get("/jobs/{job_id}")
def show_job(store: StoreDependency, owner: Owner, job_id: Id) -> HTMLResponse:
    """What a job found, asks or does, or its report."""
    return render_page("job.html", **_build_job_context(store, store.jobs.get(owner, job_id)))


@router.get("/jobs/{job_id}/panel")
def show_panel(store: StoreDependency, owner: Owner, job_id: Id) -> HTMLResponse:
    """The part of a job's page that changes by itself."""
    return render_page("panel.html", **_build_job_context(store, store.jobs.get(owner, job_id)))


@router.post("/jobs/{job_id}/ask")
def submit_request(store: StoreDependency, requester: RequesterDependency, job_id: Id, entered: FormFields) -> Response:
    """Queue a job again with what was chosen, or say on its page why that can't be."""
    job = store.jobs.get(requester.owner, job_id)
    try:
        request = ASK.validate_python(entered | {"source_gpu": _choose_source_gpu(job, entered)})
        store.jobs.requeue(requester, job, request.to_dict())
    except ValidationError as error:
        return _render_refused(store, job, entered, _make_field_error(error))
    except (TracekitError, PredictorError) as error:
        return _render_refused(store, job, entered, error)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.get("/jobs/{job_id}/ask")
def redirect_to_job(job_id: Id) -> Response:
    """Where a reload leads after a refusal."""
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/delete")
def delete_job(store: StoreDependency, owner: Owner, job_id: Id) -> Response:
    """Delete a job with everything that belongs to it."""
    store.jobs.delete(store.jobs.get(owner, job_id))
    return RedirectResponse("/", 303)


@router.get("/r/{link}")
def show_shared_report(store: StoreDependency, link: Id) -> HTMLResponse:
    """A report by its private link."""
    job = store.jobs.get_by_link(link)
    return render_page("shared.html", job=job, **_build_report_context(job))


@router.get("/r/{link}/report.{form}")
def download_shared_report(store: StoreDependency, link: Id, form: ReportForm) -> Response:
    """One form of a report by its private link."""
    return create_report_response(store, store.jobs.get_by_link(link), form)


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


def _build_job_context(store: Store, job: WebJob, entered: dict[str, Any] | None = None) -> dict[str, Any]:
    """Build the template variables of a job's page; chosen GPUs come first in the scrolling list."""
    wanted = entered or job.request or {}
    chosen = wanted.get("gpu") or []
    others = [field for field in FIELDS.values() if field.name not in PLACED_FIELDS]
    return {
        "job": job,
        "wanted": wanted,
        "refused": None,
        "ahead": store.jobs.count_ahead(job) if job.is_active else 0,
        "gpus": [load_gpu(slug) for slug in sorted(list_gpus(), key=lambda slug: slug not in chosen)],
        "clusters": [load_cluster(name) for name in list_clusters()],
        "fields": FIELDS,
        "others": others,
        "has_others": any(wanted.get(field.name) for field in others),
        "meanings": GRADE_MEANINGS,
        "words": _build_search_text,
        **_build_report_context(job),
    }


def _choose_source_gpu(job: WebJob, entered: Mapping[str, Any]) -> str | None:
    """Return the entered GPU of the trace; ``None`` if it equals the recorded one."""
    told = (job.found or {}).get("source", {}).get("gpu") if not (job.request or {}).get("source_gpu") else None
    gpu: str | None = entered.get("source_gpu")
    return None if gpu == told else gpu


def _make_field_error(error: ValidationError) -> WebError:
    """Return the error of an invalid field."""
    first = error.errors()[0]
    name = str(first["loc"][0])
    label = FIELDS[name].option.label if name in FIELDS else name
    return WebError(web_errors.FIELD_INVALID(field=label, reason=first["msg"]))


def _render_refused(
    store: Store, job: WebJob, entered: dict[str, Any], error: TracekitError | PredictorError
) -> HTMLResponse:
    """Render the job's page with the entered values and the error."""
    status = error.status if isinstance(error, WebError) else 400
    return render_page(
        "job.html", status, **_build_job_context(store, job, entered) | {"refused": serialize_error(error)}
    )


def _build_search_text(gpu: Gpu) -> str:
    """Build the text that the page's GPU search matches."""
    return " ".join((gpu.slug, gpu.name, gpu.vendor, gpu.architecture, *gpu.aliases)).lower()


def _build_report_context(job: WebJob) -> dict[str, Any]:
    """Build the template variables of a report: its formats by suffix, and whether its timeline can be shown."""
    forms: dict[str, ReportFormat] = {suffix: FORMATS[suffix] for suffix in job.formats}
    return {"forms": forms, "timeline": timeline.can_show_timeline(job)}
