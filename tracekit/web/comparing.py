"""Two of one's own reports compared, as ``tracekit compare`` does it."""

from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from pydantic import StringConstraints
from starlette.responses import HTMLResponse, Response

from tracekit.render import compare as as_json
from tracekit.render.html import comparison_page
from tracekit.reporting.comparison import Comparison, Side, compare
from tracekit.web.answers import page
from tracekit.web.api import REPORT_POLICY
from tracekit.web.errors import NotFoundError, WebError
from tracekit.web.jobs import Job
from tracekit.web.routes import ID, Opened, Owner, refusals
from tracekit.web.sides import FILE, Sides, likely, unpack
from tracekit.web.store import Store

SHOWN_KERNELS = 50

JobId = Annotated[str, StringConstraints(pattern=ID)]
First = Annotated[JobId, Query(description="The first job.")]
Second = Annotated[JobId, Query(description="The second one.")]
Of = Annotated[
    str | None, Query(max_length=200, description="A target of the job; empty: the measured run. Default: what fits.")
]


class ComparisonForm(StrEnum):
    """What a comparison is given as."""

    HTML = "html"
    JSON = "json"


router = APIRouter()


@router.get("/compare", include_in_schema=False)
def shown(
    store: Opened,
    owner: Owner,
    job: Annotated[list[JobId], Query(default_factory=list)],
    of_a: Of = None,
    of_b: Of = None,
) -> HTMLResponse:
    """Two reports side by side, the older one first, and the choice of what is meant of each."""
    if len(job) != 2:
        raise WebError("Choose two reports to compare.", "Tick two of them in the list of your reports.")
    jobs = sorted((store.jobs.get(owner, job_id) for job_id in job), key=lambda each: each.created)
    sides = [_sides(store, each) for each in jobs]
    chosen = _chosen(sides[0], sides[1], of_a, of_b)
    query = urlencode({"a": jobs[0].id, "b": jobs[1].id, "of_a": chosen[0], "of_b": chosen[1]})
    return page("compare.html", jobs=jobs, sides=sides, chosen=chosen, query=query)


@router.get(
    "/api/v1/compare.{form}",
    tags=["jobs"],
    summary="Two reports compared",
    response_class=Response,
    responses=refusals(404) | {200: {"content": {"text/html": {}, "application/json": {}}}},
)
def compared(
    store: Opened,
    owner: Owner,
    form: ComparisonForm,
    a: First,
    b: Second,
    of_a: Of = None,
    of_b: Of = None,
    top: Annotated[int, Query(ge=0, le=10_000, description="Kernels to list of each kind.")] = SHOWN_KERNELS,
) -> Response:
    """What changed between two measured runs, or how far a prediction was off from what was measured since."""
    jobs = [store.jobs.get(owner, job_id) for job_id in (a, b)]
    sides = [_sides(store, job) for job in jobs]
    pairs = zip(jobs, sides, _chosen(sides[0], sides[1], of_a, of_b), strict=True)
    found: Comparison = compare(*(_side(job, known, target) for job, known, target in pairs))
    headers = {"Content-Security-Policy": REPORT_POLICY}
    if form is ComparisonForm.JSON:
        return Response(as_json.as_json(found, top), headers=headers, media_type="application/json")
    return HTMLResponse(comparison_page(found, top), headers=headers)


def _sides(store: Store, job: Job) -> Sides:
    try:
        with store.files.open(f"jobs/{job.id}/{job.output}/{FILE}") as file:
            return unpack(file.read())
    except FileNotFoundError:
        hint = "Only reports that are done can be compared; ask anew for one of an older tracekit."
        raise NotFoundError(f"{job.name} has no report to compare yet.", hint) from None


def _chosen(a: Sides, b: Sides, of_a: str | None, of_b: str | None) -> tuple[str, str]:
    return likely(a, b) if of_a is None and of_b is None else (of_a or "", of_b or "")


def _side(job: Job, sides: Sides, target: str) -> Side:
    if target not in sides:
        raise NotFoundError(
            f"{job.name} wasn't predicted on {target}.", f"It was on: {', '.join(filter(None, sides))}."
        )
    return sides[target]
