"""Write the measured and predicted timelines side by side as one trace file."""

import gzip
import io
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import msgspec
import polars as pl

from tracekit.analysis.critical_path import compute_critical_path
from tracekit.analysis.idle import attribute_idle_time
from tracekit.export.perfetto import events, tracks
from tracekit.export.perfetto.lane import Lane
from tracekit.prediction import Prediction
from tracekit.program import Program, round_to_ns
from tracekit.replay.engine import Timeline, replay
from tracekit.run import MeasuredRun

PIDS_PER_RANK = 100
"""Process ids reserved for each rank: one per timeline and its CPU threads."""
HOST_PID_OFFSET = 50
"""Offset from the process id of a timeline's GPU to that of its CPU threads."""
GZIP_LEVEL = 6


def render_timeline(run: MeasuredRun, targets: Sequence[Prediction] = (), *, compress: bool = True) -> bytes:
    """Return a trace with one process per rank and GPU, measured first, and one thread per stream.

    Each timeline contains the kernels, copies and CPU calls of the chosen steps. The critical path is a thread of its
    own, with flow arrows between its kernels. Idle time by cause is another thread, and the kernels' utilization of the
    roofline is a counter. CPU threads are drawn only for a run of one rank.

    Args:
        run: The measured run.
        targets: The predictions from this run.
        compress: Compress the trace with gzip.
    """
    buffer = io.BytesIO()
    if compress:
        with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=GZIP_LEVEL, mtime=0) as file:
            file.writelines(_generate_json(run, targets))
    else:
        buffer.writelines(_generate_json(run, targets))
    return buffer.getvalue()


def _generate_json(run: MeasuredRun, targets: Sequence[Prediction]) -> Iterator[bytes]:
    """Yield the file's bytes timeline by timeline: the uncompressed text is 20 times the compressed size."""
    names = [_name_source_gpu(run), *(target.target.gpu.gpu.name for target in targets)]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": place, "name": name} for place, name in enumerate(names)],
        "displayTimeUnit": "ms",
        "tracekit": version("tracekit"),
    }
    yield msgspec.json.encode(head)[:-1] + b',"traceEvents":['
    separator = b"\n"
    for lane in _build_lanes(run, targets):
        for rows in filter(None, _encode_lane(lane)):
            yield separator + rows
            separator = b",\n"
    yield b"\n]}\n"


def _build_lanes(run: MeasuredRun, targets: Sequence[Prediction]) -> Iterator[Lane]:
    """Yield every timeline, shifted so that all start the chosen steps at the same time."""
    time_us, bound_us = run.kernels["dur_ns"] / 1e3, _compute_bounds(run)
    yield Lane(
        0,
        "measured",
        _name_source_gpu(run),
        run.program,
        *_analyse_timeline(run.program, run.measured_timeline),
        time_us,
        bound_us,
    )
    for place, target in enumerate(targets, 1):
        there = target.program.replace_tables(chosen_steps=run.chosen_steps)
        time_us, bound_us = target.replayed_kernels["time_us"], target.replayed_kernels["bound_us"]
        durations = round_to_ns(time_us.to_numpy() * 1e3, "kernels")
        analysed = _analyse_timeline(there, replay(there.graph, durations))
        label = f"predicted on {target.label}{', all stages on one GPU' if target.pipeline else ''}"
        yield Lane(place, label, target.target.gpu.gpu.name, there, *analysed, time_us, bound_us)


def _analyse_timeline(program: Program, timeline: Timeline) -> tuple[Timeline, pl.DataFrame, pl.DataFrame, int]:
    """Return a timeline with its critical path, its main idle causes and its start in ns."""
    path = compute_critical_path(program, timeline).segments
    causes = tracks.find_main_causes(attribute_idle_time(program, timeline).segments)
    return timeline, path, causes, tracks.find_begin_ns(program, timeline, path)


def _name_source_gpu(run: MeasuredRun) -> str:
    return run.gpu.name if run.gpu else "GPU not recorded"


def _compute_bounds(run: MeasuredRun) -> pl.Series:
    if run.gpu is None:
        return pl.Series("bound_us", [None] * run.kernels.height, dtype=pl.Float64)
    import predictors

    return predictors.predict(run.kernels, run.gpu)["bound_us"]


def _encode_lane(lane: Lane) -> Iterator[bytes]:
    program = lane.program
    for rank in tracks.list_ranks(program):
        pid = PIDS_PER_RANK * rank + lane.index
        said = (
            f"rank {rank}: {lane.label}"
            if len(tracks.list_ranks(program)) > 1 or program.trace.rank is not None
            else lane.label
        )
        yield events.encode_process(pid, f"{said} ({lane.gpu_name})", pid)
        yield events.encode_thread(pid, tracks.CRITICAL_PATH_TID, "critical path", -2)
        yield events.encode_thread(pid, tracks.IDLE_TID, "GPU idle", -1)
        for place, (tid, name) in enumerate(tracks.list_streams(lane, rank)):
            yield events.encode_thread(pid, tid, name, place)
        yield events.encode_slices(tracks.build_kernel_slices(lane, rank).with_columns(pid=pl.lit(pid)))
        yield events.encode_slices(tracks.build_idle_slices(lane, rank).with_columns(pid=pl.lit(pid)))
        yield events.encode_counter(
            tracks.build_roofline_counter(lane, rank).with_columns(pid=pl.lit(pid)), "% of roofline"
        )
    if len(tracks.list_ranks(program)) == 1:
        yield events.encode_process(pid + HOST_PID_OFFSET, f"CPU, {said}", pid)
        yield events.encode_slices(tracks.build_call_slices(lane).with_columns(pid=pl.lit(pid + HOST_PID_OFFSET)))
    path = tracks.build_critical_path_slices(lane).with_columns(
        pid=pl.lit(PIDS_PER_RANK * tracks.list_ranks(program)[0] + lane.index)
    )
    yield events.encode_slices(path)
    yield events.encode_flows(tracks.find_critical_kernels(lane, PIDS_PER_RANK), "critical path", lane.index)
