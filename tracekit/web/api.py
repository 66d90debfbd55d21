"""``/api/v1``: the command line's functions over HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import AwareDatetime, BaseModel, Field, StringConstraints
from starlette.responses import Response, StreamingResponse

from predictors import list_gpus, load_gpu
from tracekit.comm import list_clusters, load_cluster
from tracekit.messages import front_ends
from tracekit.web.access import (
    ID_PATTERN,
    REPORT_FILE_POLICY,
    Id,
    Owner,
    RequesterDependency,
    StoreDependency,
    document_refusals,
)
from tracekit.web.ask import Ask
from tracekit.web.database import SPLIT
from tracekit.web.errors import NotFoundError
from tracekit.web.jobs import WebJob
from tracekit.web.reports import FILE_FORMATS, TIMELINE_FORMAT, open_report
from tracekit.web.store import Store

BLOCK_BYTES = 1 << 20

Form = Annotated[str, InPath(pattern=f"^({'|'.join(FILE_FORMATS)})$")]

Details = Annotated[bool, Query(description="With prices, paths and names of hosts and users, otherwise left out.")]


class NewJob(BaseModel):
    """Traces of one run, and what to find out about them."""

    uploads: list[Annotated[str, StringConstraints(pattern=ID_PATTERN)]] = Field(min_length=1, max_length=4096)
    ask: Ask | None = Field(default=None, description="Left out: only look what is in the traces.")


class JobBody(BaseModel):
    """A job."""

    id: str
    state: str = Field(description="queued, running, found, done, failed, or split: the traces are of several runs")
    stage: str = Field(description="what is being done")
    done_fraction: float = Field(description="how much of the job is done, 0 to 1")
    parts: list[str] = Field(description="jobs that this one was split into, one for each run")
    ahead: int = Field(description="jobs that wait in front of it")
    uploads: list[str] = Field(description="names of the files")
    ask: dict[str, Any] | None
    found: dict[str, Any] | None = Field(
        description="source, coverage, diagnosis, warnings; rank_by_rank: ranks for the engine"
    )
    error: dict[str, Any] | None = Field(description="message, hint and code")
    reports: dict[str, str] = Field(description="address of each form")
    link: str = Field(description="private link: whoever has it can read the report")
    created: AwareDatetime
    expires: AwareDatetime


class GpuBody(BaseModel):
    """A GPU that can be a target."""

    slug: str
    name: str
    vendor: str
    year: int
    memory_bytes: int
    bandwidth_gbps: float
    aliases: list[str]


class ClusterBody(BaseModel):
    """A cluster that can be a target."""

    slug: str
    gpu: str
    nodes: int
    gpus: int


router = APIRouter(prefix="/api/v1")


@router.post("/jobs", status_code=201, tags=["jobs"], summary="Begin a job", responses=document_refusals(400, 404, 409))
def create(store: StoreDependency, requester: RequesterDependency, new: NewJob) -> JobBody:
    """Queue a job for uploads, which belong to it from now on and are deleted with it."""
    request = None if new.ask is None else new.ask.to_dict()
    return build_job_body(store, store.jobs.create(requester, new.uploads, request))


@router.get("/jobs", tags=["jobs"], summary="Your jobs", responses=document_refusals())
def jobs(store: StoreDependency, owner: Owner) -> list[JobBody]:
    """Newest first."""
    return [build_job_body(store, job) for job in store.jobs.list_for_owner(owner)]


@router.get("/jobs/{job_id}", tags=["jobs"], summary="How a job is doing", responses=document_refusals(404))
def job(store: StoreDependency, owner: Owner, job_id: Id) -> JobBody:
    """State, stage, what was found, and where the reports are."""
    return build_job_body(store, store.jobs.get(owner, job_id))


@router.post("/jobs/{job_id}/ask", tags=["jobs"], summary="Ask anew", responses=document_refusals(400, 404, 409))
def ask(store: StoreDependency, requester: RequesterDependency, job_id: Id, ask: Ask) -> JobBody:
    """Queue a job again with other targets."""
    job = store.jobs.get(requester.owner, job_id)
    return build_job_body(store, store.jobs.requeue(requester, job, ask.to_dict()))


@router.delete(
    "/jobs/{job_id}", status_code=204, tags=["jobs"], summary="Delete a job", responses=document_refusals(404)
)
def delete(store: StoreDependency, owner: Owner, job_id: Id) -> Response:
    """Delete it with its uploads and reports."""
    store.jobs.delete(store.jobs.get(owner, job_id))
    return Response(status_code=204)


@router.get(
    "/jobs/{job_id}/report.{form}",
    tags=["jobs"],
    summary="A report",
    response_class=Response,
    responses=document_refusals(404) | {200: {"content": {form.media_type: {} for form in FILE_FORMATS.values()}}},
)
def report(store: StoreDependency, owner: Owner, job_id: Id, form: Form, details: Details = False) -> Response:
    """The report in one of its forms."""
    return create_report_response(store, store.jobs.get(owner, job_id), form, with_details=details)


@router.get("/gpus", tags=["names"], summary="The GPUs that tracekit knows", responses=document_refusals())
def gpus(owner: Owner) -> list[GpuBody]:
    """Names, and the main figures."""
    known = (load_gpu(slug) for slug in list_gpus())
    return [GpuBody.model_validate(gpu, from_attributes=True) for gpu in known]


@router.get("/clusters", tags=["names"], summary="The clusters that tracekit knows", responses=document_refusals())
def clusters(owner: Owner) -> list[ClusterBody]:
    """Others are written as nodes, GPUs and network: `4x8xh100-sxm@ndr400`."""
    known = (load_cluster(name) for name in list_clusters())
    return [ClusterBody(slug=each.slug, gpu=each.gpu.slug, nodes=each.nodes, gpus=each.gpus) for each in known]


def build_job_body(store: Store, job: WebJob) -> JobBody:
    """Return a job as the API shows it."""
    return JobBody(
        id=job.id,
        state=job.state,
        stage=job.stage,
        done_fraction=job.done_fraction,
        parts=[part.id for part in store.jobs.list_parts(job)] if job.state == SPLIT else [],
        ahead=store.jobs.count_ahead(job) if job.is_active else 0,
        uploads=list(job.uploads),
        ask=job.request,
        found=job.found,
        error=job.error,
        reports={form: f"/api/v1/jobs/{job.id}/report.{form}" for form in job.formats},
        link=f"/r/{job.link}",
        created=datetime.fromtimestamp(job.created, UTC),
        expires=datetime.fromtimestamp(job.expires, UTC),
    )


def create_report_response(store: Store, job: WebJob, form: str, *, with_details: bool) -> Response:
    """Create the response with one form of a job's report; browsers download all forms except HTML.

    Raises:
        NotFoundError: The report doesn't exist.
    """
    if form not in job.formats:
        is_undrawn = form == TIMELINE_FORMAT and job.formats
        raise NotFoundError(front_ends.TIMELINE_NOT_DRAWN() if is_undrawn else front_ends.REPORT_PENDING())
    try:
        file = open_report(store, job, form, with_details=with_details)
    except FileNotFoundError:
        raise NotFoundError(front_ends.REPORT_DELETED()) from None
    disposition = "inline" if form == "html" else f'attachment; filename="{FILE_FORMATS[form].file_name}"'
    headers = {"Content-Disposition": disposition, "Content-Security-Policy": REPORT_FILE_POLICY}
    return StreamingResponse(_read_blocks(file), 200, headers, FILE_FORMATS[form].media_type)


def _read_blocks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while block := file.read(BLOCK_BYTES):
            yield block
