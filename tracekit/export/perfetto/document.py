"""Write the measured and predicted timelines side by side as one trace file."""

import gzip
import io
from collections.abc import Iterator, Sequence

import msgspec
import polars as pl

from tracekit.analysis.critical_path import compute_critical_path
from tracekit.analysis.idle import attribute_idle_time
from tracekit.bounds import MAX_DRAWN_KERNELS
from tracekit.export.perfetto import host_tracks, tracks
from tracekit.export.perfetto.tracks import Lane
from tracekit.messages import Message
from tracekit.messages import reports as told
from tracekit.prediction import Prediction
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.reporting.sections.step import label_times
from tracekit.run import MeasuredRun
from tracekit.version import __version__

START_US = pl.col("start_ns") / 1e3
SLICE_COLUMNS = ("ph", "cat", "name", "pid", "tid", "ts", "dur")


def _encode_process(pid: int, name: str, order: int) -> bytes:
    """Encode the name and sort order of a process."""
    return _encode_metadata("process", pid, 0, name, order)


def _encode_thread(pid: int, tid: int, name: str, order: int) -> bytes:
    """Encode the name and sort order of a thread."""
    return _encode_metadata("thread", pid, tid, name, order)


def _encode_slices(table: pl.DataFrame) -> bytes:
    """Encode complete events (``ph: X``).

    Args:
        table: Columns ``cat``, ``name``, ``pid``, ``tid``, ``start_ns``, ``dur_ns``, and ``args``, a struct, where
            there is something to say.
    """
    rows = table.with_columns(ph=pl.lit("X"), ts=START_US, dur=pl.col("dur_ns") / 1e3)
    return _encode_rows(rows.select(*SLICE_COLUMNS, *rows.select(pl.col("^args$")).columns))


def _encode_counter(table: pl.DataFrame, name: str) -> bytes:
    """Encode a counter over time.

    The table has ``pid``, ``start_ns`` and ``value``.
    """
    args = pl.struct(pl.col("value").round(2).alias(name))
    rows = table.select("pid", ph=pl.lit("C"), name=pl.lit(name), tid=pl.lit(0), ts=START_US, args=args)
    return _encode_rows(rows)


def _encode_flows(begins: pl.DataFrame, ends: pl.DataFrame, category: str) -> bytes:
    """Encode arrows from slice to slice.

    Args:
        begins: Columns ``pid``, ``tid``, ``at_ns`` (a time within the slice that an arrow leaves) and ``id``, which no
            other arrow of the category has.
        ends: The same of the slices that the arrows lead to.
        category: Category and name of the arrows.
    """
    place = ("pid", "tid", "id")
    common = {"cat": pl.lit(category), "name": pl.lit(category), "ts": pl.col("at_ns") / 1e3}
    leave = begins.select(*place, ph=pl.lit("s"), **common)
    arrive = ends.select(*place, ph=pl.lit("f"), bp=pl.lit("e"), **common)
    return b",\n".join(filter(None, (_encode_rows(leave), _encode_rows(arrive))))


def _encode_metadata(what: str, pid: int, tid: int, name: str, order: int) -> bytes:
    place = {"ph": "M", "pid": pid, "tid": tid, "ts": 0}
    rows = (
        {"name": f"{what}_name", "args": {"name": name}},
        {"name": f"{what}_sort_index", "args": {"sort_index": order}},
    )
    return b",\n".join(msgspec.json.encode(place | row) for row in rows)


def _encode_rows(rows: pl.DataFrame) -> bytes:
    """Encode rows as comma-separated JSON; each line break ends a row, as those within strings are escaped."""
    buffer = io.BytesIO()
    rows.write_ndjson(buffer)
    return buffer.getvalue().rstrip(b"\n").replace(b"\n", b",\n")


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
        analysed = _analyse_timeline(there, target.replay_timeline())
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
    yield _encode_slices(path)
    critical = tracks.find_critical_kernels(lane).with_columns(
        pid=_number_process(lane, 0) + PIDS_PER_RANK * pl.col("rank")
    )
    arrows = critical.with_columns(id=pl.int_range(pl.len()) + lane.index * ARROWS_PER_TIMELINE)
    yield _encode_flows(arrows.head(-1), arrows.tail(-1).with_columns(pl.col("id") - 1), "critical path")


def _encode_gpu(lane: Lane, rank: int, pid: int, label: str) -> Iterator[bytes]:
    """Encode the tracks of a rank's GPUs: critical path, idle time, streams, utilization."""
    yield _encode_process(pid, f"{label} ({lane.gpu_name})", pid)
    yield _encode_thread(pid, tracks.CRITICAL_PATH_TID, "critical path", -2)
    yield _encode_thread(pid, tracks.IDLE_TID, "GPU idle", -1)
    for place, (tid, name) in enumerate(tracks.list_streams(lane, rank)):
        yield _encode_thread(pid, tid, name, place)
    yield _encode_slices(tracks.build_kernel_slices(lane, rank).with_columns(pid=pl.lit(pid)))
    yield _encode_slices(tracks.build_idle_slices(lane, rank).with_columns(pid=pl.lit(pid)))
    yield _encode_counter(tracks.build_roofline_counter(lane, rank).with_columns(pid=pl.lit(pid)), "% of roofline")


def _encode_host(lane: Lane, rank: int, pid: int, label: str) -> Iterator[bytes]:
    """Encode the tracks of the CPU threads, and arrows from their launches to the kernels of a GPU's process."""
    cpu = pid + 1
    threads = host_tracks.build_threads(lane.program)
    slices = host_tracks.build_thread_slices(lane, threads)
    drawn = threads.filter(pl.col("thread").is_in(slices["tid"].unique().implode()))
    yield _encode_process(cpu, f"CPU, {label}", cpu)
    for thread, title in drawn.select("thread", "title").iter_rows():
        yield _encode_thread(cpu, thread, title, thread)
    spans, calls = (
        slices.filter(is_kind).with_columns(pid=pl.lit(cpu)) for is_kind in (~host_tracks.IS_CALL, host_tracks.IS_CALL)
    )
    yield _encode_slices(spans)
    yield _encode_slices(calls.with_columns(args=pl.struct("correlation")))
    base = pl.col("id") + lane.index * ARROWS_PER_TIMELINE
    launches, kernels = tracks.find_launches(lane, threads, rank)
    yield _encode_flows(
        launches.with_columns(base, pid=pl.lit(cpu)), kernels.with_columns(base, pid=pl.lit(pid)), "launch"
    )


def _number_process(lane: Lane, rank: int) -> int:
    """Number the process of a rank's GPU; the next number is that of its CPU threads."""
    return PIDS_PER_RANK * rank + 2 * lane.index


def limit_timeline_steps(run: MeasuredRun, timelines: int) -> tuple[MeasuredRun | None, Message | None]:
    """Select the first of the chosen steps, as many as fit.

    Args:
        run: The measured run.
        timelines: Number of timelines that draw each kernel: the measured one and one per target.

    Returns:
        The run with fewer chosen steps, ``None`` if not even one step fits; and a message on what is left out, ``None``
        if nothing is.
    """
    chosen = run.kernels.filter(run.is_in_chosen_steps)
    steps = chosen.group_by("step").len().sort("step").with_columns(drawn=timelines * pl.col("len").cum_sum())
    fitting = steps.filter(pl.col("drawn") <= MAX_DRAWN_KERNELS)
    if fitting.height == steps.height:
        return run, None
    too_many = {"kernels": steps["drawn"][-1], "max_kernels": MAX_DRAWN_KERNELS}
    if fitting.is_empty():
        return None, told.TIMELINE_LEFT_OUT(**too_many)
    first, last = fitting["step"][0], fitting["step"][-1]
    shown = run.replace_chosen_steps(run.chosen_steps.filter(pl.col("step").is_in(fitting["step"].implode())))
    return shown, told.TIMELINE_CUT(first=first, last=last, **too_many)
