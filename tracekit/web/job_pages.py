"""HTML pages of a job: what was found, the choice of targets, progress, and the report."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from anyio import to_thread
from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from predictors import PredictorError
from tracekit.comm import list_clusters, load_cluster
from tracekit.errors import TracekitError
from tracekit.prediction.targets import GPU_GROUPS, expand_group
from tracekit.render.screens import GRADE_MEANINGS
from tracekit.request import RequestField, RunOptions, list_fields
from tracekit.request.options import DecisionOptions, EditOptions, LayoutOptions, ScheduleOptions, TargetOptions
from tracekit.request.program_options import ProgramOptions
from tracekit.web import ask
from tracekit.web.access import Id, Owner, RequesterDependency, StoreDependency
from tracekit.web.ask import FIELDS
from tracekit.web.compare import build_several_context
from tracekit.web.database import DONE, SPLIT
from tracekit.web.errors import WebError, serialize_error
from tracekit.web.form import ASK, Entered, adjust_request, list_sliders
from tracekit.web.jobs import WebJob
from tracekit.web.pages import build_report_context, render_report_page
from tracekit.web.quotas import Requester
from tracekit.web.responses import render_page
from tracekit.web.store import Store

FIELD_GROUPS = {
    "Layout and batch": (LayoutOptions, ScheduleOptions),
    "Answer": (DecisionOptions,),
    "Target": (TargetOptions,),
    "What if": (EditOptions,),
    "Trace": (RunOptions,),
    "Program without a GPU": (ProgramOptions,),
}
"""Groups of the options that have no place of their own in the form, in order."""
PLACED_FIELDS = ("gpu", "cluster", "source_gpu", "source_cluster", "steps", "timeline")
"""Options that have a place of their own in the form."""
NO_MISTAKES: Mapping[str, Any] = MappingProxyType({})

router = APIRouter(include_in_schema=False)


@router.get("/jobs/{job_id}")
def show_job(store: StoreDependency, owner: Owner, job_id: Id) -> HTMLResponse:
    """What a job found, asks or does, or its report."""
    return _render_job(store, store.jobs.get(owner, job_id))


@router.get("/jobs/{job_id}/panel")
def show_panel(store: StoreDependency, owner: Owner, job_id: Id) -> HTMLResponse:
    """The part of a job's page that changes by itself."""
    return render_page("panel.html", **_build_job_context(store, store.jobs.get(owner, job_id)))


@router.post("/jobs/{job_id}/ask")
async def submit_request(
    request: Request, store: StoreDependency, requester: RequesterDependency, job_id: Id
) -> Response:
    """Queue a job again with what was chosen, or say beside the fields why that can't be."""
    return await _handle_form(_submit, request, store, requester, job_id)


def _submit(store: Store, requester: Requester, job_id: str, form: FormData, *, is_partial: bool) -> Response:
    job = store.jobs.get(requester.owner, job_id)
    entered = Entered.from_form(form, _get_recorded_gpu(job))
    mistakes, status = entered.find_mistakes(job.ranks_one_by_one), 400
    if not mistakes:
        try:
            _queue_request(store, requester, job, ASK.validate_python(entered.to_options()).to_dict())
        except WebError as error:
            mistakes, status = {"": serialize_error(error)}, error.status
    if mistakes and not is_partial:
        return _render_job(store, job, entered, mistakes, status)
    if mistakes:
        return render_page("choose.html", status, **_build_job_context(store, job, entered, mistakes))
    if not is_partial:
        return RedirectResponse(f"/jobs/{job_id}", 303)
    return _render_panel(store, store.jobs.get(requester.owner, job_id))


def _queue_request(store: Store, requester: Requester, job: WebJob, request: dict[str, Any]) -> None:
    """Queue a job again, or the runs that it was split into."""
    for one in store.jobs.list_parts(job) if job.state == SPLIT else [job]:
        store.jobs.requeue(requester, one, request)


@router.post("/jobs/{job_id}/adjust")
async def submit_sliders(
    request: Request, store: StoreDependency, requester: RequesterDependency, job_id: Id
) -> Response:
    """Recompute a report with what its sliders changed, as a report of its own."""
    return await _handle_form(_adjust, request, store, requester, job_id)


def _adjust(store: Store, requester: Requester, job_id: str, form: FormData, *, is_partial: bool) -> Response:
    job = store.jobs.get(requester.owner, job_id)
    values = {name: value for name, value in form.items() if isinstance(value, str)}
    try:
        request = ASK.validate_python(adjust_request(job, values)).to_dict()
        variant = job if request == job.request else store.jobs.create_variant(requester, job, request)
    except (TracekitError, PredictorError) as error:
        if not is_partial:
            raise
        return render_page("recomputing.html", 400, job=replace(job, error=serialize_error(error)))
    return _render_recomputing(store, variant) if is_partial else RedirectResponse(f"/jobs/{variant.id}", 303)


@router.get("/jobs/{job_id}/progress")
def show_progress(store: StoreDependency, owner: Owner, job_id: Id) -> HTMLResponse:
    """How far a recomputation is; once it is done, the panel with its report."""
    return _render_recomputing(store, store.jobs.get(owner, job_id))


def _render_recomputing(store: Store, job: WebJob) -> HTMLResponse:
    """Render the progress beside the sliders, or the panel with the report, which gets an address of its own."""
    if job.state != DONE:
        return render_page("recomputing.html", job=job, ahead=store.jobs.count_ahead(job))
    panel = _render_panel(store, job)
    panel.headers["HX-Push-Url"] = f"/jobs/{job.id}"
    return panel


def _render_panel(store: Store, job: WebJob) -> HTMLResponse:
    """Render a job's panel in place of the one that is shown."""
    panel = render_page("panel.html", **_build_job_context(store, job))
    panel.headers.update({"HX-Retarget": "#panel", "HX-Reswap": "outerHTML"})
    return panel


@router.get("/jobs/{job_id}/ask")
def redirect_to_job(job_id: Id) -> Response:
    """Where a reload leads after a refusal."""
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/timeline")
def draw_timeline(store: StoreDependency, requester: RequesterDependency, job_id: Id) -> Response:
    """Queue a job again, with the timeline of what was asked."""
    job = store.jobs.get(requester.owner, job_id)
    store.jobs.requeue(requester, job, (job.request or {}) | {"timeline": True})
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/delete")
def delete_job(store: StoreDependency, owner: Owner, job_id: Id) -> Response:
    """Delete a job with everything that belongs to it."""
    store.jobs.delete(store.jobs.get(owner, job_id))
    return RedirectResponse("/", 303)


def _render_job(
    store: Store,
    job: WebJob,
    entered: Entered | None = None,
    mistakes: Mapping[str, Any] = NO_MISTAKES,
    status: int = 200,
) -> HTMLResponse:
    """Render a job's page, with what was entered and what is wrong with it."""
    return render_report_page("job.html", status, **_build_job_context(store, job, entered, mistakes))


def _build_job_context(
    store: Store, job: WebJob, entered: Entered | None = None, mistakes: Mapping[str, Any] = NO_MISTAKES
) -> dict[str, Any]:
    """Build the template variables of a job's page."""
    several: dict[str, Any] = {"is_waiting": job.is_active}
    if job.state == SPLIT:
        several = build_several_context(store, job)
    asked = next((column.job.request for column in several.get("columns", ())), job.request)
    wanted = entered or Entered.from_request(asked, _get_recorded_gpu(job))
    usual = ask.list_usual_gpus(wanted.values.get("gpu", ()))
    others = _group_fields()
    return {
        "job": job,
        "wanted": wanted,
        "mistakes": mistakes,
        "ahead": store.jobs.count_ahead(job) if job.is_active else 0,
        "usual": usual,
        "families": ask.list_families(usual),
        "groups": {name: len(expand_group(name)) for name in GPU_GROUPS},
        "clusters": [load_cluster(name) for name in list_clusters()],
        "fields": FIELDS,
        "others": others,
        "has_others": any(wanted.values.get(name) or name in mistakes for name in FIELDS.keys() - PLACED_FIELDS),
        "meanings": GRADE_MEANINGS,
        **several,
        **build_report_context(store, job, is_owner=True, sliders=list_sliders(job)),
    }


def _group_fields() -> dict[str, list[RequestField]]:
    """Return the options without a place of their own by group."""
    left = {name: field for name, field in FIELDS.items() if name not in PLACED_FIELDS}
    groups = {}
    for title, requests in FIELD_GROUPS.items():
        names = [field.name for request in requests for field in list_fields(request)]
        groups[title] = [left.pop(name) for name in dict.fromkeys(names) if name in left]
    groups["Trace"] += left.values()
    return groups


def _get_recorded_gpu(job: WebJob) -> str | None:
    """Return the GPU that the trace names; ``None`` if it names none, or was examined under another name."""
    gpu: str | None = (job.found or {}).get("source", {}).get("gpu")
    return None if (job.request or {}).get("source_gpu") else gpu


async def _handle_form(
    handler: Callable[..., Response], request: Request, store: Store, requester: Requester, job_id: str
) -> Response:
    """Read a form and handle it in a thread; a script gets only the part of the page that changes."""
    form = await request.form()
    is_partial = "hx-request" in request.headers
    return await to_thread.run_sync(partial(handler, store, requester, job_id, form, is_partial=is_partial))
