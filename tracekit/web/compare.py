"""Compare two of an owner's reports, as ``tracekit compare`` does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from pydantic import StringConstraints
from starlette.responses import HTMLResponse, Response

from tracekit.messages import front_ends
from tracekit.render import compare as as_json
from tracekit.render.html.comparison import render_comparison_body, render_comparison_page
from tracekit.reporting.comparison import Comparison, ComparisonSide, compare, make_measured_side, make_predicted_side
from tracekit.reporting.model import Report
from tracekit.web.access import ID_PATTERN, REPORT_FILE_POLICY, Owner, StoreDependency, document_refusals
from tracekit.web.ask import name_field
from tracekit.web.errors import NotFoundError, WebError
from tracekit.web.jobs import WebJob
from tracekit.web.pages import render_report_page
from tracekit.web.reports import load_report
from tracekit.web.store import Store

MEASURED_LABEL = ""

Sides = Mapping[str, ComparisonSide]
"""Sides by the target's label; the key of the measured run is :data:`MEASURED_LABEL`."""


def make_sides(report: Report, name: str) -> Sides:
    """Make the sides of a report; ``name`` is the display name of its run."""
    return {MEASURED_LABEL: make_measured_side(report, name)} | {
        target.label: make_predicted_side(report, place, f"{name}, predicted on {target.label}")
        for place, target in enumerate(report.targets)
    }


def choose_sides(a: Sides, b: Sides) -> tuple[str, str]:
    """Choose the sides of two reports to compare.

    A prediction is compared with a measurement on its GPU; without such a pair, the measured runs are compared.
    """
    for label, side in a.items():
        if label != MEASURED_LABEL and side.gpu == b[MEASURED_LABEL].gpu:
            return label, MEASURED_LABEL
    for label, side in b.items():
        if label != MEASURED_LABEL and side.gpu == a[MEASURED_LABEL].gpu:
            return MEASURED_LABEL, label
    return MEASURED_LABEL, MEASURED_LABEL


@dataclass(frozen=True, slots=True)
class StepPair:
    """The step of one GPU in two reports.

    Attributes:
        target: The target's label; that of the measured run is :data:`MEASURED_LABEL`.
    """

    target: str
    a: ComparisonSide
    b: ComparisonSide

    @property
    def change_us(self) -> float:
        """How much longer the step of the second report takes."""
        return self.b.step_time_us - self.a.step_time_us


def pair_steps(a: Sides, b: Sides) -> list[StepPair]:
    """Return the steps that both reports have; none where that is the measured one alone."""
    pairs = [StepPair(target, side, b[target]) for target, side in a.items() if target in b]
    return pairs if len(pairs) > 1 else []


DEFAULT_TOP_KERNELS = 50

JobId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
FirstJobId = Annotated[JobId, Query(description="The first job.")]
SecondJobId = Annotated[JobId, Query(description="The second one.")]
TargetChoice = Annotated[
    str | None, Query(max_length=200, description="A target of the job; empty: the measured run. Default: what fits.")
]


class ComparisonForm(StrEnum):
    """What a comparison is given as."""

    HTML = "html"
    JSON = "json"


router = APIRouter()


@router.get("/compare", include_in_schema=False)
def show_comparison(
    store: StoreDependency,
    owner: Owner,
    job: Annotated[list[JobId], Query(default_factory=list)],
    of_a: TargetChoice = None,
    of_b: TargetChoice = None,
) -> HTMLResponse:
    """Two reports side by side, the older one first, and the choice of what is meant of each."""
    if len(job) != 2:
        raise WebError(front_ends.COMPARISON_NEEDS_TWO())
    jobs = sorted((store.jobs.get(owner, job_id) for job_id in job), key=lambda each: each.created)
    sides = [_load_sides(store, each) for each in jobs]
    chosen = _choose_targets(sides[0], sides[1], of_a, of_b)
    query = urlencode({"a": jobs[0].id, "b": jobs[1].id, "of_a": chosen[0], "of_b": chosen[1]})
    found = _compare_jobs(jobs, sides, chosen)
    body = render_comparison_body(found, DEFAULT_TOP_KERNELS)
    pairs = pair_steps(*sides)
    return render_report_page(
        "compare.html", jobs=jobs, sides=sides, chosen=chosen, query=query, body=body, pairs=pairs, is_alike=found.alike
    )


@router.get(
    "/api/v1/compare.{form}",
    tags=["jobs"],
    summary="Two reports compared",
    response_class=Response,
    responses=document_refusals(404) | {200: {"content": {"text/html": {}, "application/json": {}}}},
)
def compared(
    store: StoreDependency,
    owner: Owner,
    form: ComparisonForm,
    a: FirstJobId,
    b: SecondJobId,
    of_a: TargetChoice = None,
    of_b: TargetChoice = None,
    top: Annotated[int, Query(ge=0, le=10_000, description="Kernels to list of each kind.")] = DEFAULT_TOP_KERNELS,
) -> Response:
    """What changed between two measured runs, or how far a prediction was off from what was measured since."""
    jobs = [store.jobs.get(owner, job_id) for job_id in (a, b)]
    sides = [_load_sides(store, job) for job in jobs]
    found = _compare_jobs(jobs, sides, _choose_targets(sides[0], sides[1], of_a, of_b))
    headers = {"Content-Security-Policy": REPORT_FILE_POLICY}
    if form is ComparisonForm.JSON:
        return Response(as_json.as_json(found, top), headers=headers, media_type="application/json")
    return HTMLResponse(render_comparison_page(found, top), headers=headers)


def _load_sides(store: Store, job: WebJob) -> Sides:
    report = load_report(store, job)
    if report is None:
        raise NotFoundError(front_ends.REPORT_NOT_COMPARABLE(name=job.name))
    return make_sides(report, job.name)


def _choose_targets(a: Sides, b: Sides, of_a: str | None, of_b: str | None) -> tuple[str, str]:
    return choose_sides(a, b) if of_a is None and of_b is None else (of_a or "", of_b or "")


def _compare_jobs(jobs: Sequence[WebJob], sides: Sequence[Sides], targets: Sequence[str]) -> Comparison:
    a, b = (_select_side(job, known, target) for job, known, target in zip(jobs, sides, targets, strict=True))
    return compare(a, b)


def _select_side(job: WebJob, sides: Sides, target: str) -> ComparisonSide:
    if target not in sides:
        raise NotFoundError(
            front_ends.TARGET_NOT_IN_REPORT(name=job.name, target=target, targets=[*filter(None, sides)])
        )
    return sides[target]


@dataclass(frozen=True, slots=True)
class RunColumn:
    """One of the runs; its source and sides are empty before they are known."""

    job: WebJob
    source: dict[str, Any]
    sides: Sides
    sentence: str


def build_several_context(store: Store, job: WebJob) -> dict[str, Any]:
    """Build the template variables of the page that shows the runs of a split job."""
    columns = [_build_column(store, part) for part in store.jobs.list_parts(job)]
    times: dict[str, float] = {}
    for column in columns:
        for part, time_us in (column.sides[MEASURED_LABEL].parts if column.sides else {}).items():
            times[part] = max(times.get(part, 0.0), time_us)
    reported = [column.job for column in columns if column.sides]
    return {
        "columns": columns,
        "parts": sorted((part for part in times if times[part] > 0), key=lambda part: -times[part]),
        "targets": _list_targets(columns),
        "pairs": [*combinations(reported, 2)],
        "is_waiting": any(column.job.is_active for column in columns),
    }


def _build_column(store: Store, job: WebJob) -> RunColumn:
    source = (job.found or {}).get("source", {})
    report = None if not job.formats or job.is_active else load_report(store, job)
    if report is None:
        return RunColumn(job, source, {}, "")
    sentence = report.decision.sentence.render(name_field) if report.decision else ""
    return RunColumn(job, source, make_sides(report, job.name), sentence)


def _list_targets(columns: Sequence[RunColumn]) -> list[str]:
    """Return the targets of all runs."""
    return [label for label in dict.fromkeys(label for column in columns for label in column.sides) if label]
