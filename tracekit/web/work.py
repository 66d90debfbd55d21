"""What a worker does for a job: read its traces, say what is in them, predict, write the reports."""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracekit import ingest
from tracekit.comm import ClusterError
from tracekit.doctor import examine
from tracekit.ingest.source import Source, expand, of_file
from tracekit.prediction import Change, LayoutError, Predictions, Refused, predict, targets
from tracekit.prediction.prices import parse_prices
from tracekit.replay.run import Run, prepare
from tracekit.reporting import of_predictions
from tracekit.reporting.sections import coverage, idle, source, table, warnings
from tracekit.trace import Trace
from tracekit.web import sides, unpacked
from tracekit.web.excerpt import excerpt
from tracekit.web.formats import FORMATS, TIMELINE
from tracekit.web.jobs import Job
from tracekit.web.layout import change_of
from tracekit.web.settings import Settings
from tracekit.web.store import Store

# Of its address space, what a worker leaves to everything but the tables.
TABLES_SHARE = 0.5

Stage = Callable[[str], object]


def work(job: Job, settings: Settings, store: Store) -> None:
    """Do one job.

    Raises:
        TracekitError: The traces or the request are at fault.
        PredictorError: A GPU isn't known.
        OSError: The store can't be read, or its disk is full.
    """
    scratch = store.jobs.scratch(str(job.claim))
    scratch.mkdir(parents=True)
    try:
        formats = _work(job, settings, store, scratch)
        store.jobs.finish(job, formats)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _work(job: Job, settings: Settings, store: Store, scratch: Path) -> list[str]:
    """The forms that were written; none if nothing was asked yet."""
    request = job.request or {}

    def enter(stage: str) -> None:
        store.jobs.enter(job, stage)

    enter("check the files")
    sources = _sources(job, settings, store, scratch)
    rank, memory_bytes = request.get("rank"), int(settings.worker_bytes * TABLES_SHARE)
    trace = ingest.load(
        sources, ranks=None if rank is None else [rank], cache=False, memory=memory_bytes, progress=enter
    )
    options: dict[str, Any] = {
        "source_gpu": request.get("source_gpu"),
        "steps": request.get("steps"),
        "progress": enter,
    }
    lowest = prepare(trace, rank=trace.ranks[0].rank, **options)
    run = lowest if len(trace.ranks) == 1 else prepare(trace, **options)
    enter("examine")
    known = found(trace, run, lowest)
    store.jobs.note(job, known)
    if job.request is None:
        return []
    written, left_out, refused = _report(job, run, scratch, enter)
    store.jobs.note(job, known | {"warnings": known["warnings"] + left_out, "refused": refused})
    enter("keep the reports")
    _keep(job, store, scratch, [sides.FILE, *(f"report.{suffix}" for suffix in written)])
    return written


def found(trace: Trace, run: Run, lowest: Run) -> dict[str, Any]:
    """What is in the traces: the source, the diagnosis and its grade, how much can be modelled.

    Args:
        trace: All ranks that were read.
        run: All of them as one job.
        lowest: The one of the lowest rank, by which the recording is judged.
    """
    return {
        "source": dataclasses.asdict(source.build(run)),
        "coverage": dataclasses.asdict(coverage.build(table.in_steps(run, ()))),
        "diagnosis": dataclasses.asdict(examine(trace, lowest)),
        "warnings": list(warnings.build(run, idle.of(run))),
    }


def _sources(job: Job, settings: Settings, store: Store, scratch: Path) -> list[Source]:
    """The uploads, called by the names that their owner gave them."""
    seen: Counter[str] = Counter()
    named: list[Source] = []
    packed_bytes = 0
    uploads = store.uploads.of_job(job.id)
    for upload in uploads:
        seen[upload.name] += 1
        name = upload.name if seen[upload.name] == 1 else f"{upload.name} ({seen[upload.name]})"
        path = store.files.fetch(upload.key, scratch)
        packed_bytes += path.stat().st_size
        named.append(replace(of_file(path), name=name, is_listed=len(uploads) > 1))
    given = expand(named)
    unpacked.check(
        [*given.traces, *given.observed, *given.captures],
        packed_bytes,
        most_bytes=settings.max_unpacked_bytes,
        most_files=settings.max_files,
    )
    return named


def _report(job: Job, run: Run, scratch: Path, enter: Stage) -> tuple[list[str], list[str], list[dict[str, str]]]:
    """Write all forms; which they are, what they leave out, and what couldn't be predicted."""
    enter("predict")
    predicted = _predicted(run, job.request or {})
    report = of_predictions(predicted)
    (scratch / sides.FILE).write_bytes(sides.pack(report, job.name))
    drawn, left_out = excerpt(predicted.run, 1 + len(report.targets))
    written = [suffix for suffix in FORMATS if suffix != TIMELINE or drawn is not None]
    for suffix in written:
        enter(f"write {FORMATS[suffix].title}")
        (scratch / f"report.{suffix}").write_bytes(FORMATS[suffix].render(report, drawn or predicted.run))
    told = [{"target": one.label, "message": one.error.message, "hint": one.error.hint} for one in predicted.refused]
    return written, [left_out] if left_out else [], told


def _predicted(run: Run, request: Mapping[str, Any]) -> Predictions:
    """The step on each target; a layout is that of the clusters, another batch is everywhere.

    Raises:
        ClusterError: The job fits on none of them.
        LayoutError: The job can't be laid out like that on any of them.
    """
    prices = parse_prices(request.get("prices", []))
    asked = change_of(request)
    alone = Change(batch=asked.batch)
    together = [(request["gpus"], request["clusters"], asked)]
    apart = [(request["gpus"], [], alone), ([], request["clusters"], asked)]
    found: list[Predictions] = []
    refused: list[Refused] = []
    for gpus, clusters, change in together if asked == alone else apart:
        try:
            found.append(
                predict(
                    run, gpus, clusters=clusters, source_cluster=request["source_cluster"], change=change, prices=prices
                )
            )
        except (ClusterError, LayoutError) as error:
            refused.append(Refused(", ".join(target.label for target in targets(gpus, clusters)), error))
    predicted = tuple(target for one in found for target in one.targets)
    if refused and not predicted:
        raise refused[0].error
    return replace(found[0], targets=predicted, refused=(*refused, *(why for one in found for why in one.refused)))


def _keep(job: Job, store: Store, scratch: Path, names: list[str]) -> None:
    """Put the reports where this claim's belong; all of them, or none."""
    place = f"jobs/{job.id}/{job.claim}"
    try:
        for name in names:
            store.files.keep(scratch / name, f"{place}/{name}")
    except BaseException:
        store.files.remove(place)
        raise
