"""Write the measured and predicted timelines side by side as one trace file."""

import gzip
import io
from collections.abc import Iterator, Sequence

import msgspec
import polars as pl

from tracekit.analysis.critical_path import compute_critical_path
from tracekit.analysis.idle import attribute_idle_time
from tracekit.export.perfetto import events, host_tracks, tracks
from tracekit.export.perfetto.lane import Lane
from tracekit.prediction import Prediction
from tracekit.program import Program, round_to_ns
from tracekit.replay.engine import Timeline, replay
from tracekit.reporting.sections.source import label_times
from tracekit.run import MeasuredRun
from tracekit.version import __version__

PIDS_PER_RANK = 100
"""Process ids reserved for each rank: two per timeline, of its GPU and of its CPU threads, in the order shown."""
ARROWS_PER_TIMELINE = 10**9
"""Range of the ids of a timeline's arrows of one kind."""
GZIP_LEVEL = 6


def render_timeline(run: MeasuredRun, targets: Sequence[Prediction] = (), *, compress: bool = True) -> bytes:
    """Return a trace with one process per rank and GPU, measured first, and one thread per stream.

    Each timeline contains the kernels and copies of the chosen steps. The critical path is a thread of its own, with
    flow arrows between its kernels. Idle time by cause is another thread, and the kernels' utilization of the roofline
    is a counter. For a run of one rank a second process has its CPU threads: steps, modules, ops and calls, with flow
    arrows from each launch to its kernel.

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
        "tracekit": __version__,
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
        label_times(run.trace),
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


def _analyse_timeline(program: Program, timeline: Timeline) -> tuple[Timeline, pl.DataFrame, pl.DataFrame, int, int]:
    """Return a timeline with its critical path, its main idle causes, its start in ns, and its length."""
    path = compute_critical_path(program, timeline).segments
    causes = tracks.find_main_causes(attribute_idle_time(program, timeline).segments)
    begin_ns = tracks.find_begin_ns(program, timeline, path)
    return timeline, path, causes, begin_ns, tracks.find_end_ns(program, timeline, path) - begin_ns


def _name_source_gpu(run: MeasuredRun) -> str:
    return run.gpu.name if run.gpu else "GPU not recorded"


def _compute_bounds(run: MeasuredRun) -> pl.Series:
    if run.gpu is None:
        return pl.Series("bound_us", [None] * run.kernels.height, dtype=pl.Float64)
    import predictors

    return predictors.predict(run.kernels, run.gpu)["bound_us"]


def _encode_lane(lane: Lane) -> Iterator[bytes]:
    ranks = tracks.list_ranks(lane.program)
    names_rank = len(ranks) > 1 or lane.program.trace.rank is not None
    for rank in ranks:
        pid = _number_process(lane, rank)
        label = f"rank {rank}: {lane.label}" if names_rank else lane.label
        yield from _encode_gpu(lane, rank, pid, label)
    first = _number_process(lane, ranks[0])
    if len(ranks) == 1:
        yield from _encode_host(lane, ranks[0], first, label)
    path = tracks.build_critical_path_slices(lane).with_columns(pid=pl.lit(first))
    yield events.encode_slices(path)
    critical = tracks.find_critical_kernels(lane).with_columns(
        pid=_number_process(lane, 0) + PIDS_PER_RANK * pl.col("rank")
    )
    arrows = critical.with_columns(id=pl.int_range(pl.len()) + lane.index * ARROWS_PER_TIMELINE)
    yield events.encode_flows(arrows.head(-1), arrows.tail(-1).with_columns(pl.col("id") - 1), "critical path")


def _encode_gpu(lane: Lane, rank: int, pid: int, label: str) -> Iterator[bytes]:
    """Encode the tracks of a rank's GPUs: critical path, idle time, streams, utilization."""
    yield events.encode_process(pid, f"{label} ({lane.gpu_name})", pid)
    yield events.encode_thread(pid, tracks.CRITICAL_PATH_TID, "critical path", -2)
    yield events.encode_thread(pid, tracks.IDLE_TID, "GPU idle", -1)
    for place, (tid, name) in enumerate(tracks.list_streams(lane, rank)):
        yield events.encode_thread(pid, tid, name, place)
    yield events.encode_slices(tracks.build_kernel_slices(lane, rank).with_columns(pid=pl.lit(pid)))
    yield events.encode_slices(tracks.build_idle_slices(lane, rank).with_columns(pid=pl.lit(pid)))
    yield events.encode_counter(
        tracks.build_roofline_counter(lane, rank).with_columns(pid=pl.lit(pid)), "% of roofline"
    )


def _encode_host(lane: Lane, rank: int, pid: int, label: str) -> Iterator[bytes]:
    """Encode the tracks of the CPU threads, and arrows from their launches to the kernels of a GPU's process."""
    cpu = pid + 1
    threads = host_tracks.build_threads(lane.program)
    slices = host_tracks.build_thread_slices(lane, threads)
    drawn = threads.filter(pl.col("thread").is_in(slices["tid"].unique().implode()))
    yield events.encode_process(cpu, f"CPU, {label}", cpu)
    for thread, title in drawn.select("thread", "title").iter_rows():
        yield events.encode_thread(cpu, thread, title, thread)
    spans, calls = (
        slices.filter(is_kind).with_columns(pid=pl.lit(cpu)) for is_kind in (~host_tracks.IS_CALL, host_tracks.IS_CALL)
    )
    yield events.encode_slices(spans)
    yield events.encode_slices(calls.with_columns(args=pl.struct("correlation")))
    base = pl.col("id") + lane.index * ARROWS_PER_TIMELINE
    launches, kernels = tracks.find_launches(lane, threads, rank)
    yield events.encode_flows(
        launches.with_columns(base, pid=pl.lit(cpu)), kernels.with_columns(base, pid=pl.lit(pid)), "launch"
    )


def _number_process(lane: Lane, rank: int) -> int:
    """Number the process of a rank's GPU; the next number is that of its CPU threads."""
    return PIDS_PER_RANK * rank + 2 * lane.index
