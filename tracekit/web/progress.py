"""How far a worker has come with a job, by the stage that begins."""

from tracekit.messages import Message, stages
from tracekit.web.field_labels import name_field
from tracekit.web.formats import FORMATS
from tracekit.web.jobs import WebJob
from tracekit.web.store import Store

STAGE_BEGINS = {
    stages.CHECKING_FILES.code: 0.0,
    stages.READING_TRACE.code: 0.02,
    stages.READING_FILE.code: 0.02,
    stages.CAPTURING.code: 0.02,
    stages.COMPILING_LOOPS.code: 0.4,
    stages.CLASSIFYING_KERNELS.code: 0.4,
    stages.LINKING_DEPENDENCIES.code: 0.45,
    stages.REPLAYING.code: 0.5,
    stages.EXAMINING.code: 0.55,
    stages.PREDICTING.code: 0.6,
    stages.WRITING_FORM.code: 0.8,
    stages.STORING_REPORTS.code: 0.98,
}
"""Fraction of a job that is done as a stage begins, as measured on traces of 8 to 60 MB."""
EXAMINED = STAGE_BEGINS[stages.PREDICTING.code]
"""Fraction at which a job ends that only examines."""


class JobProgress:
    """The progress of one job, kept in the database; it never goes back.

    Args:
        store: Where it is kept.
        job: The job.
    """

    def __init__(self, store: Store, job: WebJob) -> None:
        self._store, self._job = store, job
        self._forms = 0
        self._fraction = 0.0

    def enter(self, stage: Message) -> None:
        """Note that a stage begins."""
        self._fraction = max(self._fraction, self._find_begin(stage) / (1 if self._job.request else EXAMINED))
        self._store.jobs.set_stage(self._job, stage.render(name_field), min(self._fraction, 1.0))

    def _find_begin(self, stage: Message) -> float:
        begin = STAGE_BEGINS.get(stage.code, 0.0)
        if stage.code == stages.READING_FILE.code:
            number, files = (int(str(stage.values[name])) for name in ("number", "files"))
            return begin + (STAGE_BEGINS[stages.CLASSIFYING_KERNELS.code] - begin) * (number - 1) / files
        if stage.code == stages.WRITING_FORM.code:
            self._forms += 1
            return begin + (STAGE_BEGINS[stages.STORING_REPORTS.code] - begin) * (self._forms - 1) / len(FORMATS)
        return begin
