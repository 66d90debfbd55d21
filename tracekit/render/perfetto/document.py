"""The measured and the predicted timelines side by side, as one trace file."""

import gzip
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import msgspec
import numpy as np
import polars as pl

from tracekit.prediction import Prediction
from tracekit.render.perfetto import events, tracks
from tracekit.render.perfetto.lane import Lane
from tracekit.replay.engine import lags, measured, replay
from tracekit.replay.run import Run

BLOCK = 100
"""Process numbers that a rank takes."""
HOST = 50
"""Offset of a timeline's CPU threads from its GPU."""


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
    lanes = list(_lanes(run, targets))
    rows = [row for lane in lanes for row in _events(run, lane)]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": lane.place, "name": lane.gpu_name} for lane in lanes],
        "displayTimeUnit": "ms",
        "tracekit": version("tracekit"),
    }
    text = msgspec.json.encode(head)[:-1] + b',"traceEvents":[\n' + ",\n".join(rows).encode() + b"\n]}\n"
    return gzip.compress(text, mtime=0) if compress else text


def _lanes(run: Run, targets: Sequence[Prediction]) -> Iterator[Lane]:
    """Every timeline, shifted so that all begin the chosen steps at the same moment."""
    here = run.gpu.name if run.gpu else "GPU not recorded"
    recorded, lag_ns = measured(run.graph), lags(run.graph)
    origin_ns = tracks.begin_ns(run, recorded, lag_ns)
    yield Lane(0, "measured", here, recorded, lag_ns, origin_ns, run.kernels["dur_ns"] / 1e3, _bounds(run))
    for place, target in enumerate(targets, 1):
        time_us, bound_us = target.kernels["time_us"], target.kernels["bound_us"]
        durations = np.rint(time_us.to_numpy() * 1e3).astype(np.int64)
        played, lag_ns = replay(run.graph, durations), lags(run.graph, durations)
        origin_ns = tracks.begin_ns(run, played, lag_ns)
        label, name = f"predicted on {target.label}", target.target.gpu.name
        yield Lane(place, label, name, played, lag_ns, origin_ns, time_us, bound_us)


def _bounds(run: Run) -> pl.Series:
    if run.gpu is None:
        return pl.Series("bound_us", [None] * run.kernels.height, dtype=pl.Float64)
    import predictors

    return predictors.predict(run.kernels, run.gpu)["bound_us"]


def _events(run: Run, lane: Lane) -> Iterator[str]:
    for rank in tracks.ranks(run):
        pid = BLOCK * rank + lane.place
        said = f"rank {rank}: {lane.label}" if len(tracks.ranks(run)) > 1 or run.trace.rank is not None else lane.label
        yield from events.process(pid, f"{said} ({lane.gpu_name})", pid)
        yield from events.thread(pid, tracks.CRITICAL, "critical path", -2)
        yield from events.thread(pid, tracks.IDLE, "GPU idle", -1)
        yield from events.slices(tracks.kernels(run, lane, rank).with_columns(pid=pl.lit(pid)))
        yield from events.slices(tracks.idle(run, lane, rank).with_columns(pid=pl.lit(pid)))
        yield from events.counter(tracks.roofline(run, lane, rank).with_columns(pid=pl.lit(pid)), "% of roofline")
    if len(tracks.ranks(run)) == 1:
        yield from events.process(pid + HOST, f"CPU, {said}", pid)
        yield from events.slices(tracks.calls(run, lane).with_columns(pid=pl.lit(pid + HOST)))
    path = tracks.critical(run, lane).with_columns(pid=pl.lit(BLOCK * tracks.ranks(run)[0] + lane.place))
    yield from events.slices(path)
    yield from events.flows(tracks.critical_kernels(run, lane, BLOCK), "critical path", lane.place)
