"""How far a worker has come with a job, by the stage that begins."""

import time

from tracekit.messages import Message, Template, fleets, requests
from tracekit.request.stage_plan import MEASURING, compute_share_done
from tracekit.web.ask import name_field
from tracekit.web.jobs import WebJob
from tracekit.web.reports import FORMATS
from tracekit.web.store import Store

EXAMINED = (requests.CHECKING_FILES, *MEASURING, requests.EXAMINING)
"""Stages of a job that only examines."""
PREDICTED = (*EXAMINED, requests.PREDICTING, requests.BUILDING_REPORT, requests.WRITING_FORM, requests.STORING_REPORTS)
"""Stages of a job that predicts."""


FIRST_RANK, READING, REPLAYS = 0.02, 0.58, 0.36
"""Parts of a job of ranks one by one: examining the first, reading all, predicting and replaying all."""
WRITE_INTERVAL_S = 0.5


class JobProgress:
    """The progress of one job, kept in the database; it never goes back."""

    def __init__(self, store: Store, job: WebJob) -> None:
        self._store, self._job = store, job
        self._plan = PREDICTED if job.request else EXAMINED
        self._forms = 0
        self._fraction = 0.0

    def enter(self, stage: Message) -> None:
        """Note that a stage begins."""
        self._fraction = max(self._fraction, self._advance(stage))
        self._write(stage)

    def _write(self, stage: Message) -> None:
        self._store.jobs.set_stage(self._job, stage.render(name_field), self._fraction)

    def _advance(self, stage: Message) -> float:
        """Count a form that is begun; return the fraction of the job that is done, 0 for a stage that isn't planned."""
        is_form = stage.template is requests.WRITING_FORM
        done = compute_share_done(stage, self._plan, self._forms / len(FORMATS) if is_form else 0.0)
        self._forms += is_form
        return done or 0.0


class FleetProgress(JobProgress):
    """The progress of a job whose ranks are worked on one by one."""

    def __init__(self, store: Store, job: WebJob, targets: int) -> None:
        super().__init__(store, job)
        self._targets, self._replays = targets, 0
        self._template: Template | None = None
        self._entered = 0.0

    def enter(self, stage: Message) -> None:
        """Note that a stage begins, or how many ranks it has done: twice a second, so that the database isn't busy."""
        self._fraction = max(self._fraction, self._advance(stage))
        now = time.monotonic()
        if stage.template is not self._template or now >= self._entered + WRITE_INTERVAL_S:
            self._template, self._entered = stage.template, now
            self._write(stage)

    def _advance(self, stage: Message) -> float:
        """Count a replay of all ranks that is done; return the fraction of the job that is done."""
        if stage.template is fleets.READING_RANKS:
            done, ranks = stage.values["done"], stage.values["ranks"]
            assert isinstance(done, int)
            assert isinstance(ranks, int)
            return FIRST_RANK + READING * done / ranks
        if stage.template is fleets.REPLAYING_RANKS and stage.values["done"] == stage.values["ranks"]:
            self._replays += 1
            return FIRST_RANK + READING + REPLAYS * min(1.0, self._replays / (1 + self._targets))
        return FIRST_RANK + READING + REPLAYS if stage.template is requests.WRITING_FORM else 0.0
