"""The measured and the predicted timelines side by side, as one trace file."""

import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version

import msgspec
import polars as pl

from tracekit.prediction import Prediction
from tracekit.render.perfetto import events, tracks
from tracekit.render.perfetto.lane import Lane
from tracekit.replay.critical import critical_path
from tracekit.replay.engine import Timeline, measured, replay
from tracekit.replay.idle import attribute
from tracekit.replay.run import Run, whole_ns

BLOCK = 100
"""Process numbers that a rank takes."""
HOST = 50
"""Offset of a timeline's CPU threads from its GPU."""
GZIP_LEVEL = 6


def document(run: Run, targets: Sequence[Prediction] = (), *, compress: bool = True) -> bytes:
    """A trace with a process per rank and GPU, measured first, and a thread per stream.

    Beside the kernels, copies and CPU calls of the chosen steps, each timeline has the critical path as a thread and
    as flows between its kernels, idle time by cause as another, and the kernels' share of the roofline as a counter.
    CPU threads are there for a run of one rank.

    Args:
        run: The measured run.
        targets: Its predictions.
        compress: Whether to gzip it.
    """
    buffer = io.BytesIO()
    if compress:
        with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=GZIP_LEVEL, mtime=0) as file:
            file.writelines(_pieces(run, targets))
    else:
        buffer.writelines(_pieces(run, targets))
    return buffer.getvalue()


def _pieces(run: Run, targets: Sequence[Prediction]) -> Iterator[bytes]:
    """The file from its beginning to its end, timeline by timeline: text is twenty times what it packs to."""
    names = [_here(run), *(target.target.gpu.name for target in targets)]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": place, "name": name} for place, name in enumerate(names)],
        "displayTimeUnit": "ms",
        "tracekit": version("tracekit"),
    }
    yield msgspec.json.encode(head)[:-1] + b',"traceEvents":['
    separator = b"\n"
    for lane in _lanes(run, targets):
        for rows in filter(None, _events(lane)):
            yield separator + rows
            separator = b",\n"
    yield b"\n]}\n"


def _lanes(run: Run, targets: Sequence[Prediction]) -> Iterator[Lane]:
    """Every timeline, shifted so that all begin the chosen steps at the same moment."""
    time_us, bound_us = run.kernels["dur_ns"] / 1e3, _bounds(run)
    yield Lane(0, "measured", _here(run), run, *_analysed(run, measured(run.graph)), time_us, bound_us)
    for place, target in enumerate(targets, 1):
        there = replace(target.run, chosen=run.chosen)
        time_us, bound_us = target.replayed["time_us"], target.replayed["bound_us"]
        durations = whole_ns(time_us.to_numpy() * 1e3, "kernels")
        analysed = _analysed(there, replay(there.graph, durations))
        label = f"predicted on {target.label}{', all stages on one GPU' if target.pipeline else ''}"
        yield Lane(place, label, target.target.gpu.name, there, *analysed, time_us, bound_us)


def _analysed(run: Run, timeline: Timeline) -> tuple[Timeline, pl.DataFrame, pl.DataFrame, int]:
    """A timeline with its critical path, the causes of its idle time and its first moment."""
    path = critical_path(run, timeline).pieces
    causes = tracks.main_causes(attribute(run, timeline).pieces)
    return timeline, path, causes, tracks.begin_ns(run, timeline, path)


def _here(run: Run) -> str:
    return run.gpu.name if run.gpu else "GPU not recorded"


def _bounds(run: Run) -> pl.Series:
    if run.gpu is None:
        return pl.Series("bound_us", [None] * run.kernels.height, dtype=pl.Float64)
    import predictors

    return predictors.predict(run.kernels, run.gpu)["bound_us"]


def _events(lane: Lane) -> Iterator[bytes]:
    run = lane.run
    for rank in tracks.ranks(run):
        pid = BLOCK * rank + lane.place
        said = f"rank {rank}: {lane.label}" if len(tracks.ranks(run)) > 1 or run.trace.rank is not None else lane.label
        yield events.process(pid, f"{said} ({lane.gpu_name})", pid)
        yield events.thread(pid, tracks.CRITICAL, "critical path", -2)
        yield events.thread(pid, tracks.IDLE, "GPU idle", -1)
        yield events.slices(tracks.kernels(lane, rank).with_columns(pid=pl.lit(pid)))
        yield events.slices(tracks.idle(lane, rank).with_columns(pid=pl.lit(pid)))
        yield events.counter(tracks.roofline(lane, rank).with_columns(pid=pl.lit(pid)), "% of roofline")
    if len(tracks.ranks(run)) == 1:
        yield events.process(pid + HOST, f"CPU, {said}", pid)
        yield events.slices(tracks.calls(lane).with_columns(pid=pl.lit(pid + HOST)))
    path = tracks.critical(lane).with_columns(pid=pl.lit(BLOCK * tracks.ranks(run)[0] + lane.place))
    yield events.slices(path)
    yield events.flows(tracks.critical_kernels(lane, BLOCK), "critical path", lane.place)
