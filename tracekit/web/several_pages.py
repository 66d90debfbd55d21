"""The runs of a job that was split, as its page shows them side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tracekit.web.comparison_sides import MEASURED_LABEL, Sides, make_sides
from tracekit.web.field_labels import name_field
from tracekit.web.jobs import WebJob
from tracekit.web.report_data import load_report
from tracekit.web.store import Store


@dataclass(frozen=True, slots=True)
class RunColumn:
    """One of the runs.

    Attributes:
        job: Its job.
        source: What was found of its trace; empty before that.
        sides: The measured run and the predictions; empty before there is a report.
        sentence: The report's decision.
    """

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
