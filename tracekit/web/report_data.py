"""A job's report as data, stored beside its other forms."""

from tracekit.errors import TraceError
from tracekit.reporting.model import Report
from tracekit.web.jobs import WebJob
from tracekit.web.store import Store

REPORT_FILE = "report.data"
"""File beside a report's formats that holds :meth:`Report.to_json`."""


def load_report(store: Store, job: WebJob) -> Report | None:
    """Load a job's report; ``None`` if there is none, or another version of tracekit wrote it."""
    try:
        with store.files.open(f"jobs/{job.id}/{job.output}/{REPORT_FILE}") as file:
            return Report.from_json(file.read())
    except (FileNotFoundError, TraceError):
        return None
