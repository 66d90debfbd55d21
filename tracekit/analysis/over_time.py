"""What happened over the time of a step: launch queues, copies, families of kernels, and blocks of a picture of it."""

from itertools import product

import numpy as np
import polars as pl

from tracekit.analysis.idle import STREAM_KEYS, find_step_windows
from tracekit.arrays import IN_ORDER, DistinctNames, Floats, Ints, select_table
from tracekit.graph.nodes import NONE
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.replay.step_time import compute_work_start_ns


def compute_means(begin_ns: Ints, end_ns: Ints, rates: Floats, edges_ns: Floats) -> Floats:
    """Compute the mean summed rate of intervals in each part of the time.

    ``edges_ns`` are where the parts begin and end, in order.
    """
    total = _integrate(begin_ns, rates, edges_ns) - _integrate(end_ns, rates, edges_ns)
    widths = np.diff(edges_ns)
    return np.divide(np.diff(total), widths, out=np.zeros_like(widths), where=widths > 0)


def _integrate(since_ns: Ints, rates: Floats, until_ns: Floats) -> Floats:
    """Sum up the rates that last from ``since_ns`` on, over the time until each of ``until_ns``."""
    offset = float(until_ns[0])  # keeps products of times and rates small
    order = np.argsort(since_ns, kind="stable")
    since, rate = since_ns[order] - offset, rates[order]
    begun = np.searchsorted(since, until_ns - offset, side="right")
    summed, weighted = (np.concatenate([[0.0], np.cumsum(values)]) for values in (rate, rate * since))
    return np.asarray(summed[begun] * (until_ns - offset) - weighted[begun])


def list_queued(program: Program) -> pl.DataFrame:
    """List the activities that waited in a launch queue.

    The columns are ``rank``, ``device``, ``stream``, ``launched_ns``, ``begun_ns``. Activities without a launch in the
    trace are left out.
    """
    nodes = program.graph.nodes
    waited_ns = nodes.start_ns[nodes.n_host :] - nodes.launch_start_ns
    begun_ns = program.kernels["ts_ns"].to_numpy()
    times = pl.DataFrame({"launched_ns": begun_ns - waited_ns, "begun_ns": begun_ns})
    table = program.kernels[["rank", "device", "stream"]].hstack(times)
    return select_table(table, (nodes.launcher != NONE) & (waited_ns > 0))


def measure_queues(program: Program) -> pl.DataFrame:
    """Measure the queues of the activities that the chosen steps launched.

    Returns:
        A row per stream: ``rank``, ``device``, ``stream``; ``waited_us``, how long its activities were queued, summed:
        over a time, that is the mean length of the queue; ``most_queued``, its greatest length. Activities whose launch
        isn't in the trace count in neither.
    """
    nodes, keys = program.graph.nodes, list(STREAM_KEYS)
    launched = pl.Series(nodes.launch_start_ns)
    begun = pl.Series(nodes.start_ns[nodes.n_host :])
    known = program.is_in_chosen_steps & pl.Series(nodes.launcher != NONE) & (begun > launched)
    columns = [program.kernels[key] for key in keys]
    queued = pl.DataFrame([*columns, launched.alias("launched"), begun.alias("begun")]).lazy().filter(known)
    # Of what happens at one time, ends come first.
    changes = pl.concat(
        queued.select(*keys, at_ns=at, change=pl.lit(change)) for at, change in (("begun", -1), ("launched", 1))
    ).sort("at_ns", "change")
    most = changes.with_columns(length=pl.col("change").cum_sum().over(keys)).group_by(keys)
    waited = queued.group_by(keys).agg(waited_us=(pl.col("begun") - pl.col("launched")).sum() / 1e3)
    return waited.join(most.agg(most_queued=pl.col("length").max()), on=keys, nulls_equal=True).collect(engine=IN_ORDER)


MIN_BUSY_FRACTION = 0.02
"""Parts of the time that are less busy stay empty."""
QUARTERS = 4


def rasterize(intervals: pl.DataFrame, begin_ns: int, end_ns: int, columns: int) -> pl.DataFrame:
    """Return blocks of what takes most of each of some equal parts of the time; equal neighbours are one block.

    The intervals have ``lane``, ``key`` (what it is), ``begin_ns`` and ``end_ns``; those of a lane don't overlap much.
    The time has ``columns`` parts.

    Returns:
        ``lane``, ``begin`` (first part), ``length`` (parts), ``quarters`` (how much of them is busy, 1 to 4), ``key``;
        by lane and time.
    """
    width_ns = max(end_ns - begin_ns, 1) / columns
    inside = intervals.lazy().filter(pl.col("end_ns") > begin_ns, pl.col("begin_ns") < end_ns)
    placed = inside.select(
        "lane",
        "key",
        begin=((pl.col("begin_ns") - begin_ns) / width_ns).clip(0, columns),
        end=((pl.col("end_ns") - begin_ns) / width_ns).clip(0, columns),
    )
    parts = placed.with_columns(
        column=pl.int_ranges(pl.col("begin").floor().cast(pl.Int64), pl.col("end").ceil().cast(pl.Int64))
    ).explode("column", empty_as_null=True)
    column = pl.col("column")
    covered = parts.drop_nulls("column").with_columns(
        busy=pl.min_horizontal("end", column + 1) - pl.max_horizontal("begin", column)
    )
    each = covered.group_by("lane", "column", "key").agg(pl.col("busy").sum())
    most = (
        each.sort("busy", "key", descending=[True, False])
        .group_by("lane", "column", maintain_order=True)
        .agg(pl.col("key").first(), pl.col("busy").sum())
        .filter(pl.col("busy") >= MIN_BUSY_FRACTION)
        .with_columns(quarters=(QUARTERS * pl.col("busy")).ceil().clip(1, QUARTERS).cast(pl.Int64))
        .sort("lane", "column")
    )
    alike = pl.struct("lane", "key", "quarters")
    is_next = (alike == alike.shift()) & (column == column.shift() + 1)
    return (
        most.group_by(block=(~is_next.fill_null(False)).cum_sum(), maintain_order=True)
        .agg(pl.col("lane", "key", "quarters").first(), begin=column.first(), length=pl.len().cast(pl.Int64))
        .select("lane", "begin", "length", "quarters", "key")
        .collect(engine=IN_ORDER)
    )


def measure_times_ns(program: Program, timeline: Timeline) -> dict[tuple[str, str], float]:
    """Measure how long each phase's families work in the chosen steps; kernels that overlap split what they cover.

    Example: two kernels run for [0, 4] and [2, 6]. The first gets 2 + 1, the second 1 + 2.

    Collectives don't work while they wait for other ranks.

    Returns:
        By phase and family. The ranks' times are summed, and add up to the time in which anything works.
    """
    phase, family = (DistinctNames.from_column(program.kernels[name]) for name in ("phase", "family"))
    kind, kinds = phase.number * len(family.names) + family.number, len(phase.names) * len(family.names)
    start_ns, end_ns = compute_work_start_ns(timeline, program.kernels), timeline.activity_end_ns
    windows = find_step_windows(program, timeline)
    summed = np.zeros(kinds)
    for rank in np.unique(windows.lane):
        mine = windows.activity_lane == rank
        opens, closes = (windows.table[edge].to_numpy()[windows.lane == rank] for edge in ("begin_ns", "end_ns"))
        summed += _split_time_ns(kind[mine], kinds, start_ns[mine], end_ns[mine], opens, closes)
    return {key: time for key, time in zip(product(phase.names, family.names), summed.tolist(), strict=True) if time}


def _split_time_ns(kind: Ints, kinds: int, start: Ints, end: Ints, opens: Ints, closes: Ints) -> Floats:
    """Split the time within the windows among kinds of kernels: kernels that run at once have equal parts of it."""
    times = np.concatenate([start, end, opens, closes])
    order = np.argsort(times, kind="stable")
    length = np.diff(times[order])
    is_kernel = np.repeat([1, 1, 0, 0], [start.size, end.size, opens.size, closes.size])
    change = np.repeat([1, -1, 1, -1], [start.size, end.size, opens.size, closes.size])
    running, within = (np.cumsum((change * rows)[order])[:-1] for rows in (is_kernel, 1 - is_kernel))
    each = np.where((within > 0) & (running > 0), length / np.maximum(running, 1), 0.0)
    # What a kernel that ran from the first moment on would have had by each moment.
    passed = np.empty(times.size)
    passed[order] = np.append(0.0, np.cumsum(each))
    worked = passed[start.size : 2 * start.size] - passed[: start.size]
    return np.bincount(kind, worked, minlength=kinds).astype(np.float64)
