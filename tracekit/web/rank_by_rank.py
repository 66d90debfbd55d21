"""Jobs of more ranks than a worker takes at once: the server's engine works on one rank after the other.

The report is that of a job of many ranks (:mod:`tracekit.fleet`). The worker itself reads one of them, which tells what
can be asked. The ranks' tables lie in the claim's scratch folder while the job runs, so that they vanish with it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tracekit.capturing.recordings import load_recording
from tracekit.engine import Engine, open_engine
from tracekit.errors import EngineError, TraceError
from tracekit.fleet import FleetReport, ReadingOptions
from tracekit.ingest import SKIPPABLE_ERRORS
from tracekit.ingest.ranks import parse_rank_from_name
from tracekit.ingest.source import ExpandedInputs, TraceSource, expand_inputs
from tracekit.messages import ProgressCallback, fleets, front_ends, requests, traces
from tracekit.messages.reports import ONE_RANK_READ
from tracekit.render.private_details import remove_details
from tracekit.request import answers
from tracekit.trace import Trace
from tracekit.web.ask import Ask, make_rank_by_rank_error
from tracekit.web.errors import WebError
from tracekit.web.jobs import RANKS_FOUND, WebJob
from tracekit.web.progress import FleetProgress
from tracekit.web.reports import BODY_FORM, FLEET_FORMATS, encode_body, name_report_file
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.traces import split_doubtful, split_refused, summarize_traces
from tracekit.web.uploads import Upload

ROOM = 2
"""Memory that a rank may take while it is read, in sizes of its tables; ranks of one job are about alike."""
MEANT_FOR_ONE = (traces.RANK_MISSING.code, traces.RANKS_MISSING.code, ONE_RANK_READ.code)
"""Warnings of one rank alone that aren't true of the job, whose others were given."""


@dataclass(frozen=True)
class RankByRank:
    """A job that may be one for the server's engine.

    Attributes:
        job: The job.
        request: What is asked.
        uploads: Its files.
        sources: The same, as they can be read.
        settings: The server's settings.
        store: Where progress and results go.
        scratch: The claim's folder.
        tables_bytes: Memory limit of the tables.
    """

    job: WebJob
    request: Ask
    uploads: Sequence[Upload]
    sources: Sequence[TraceSource]
    settings: Settings
    store: Store
    scratch: Path
    tables_bytes: int

    @cached_property
    def given(self) -> ExpandedInputs:
        """The files, members of archives included."""
        return expand_inputs(self.sources)

    @property
    def is_possible(self) -> bool:
        """True if the engine can do what is asked."""
        is_of_many = self.settings.engine is not None and self.request.ranks is None and len(self.given.traces) > 1
        return is_of_many and not answers.list_refused_options(self.request)

    @property
    def is_due(self) -> bool:
        """True if the job has so many ranks that it is one for the engine, or was one before."""
        if self.settings.engine is None or self.request.ranks is not None:
            return False
        return len(self.given.traces) >= self.settings.engine_ranks or self.job.ranks_one_by_one > 0

    def run(self) -> list[str]:
        """Summarize the traces, and write the report that is asked for; return its forms, none without a request.

        Raises:
            SeveralRunsError: The traces are of several runs.
            WebError: The engine fails, or an option needs all ranks at once.
            TracekitError: No rank can be read, or the request doesn't fit them.
        """
        for option in answers.list_refused_options(self.request):
            raise make_rank_by_rank_error(option, len(self.given.traces))
        enter = FleetProgress(self.store, self.job, len(self.request.gpus) + len(self.request.clusters)).enter
        found, rank_bytes = self._examine(enter)
        self.store.jobs.set_found(self.job, found)
        if self.job.request is None:
            return []
        report = self._predict(enter, max(1, self.tables_bytes // (ROOM * max(rank_bytes, 1))))
        self.store.jobs.set_found(self.job, _update_summary(found, report))
        self._write_forms(report, enter)
        return list(FLEET_FORMATS)

    def _examine(self, enter: ProgressCallback) -> tuple[dict[str, Any], int]:
        """Summarize the traces by the lowest rank that can be read; return the size of its tables, too."""
        trace = self._load_first_rank(enter)
        run = answers.measure(trace, self.request, enter)
        enter(requests.EXAMINING())
        ranks = len(self.given.traces)
        found = summarize_traces(trace, run, run, beside=ranks - 1)
        warnings = [one for one in found["warnings"] if one["code"] not in MEANT_FOR_ONE]
        tables_bytes = sum(rank.tables_bytes for rank in trace.ranks)
        return found | {"warnings": warnings, RANKS_FOUND: ranks}, tables_bytes

    def _load_first_rank(self, enter: ProgressCallback) -> Trace:
        beside = [*self.given.execution_traces, *self.given.captures, *self.given.model_configs]
        failed: list[TraceError] = []
        for source in sorted(self.given.traces, key=lambda one: parse_rank_from_name(one.name) or 0):
            try:
                trace = load_recording([source, *beside], cache=False, memory=self.tables_bytes, progress=enter)
            except SKIPPABLE_ERRORS as error:
                failed.append(error)
                continue
            return replace(trace, warnings=tuple(one for one in trace.warnings if one.code not in MEANT_FOR_ONE))
        raise failed[0]

    def _predict(self, enter: ProgressCallback, most: int) -> FleetReport:
        """Work on all ranks, in this process on so many at a time at most."""
        enter(fleets.OPENING_ENGINE())
        try:
            engine = open_engine(str(self.settings.engine), most)
            try:
                _check_reach(engine, (str(self.scratch), *self._list_places()))
                reading = ReadingOptions(store=str(self.scratch), memory=self.tables_bytes)
                report = answers.predict_fleet(self.sources, self.request, engine, enter, reading)
            finally:
                engine.close()
        except EngineError as error:
            raise WebError(front_ends.ENGINE_FAILED(reason=error.message)) from error
        except TraceError as error:
            split_refused(error, self.uploads)
            raise
        split_doubtful(report.warnings, self.uploads)
        return report

    def _list_places(self) -> list[str]:
        """Return one file of each folder that the traces lie in."""
        return list({path.parent: str(path) for one in self.sources if (path := one.path)}.values())

    def _write_forms(self, report: FleetReport, enter: ProgressCallback) -> None:
        """Write all forms without details, and with them too where that differs."""
        shared = remove_details(report)
        for with_details, version in ({False: shared} if shared == report else {False: shared, True: report}).items():
            body = self.scratch / name_report_file(BODY_FORM, with_details=with_details)
            body.write_bytes(encode_body(version))
            for suffix, form in FLEET_FORMATS.items():
                enter(requests.WRITING_FORM(form=form.title))
                path = self.scratch / name_report_file(suffix, with_details=with_details)
                path.write_bytes(form.render(version))


def _update_summary(found: dict[str, Any], report: FleetReport) -> dict[str, Any]:
    """Return the summary by one rank with what all of them tell."""
    return found | {
        "source": found["source"] | {"step_time_us": report.step.step_time_us, "measured": report.ranks},
        "diagnosis": found["diagnosis"] | {"ranks_read": report.ranks},
        "warnings": [one.to_dict() for one in report.warnings],
        "refused": [],
    }


def _check_reach(engine: Engine, places: tuple[str, ...]) -> None:
    """Refuse workers that can't use the server's files.

    Raises:
        WebError: There are some.
    """
    told = engine.run_everywhere(_can_use, places)
    lacking = sum(one is not True for one in told)
    if lacking:
        raise WebError(front_ends.ENGINE_WITHOUT_FILES(lacking=lacking, workers=len(told)))


def _can_use(places: tuple[str, ...]) -> bool:
    """Return whether this process can write into the first place, a folder, and read all."""
    return os.access(places[0], os.W_OK) and all(os.access(one, os.R_OK) for one in places)
