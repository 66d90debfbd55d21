"""The stored forms of a report: what is shared, and beside it what its owner sees where that is more.

:mod:`tracekit.render.private_details` has the rule of what a shared report leaves out.
"""

from contextlib import suppress
from typing import BinaryIO

from tracekit.web.jobs import WebJob
from tracekit.web.store import Store

BODY_FORM = "body"
"""The form that the site's own pages show."""


def name_report_file(form: str, *, with_details: bool) -> str:
    """Return the name of a stored form, with or without prices and other details."""
    return f"{'details' if with_details else 'report'}.{form}"


def has_details(store: Store, job: WebJob) -> bool:
    """Return whether a job's report holds details that are not shared."""
    return store.files.has(_build_key(job, BODY_FORM, with_details=True))


def open_report(store: Store, job: WebJob, form: str, *, with_details: bool) -> BinaryIO:
    """Open a form of a job's report; with details where there are some and they are asked for.

    Raises:
        FileNotFoundError: The report doesn't exist in that form.
    """
    if with_details:
        with suppress(FileNotFoundError):
            return store.files.open(_build_key(job, form, with_details=True))
    return store.files.open(_build_key(job, form, with_details=False))


def _build_key(job: WebJob, form: str, *, with_details: bool) -> str:
    return f"jobs/{job.id}/{job.output}/{name_report_file(form, with_details=with_details)}"
