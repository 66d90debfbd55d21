"""The measured run that a worker prepared last, kept for the next request about the same traces.

Reading and linking a trace takes most of a job; another batch or host only needs the prediction.
"""

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.request import RunOptions, list_fields
from tracekit.web.ask import Ask
from tracekit.web.jobs import WebJob
from tracekit.web.store import Store

if TYPE_CHECKING:
    from tracekit.run import MeasuredRun

KEPT_S = 600.0
"""Time without a request after which a run is dropped."""
CHECK_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A measured run, and what is told of its traces."""

    run: "MeasuredRun"
    known: dict[str, Any]


@dataclass(slots=True)
class RunKeeper:
    """Keeps one prepared run; another one replaces it."""

    _traces_id: str | None = None
    _options: str = ""
    _kept: PreparedRun | None = None
    _used: float = field(default_factory=time.monotonic)
    _checked: float = field(default_factory=time.monotonic)

    def get(self, job: WebJob, request: Ask) -> PreparedRun | None:
        """Return the run that a request about a job's traces needs; drop another one, which needs the memory."""
        if (self._traces_id, self._options) != (job.traces_id, _encode_run_options(request)):
            self.drop()
        self._used = time.monotonic()
        return self._kept

    def keep(self, job: WebJob, request: Ask, prepared: PreparedRun) -> None:
        """Keep a run for other requests about the job's traces."""
        self._traces_id, self._options = job.traces_id, _encode_run_options(request)
        self._kept, self._used = prepared, time.monotonic()

    def drop(self) -> None:
        """Drop the run."""
        self._traces_id, self._options, self._kept = None, "", None

    def drop_unused(self, store: Store) -> None:
        """Drop a run that nobody asked about for a while, or whose traces were deleted."""
        now = time.monotonic()
        if self._traces_id is None or now - self._checked < CHECK_INTERVAL_S:
            return
        self._checked = now
        if now - self._used > KEPT_S or not store.jobs.exists(self._traces_id):
            self.drop()


def _encode_run_options(request: Ask) -> str:
    """Encode the options that a measured run depends on."""
    names = [item.name for item in list_fields(RunOptions) if item.name in Ask.__dataclass_fields__]
    return json.dumps([request.ranks, *(getattr(request, name) for name in names)])


KEEPER = RunKeeper()
"""The run of this process."""
