"""How far a worker has come with a job, by the stage that begins."""

from tracekit.messages import Message, stages
from tracekit.request.stage_plan import MEASURING, compute_share_done
from tracekit.web.field_labels import name_field
from tracekit.web.formats import FORMATS
from tracekit.web.jobs import WebJob
from tracekit.web.store import Store

EXAMINED = (stages.CHECKING_FILES, *MEASURING, stages.EXAMINING)
"""Stages of a job that only examines."""
PREDICTED = (*EXAMINED, stages.PREDICTING, stages.BUILDING_REPORT, stages.WRITING_FORM, stages.STORING_REPORTS)
"""Stages of a job that predicts."""


class JobProgress:
    """The progress of one job, kept in the database; it never goes back.

    Args:
        store: Where it is kept.
        job: The job.
    """

    def __init__(self, store: Store, job: WebJob) -> None:
        self._store, self._job = store, job
        self._plan = PREDICTED if job.request else EXAMINED
        self._forms = 0
        self._fraction = 0.0

    def enter(self, stage: Message) -> None:
        """Note that a stage begins."""
        is_form = stage.template is stages.WRITING_FORM
        done = compute_share_done(stage, self._plan, self._forms / len(FORMATS) if is_form else 0.0)
        self._forms += is_form
        self._fraction = max(self._fraction, done or 0.0)
        self._store.jobs.set_stage(self._job, stage.render(name_field), self._fraction)
