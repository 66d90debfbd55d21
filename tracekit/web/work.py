"""Process a job: read its traces, summarize them, predict, write the reports."""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracekit.bounds import MAX_MODEL_CONFIG_BYTES
from tracekit.capturing.options import is_config_text
from tracekit.capturing.recordings import load_recording
from tracekit.errors import TraceError, TraceTooLargeError
from tracekit.export.perfetto.document import limit_timeline_steps
from tracekit.ingest.source import TraceSource, expand_inputs, make_file_source
from tracekit.messages import ProgressCallback, requests
from tracekit.redact.redactor import find_private_names
from tracekit.render.private_details import remove_details
from tracekit.reporting import build_prediction_report
from tracekit.request import answers
from tracekit.run import MeasuredRun
from tracekit.trace import Trace
from tracekit.web import traces
from tracekit.web.ask import Ask
from tracekit.web.errors import serialize_error
from tracekit.web.jobs import WebJob
from tracekit.web.prepared import KEEPER, PreparedRun
from tracekit.web.progress import JobProgress
from tracekit.web.rank_by_rank import RankByRank
from tracekit.web.reports import BODY_FORM, FORMATS, REPORT_FILE, TIMELINE_FORMAT, encode_body, name_report_file
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.traces import SeveralRunsError, split_doubtful, split_refused, summarize_traces
from tracekit.web.uploads import Upload

# Fraction of a worker's address space available to the tables; the rest is for everything else.
TABLES_FRACTION = 0.5
CONFIG_NAME = "config.json"


def execute_job(job: WebJob, settings: Settings, store: Store) -> None:
    """Process one job.

    Raises:
        TracekitError: The traces or the request are invalid.
        PredictorError: A GPU is unknown.
        OSError: The store can't be read, or its disk is full.
    """
    scratch = store.jobs.get_scratch_directory(str(job.claim))
    scratch.mkdir(parents=True)
    try:
        formats = _run_stages(job, settings, store, scratch)
        report_bytes = _store_reports(job, store, scratch) if formats else 0
        if not store.jobs.finish(job, formats, report_bytes):
            store.files.remove(f"jobs/{job.id}/{job.claim}")
    except SeveralRunsError as error:
        store.jobs.split(job, error.parts)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_stages(job: WebJob, settings: Settings, store: Store, scratch: Path) -> list[str]:
    """Run the job's stages; return the formats written, none if nothing was requested yet."""
    enter = JobProgress(store, job).enter
    request = Ask(**job.request or {})
    prepared = KEEPER.get(job, request)
    if prepared is not None:
        return _report(job, prepared, request.move_tables(request), store, scratch, enter)
    enter(requests.CHECKING_FILES())
    uploads = store.uploads.list_for_job(job.traces_id)
    sources = _fetch_sources(uploads, settings, store, scratch)
    tables_bytes = int(settings.worker_bytes * TABLES_FRACTION)
    ranks = RankByRank(job, request, uploads, sources, settings, store, scratch, tables_bytes)
    if ranks.is_due:
        return ranks.run()
    try:
        prepared, left = _prepare(job, request, uploads, sources, tables_bytes, scratch, enter)
    except TraceTooLargeError:
        if not ranks.is_possible:
            raise
    else:
        return _report(job, prepared, left, store, scratch, enter)
    return ranks.run()  # once what was read is forgotten


def _report(
    job: WebJob, prepared: PreparedRun, request: Ask, store: Store, scratch: Path, enter: ProgressCallback
) -> list[str]:
    """Tell what was found in the traces, and write the reports that are asked for; return their formats."""
    known = prepared.known
    store.jobs.set_found(job, known)
    if job.request is None:
        return []
    written, left_out, refused = _write_reports(prepared.run, request, scratch, enter)
    store.jobs.set_found(job, known | {"warnings": known["warnings"] + left_out, "refused": refused})
    return written


def _prepare(
    job: WebJob,
    request: Ask,
    uploads: Sequence[Upload],
    sources: Sequence[TraceSource],
    tables_bytes: int,
    scratch: Path,
    enter: ProgressCallback,
) -> tuple[PreparedRun, Ask]:
    """Measure the run, which is kept for other requests; return what is left to ask of it."""
    is_config = len(sources) == 1 and is_config_text(sources[0].read_head())
    if is_config:
        enter(requests.CAPTURING())
        trace, left = _capture_config(sources[0], request, scratch)
    else:
        request.refuse_without_program(request)
        left = request.move_tables(request)
        trace = _load_trace(sources, uploads, left, tables_bytes, enter)
    lowest = answers.measure(trace, left, enter, rank=trace.ranks[0].rank)
    run = lowest if len(trace.ranks) == 1 else answers.measure(trace, left, enter)
    enter(requests.EXAMINING())

    def measure(rank: int | None) -> MeasuredRun:
        return answers.measure(trace, left, enter, rank=rank)

    prepared = PreparedRun(run, summarize_traces(trace, run, lowest, measure=measure))
    if not is_config:
        KEEPER.keep(job, request, prepared)
    return prepared, left


def _load_trace(
    sources: Sequence[TraceSource], uploads: Sequence[Upload], request: Ask, tables_bytes: int, enter: ProgressCallback
) -> Trace:
    """Load the traces of one run.

    Raises:
        SeveralRunsError: They are of several runs.
    """
    ranks = None if request.ranks is None else [request.ranks]
    try:
        trace = load_recording(sources, ranks=ranks, cache=False, memory=tables_bytes, progress=enter)
    except TraceError as error:
        split_refused(error, uploads)
        raise
    split_doubtful(trace.warnings, uploads)
    return trace


def _capture_config(source: TraceSource, request: Ask, scratch: Path) -> tuple[Trace, Ask]:
    """Capture the model of a configuration; return its trace, and what is left to ask of it."""
    config = scratch / CONFIG_NAME
    with source.open() as stream:
        config.write_bytes(stream.read(MAX_MODEL_CONFIG_BYTES))
    return request.capture_trace(str(config), request)


def _fetch_sources(uploads: Sequence[Upload], settings: Settings, store: Store, scratch: Path) -> list[TraceSource]:
    """Fetch the uploads, with the names that their owner gave them."""
    seen: Counter[str] = Counter()
    named: list[TraceSource] = []
    for upload in uploads:
        seen[upload.name] += 1
        name = upload.name if seen[upload.name] == 1 else f"{upload.name} ({seen[upload.name]})"
        path = store.files.fetch(upload.key, scratch)
        named.append(replace(make_file_source(path), name=name, is_listed=len(uploads) > 1))
    given = expand_inputs(named)
    traces.check_unpacked_size(
        [*given.traces, *given.execution_traces, *given.captures],
        most_bytes=settings.max_unpacked_bytes,
        most_files=settings.max_files,
    )
    return named


def _write_reports(
    run: MeasuredRun, request: Ask, scratch: Path, enter: ProgressCallback
) -> tuple[list[str], list[dict[str, Any]], list[dict[str, Any]]]:
    """Write all formats; return them, what they leave out, and the targets that couldn't be predicted.

    They are written without details, and with them too where that differs.
    """
    enter(requests.PREDICTING())
    predicted = answers.predict(run, request)
    enter(requests.BUILDING_REPORT())
    report = build_prediction_report(predicted)
    shared = remove_details(report, find_private_names([rank.metadata for rank in run.ranks]))
    versions = {False: shared, True: report} if report != shared else {False: shared}
    (scratch / REPORT_FILE).write_bytes(report.to_json())
    for with_details, version in versions.items():
        (scratch / name_report_file(BODY_FORM, with_details=with_details)).write_bytes(encode_body(version))
    steps = limit_timeline_steps(predicted.run, 1 + len(report.targets)) if request.timeline else (None, None)
    shown, left_out = steps
    drawn = shown and replace(predicted, run=shown)
    written = [suffix for suffix in FORMATS if suffix != TIMELINE_FORMAT or drawn is not None]
    for suffix in written:
        enter(requests.WRITING_FORM(form=FORMATS[suffix].title))
        for with_details, version in versions.items():
            if suffix != TIMELINE_FORMAT or not with_details:
                content = FORMATS[suffix].render(version, drawn or predicted)
                (scratch / name_report_file(suffix, with_details=with_details)).write_bytes(content)
    told = [{"target": one.label, **serialize_error(one.error)} for one in predicted.refused]
    return written, [left_out.to_dict()] if left_out else [], told


def _store_reports(job: WebJob, store: Store, scratch: Path) -> int:
    """Store the reports under this claim, all of them or none; return their bytes."""
    JobProgress(store, job).enter(requests.STORING_REPORTS())
    names = sorted(path.name for pattern in ("report.*", "details.*") for path in scratch.glob(pattern))
    place = f"jobs/{job.id}/{job.claim}"
    stored_bytes = sum((scratch / name).stat().st_size for name in names)
    try:
        for name in names:
            store.files.keep(scratch / name, f"{place}/{name}")
    except BaseException:
        store.files.remove(place)
        raise
    return stored_bytes
