"""Attribute the idle time of a GPU, or of each of its streams, to causes.

An activity ends each idle gap. The binding edges of its start, followed back to the beginning of the gap, explain the
gap (:mod:`tracekit.analysis.binding_edges`). A collective that waits for other ranks counts as idle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import polars as pl

from tracekit.analysis.binding_edges import TimeRanges, follow_binding_edges, split_time_ranges
from tracekit.analysis.idle_causes import CAUSE_CODES, CAUSES, IdleCause, IdlePieces, classify_idle_segments
from tracekit.arrays import IN_ORDER, Bools, Ints, coalesce, gather_rows, group_rows, make_column
from tracekit.graph import Graph
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.replay.step_time import StepTime, compute_work_start_ns

NO_KERNEL = -1
STREAM_KEYS = ("rank", "device", "stream")


@dataclass(frozen=True, slots=True)
class Windows:
    """The chosen steps as windows: one per rank and step, or per stream and step.

    Attributes:
        table: ``rank``, ``step``, ``index`` among all steps, ``begin_ns`` (end of the previous step), ``end_ns``; for
            streams also ``device`` and ``stream``.
        lane: Number of each window's rank or stream.
        activity_lane: Number of each activity's rank or stream.
    """

    table: pl.DataFrame
    lane: Ints
    activity_lane: Ints


@dataclass(frozen=True, slots=True)
class Gaps:
    """Idle gaps of a GPU or a stream, cut at the windows; those of one window are in order of time.

    Attributes:
        window: Row of its window.
        kernel: Row of the activity that ended it in the kernel table; ``NO_KERNEL`` if none did.
    """

    begin_ns: Ints
    end_ns: Ints
    window: Ints
    kernel: Ints

    @property
    def dur_ns(self) -> Ints:
        """Durations of the gaps."""
        return self.end_ns - self.begin_ns

    def select(self, rows: Bools) -> "Gaps":
        """Return the gaps that a mask selects."""
        return Gaps(self.begin_ns[rows], self.end_ns[rows], self.window[rows], self.kernel[rows])


def find_step_windows(program: Program, timeline: Timeline) -> Windows:
    """Return the chosen steps as windows of each rank's GPU."""
    spans = program.step_timer.compute_step_spans(timeline)
    rows = np.flatnonzero(spans.has_duration & program.step_timer.is_chosen)
    times = {"index": rows, "begin_ns": spans.previous_end_ns[rows], "end_ns": spans.end_ns[rows]}
    table = program.steps[["rank", "step"]][rows].hstack(pl.DataFrame(times))
    return Windows(table, table["rank"].to_numpy(), program.kernels["rank"].to_numpy())


def split_by_stream(windows: Windows, kernels: pl.DataFrame) -> Windows:
    """Repeat the windows for each stream of their GPU."""
    stream, first = group_rows(*(kernels[key] for key in STREAM_KEYS))
    rank_of_stream = kernels["rank"].to_numpy()[first]
    window, lane = np.nonzero(windows.table["rank"].to_numpy()[:, None] == rank_of_stream)
    of_stream = kernels[["device", "stream"]][first[lane]]
    return Windows(windows.table[window].hstack(of_stream), lane, stream)


def find_gaps(start_ns: Ints, end_ns: Ints, within: Windows) -> Gaps:
    """Find the gaps within windows in which no activity of the window's rank, or stream, ran.

    The activities are in the order of the kernel table.
    """
    numbers = np.unique(within.lane)
    begin, end = (within.table[name].to_numpy() for name in ("begin_ns", "end_ns"))
    found = [
        _find_gaps_of_lane(start_ns, end_ns, activities, begin, end, windows)
        for windows, activities in zip(
            *(_split_by_lane(lane, numbers) for lane in (within.lane, within.activity_lane)), strict=True
        )
    ]
    columns = zip(*((gaps.begin_ns, gaps.end_ns, gaps.window, gaps.kernel) for gaps in found), strict=True)
    return Gaps(*(np.concatenate(parts) for parts in columns))


def _split_by_lane(lane: Ints, numbers: Ints) -> list[Ints]:
    """Return the rows of each of some lanes, in order."""
    order = np.argsort(lane, kind="stable")
    ends = np.searchsorted(lane[order], numbers, side="right")
    begins = np.searchsorted(lane[order], numbers)
    return [order[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _find_gaps_of_lane(
    start_ns: Ints, end_ns: Ints, activities: Ints, begin_ns: Ints, until_ns: Ints, windows: Ints
) -> Gaps:
    """Find the gaps between some activities in some windows."""
    begin, end = begin_ns[windows], until_ns[windows]
    gap_begin, gap_end, next_activity = _find_idle_ranges(start_ns, end_ns, activities)
    first = np.searchsorted(gap_end, begin, side="right")
    last = np.searchsorted(gap_begin, end)
    count = np.maximum(last - first, 0)
    window = np.repeat(np.arange(begin.size), count)
    gap = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return Gaps(
        np.maximum(gap_begin[gap], begin[window]),
        np.minimum(gap_end[gap], end[window]),
        windows[window],
        next_activity[gap],
    )


def _find_idle_ranges(start_ns: Ints, end_ns: Ints, activities: Ints) -> tuple[Ints, Ints, Ints]:
    """Return all time ranges in which none of some activities ran: start, end and next activity, in order of time."""
    start, end = start_ns[activities], end_ns[activities]
    order = np.lexsort((end, start))
    never, forever = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    covered = np.concatenate([[never], np.maximum.accumulate(end[order])])
    begins = np.concatenate([start[order], [forever]])
    following = np.concatenate([activities[order], [NO_KERNEL]])
    idle = begins > covered
    return covered[idle], begins[idle], following[idle]


END_OF_STEP = "end of the step"
"""Placeholder op of idle gaps that no kernel ended."""

MAX_SEGMENTS_AT_ONCE = 1 << 20
"""Segments that are classified at once, which takes some 200 bytes each."""


@dataclass(frozen=True)
class IdleBreakdown:
    """Idle time of the GPU, of each rank's GPU, or of each stream in the chosen steps; the exact sum of the segments.

    For streams, both tables also have ``rank`` (with several ranks), ``device`` and ``stream``.

    Attributes:
        segments: ``step``, ``cause``, ``kernel`` (row of the kernel that ended the gap; null if the step ended first),
            ``waited`` (a collective ran, but only waited for other ranks), ``time_ns``.
        steps: ``step``, ``time_ns``, ``busy_ns`` (any activity worked, of any step), ``idle_ns``.
    """

    segments: pl.DataFrame
    steps: pl.DataFrame

    def scale_to(self, step: StepTime) -> Self:
        """Return the causes on the scale of the median step, whose idle and waiting time they then add up to.

        The mean step differs from the median one, which all other figures are about.
        """
        waited, time_ns = self.segments["waited"].to_numpy().astype(np.int64), self.segments["time_ns"].to_numpy()
        whole_ns, median_us = np.bincount(waited, time_ns, 2), np.array([step.idle_us, step.waiting_us])
        part = time_ns / np.maximum(whole_ns, 1)[waited]
        scaled_ns = pl.Series("time_ns", part * median_us[waited] * 1e3 * self.steps.height)
        at = self.segments.get_column_index("time_ns")
        return replace(self, segments=self.segments.clone().replace_column(at, scaled_ns))

    def sum_by_cause(self) -> pl.DataFrame:
        """Sum by cause, longest first: ``cause``, ``time_us`` in a mean step, ``share`` (fraction of the idle time)."""
        return self._causes

    @cached_property
    def _causes(self) -> pl.DataFrame:
        return self._sum_with_fractions(self.segments.lazy(), "cause")

    def sum_by_op(self, kernels: pl.DataFrame, *causes: IdleCause, column: str = "op") -> pl.DataFrame:
        """Sum by op that launched late, longest first: ``op``, ``time_us`` in a mean step, ``share``.

        Launch-bound and sync-bound time counts by default; ``column`` is ``op``, or another one of the kernel table:
        ``module``, ``python_line``.
        """
        wanted = causes or (IdleCause.LAUNCH_BOUND, IdleCause.SYNC_BOUND)
        told = self._name_ends(kernels, column).filter(pl.col("cause").is_in(wanted))
        return self._sum_with_fractions(told.select("time_ns", pl.col("ended").alias(column)), column)

    def sum_by_phase(self, phase: pl.Series) -> pl.DataFrame:
        """Sum by the phase that follows: ``phase``, ``cause``, ``time_us`` in a mean step; null before a step's end.

        Args:
            phase: Of each kernel of the kernel table.
        """
        following = self.segments.lazy().select(
            "cause", "time_ns", gather_rows(phase, self.segments["kernel"]).alias("phase")
        )
        summed = following.group_by("phase", "cause").agg(pl.col("time_ns").sum() / 1e3 / max(self.steps.height, 1))
        return summed.sort("phase", "cause").select("phase", "cause", time_us="time_ns").collect(engine=IN_ORDER)

    def find_longest(self, kernels: pl.DataFrame, column: str) -> dict[str, str]:
        """Find, for each cause, the op or other column of the kernels that ended most of its idle time.

        ``column`` is as for :meth:`sum_by_op`.

        Returns:
            By cause, without causes that the step's end ended most of.
        """
        summed = self._name_ends(kernels, column).group_by("cause", "ended").agg(pl.col("time_ns").sum())
        longest = (
            summed.sort("time_ns", "ended", descending=[True, False])
            .group_by("cause", maintain_order=True)
            .agg(pl.col("ended").first())
            .collect(engine=IN_ORDER)
        )
        return {cause: name for cause, name in longest.iter_rows() if name not in (None, END_OF_STEP)}

    def _name_ends(self, kernels: pl.DataFrame, column: str) -> pl.LazyFrame:
        """Return ``cause``, ``time_ns`` and ``ended``: the op, or another column, of the kernel that ended each gap."""
        launched = coalesce(kernels["op"], kernels["name"]) if column == "op" else kernels[column]
        ended = gather_rows(launched, self.segments["kernel"])
        named = self.segments[["cause", "time_ns", "kernel"]].lazy().with_columns(ended.alias("ended"))
        has_kernel = pl.col("kernel").is_not_null()
        return named.with_columns(ended=pl.when(has_kernel).then("ended").otherwise(pl.lit(END_OF_STEP)))

    def sum_by_stream(self) -> pl.DataFrame:
        """Sum by stream and cause: ``rank``, ``device``, ``stream``, ``busy_us``, ``idle_us``, ``cause``, ``time_us``.

        Times are those of a mean step; ``cause`` is null for a stream that was never idle.
        """
        keys = list(STREAM_KEYS)
        steps = max(self.steps["step"].n_unique(), 1)
        whole = self.steps.lazy().group_by(keys, maintain_order=True).agg(pl.col("busy_ns", "idle_ns").sum())
        causes = self.segments.lazy().group_by(*keys, "cause").agg(pl.col("time_ns").sum())
        joined = whole.join(causes, on=keys, how="left", nulls_equal=True)
        return (
            joined.sort(*keys, "time_ns", "cause", descending=[*[False] * len(keys), True, False])
            .select(
                *keys,
                busy_us=pl.col("busy_ns") / 1e3 / steps,
                idle_us=pl.col("idle_ns") / 1e3 / steps,
                cause="cause",
                time_us=pl.col("time_ns") / 1e3 / steps,
            )
            .collect(engine=IN_ORDER)
        )

    def _sum_with_fractions(self, pieces: pl.LazyFrame, key: str) -> pl.DataFrame:
        idle_ns = self.segments["time_ns"].sum() or 1
        summed = pieces.group_by(key).agg(pl.col("time_ns").sum()).sort("time_ns", key, descending=[True, False])
        return summed.select(
            key, time_us=pl.col("time_ns") / 1e3 / max(self.steps.height, 1), share=pl.col("time_ns") / idle_ns
        ).collect(engine=IN_ORDER)


@dataclass(frozen=True, slots=True)
class _WindowGaps:
    """The idle gaps of some windows.

    Attributes:
        keys: Columns of the windows that the breakdown keeps, besides the step.
        empty: Gaps without any activity.
        without_work: Gaps in which no activity worked; collectives may have waited for other ranks.
        explained: The gaps of ``empty`` that something ended: an activity, or the end of a GPU's step.
    """

    within: Windows
    keys: tuple[str, ...]
    empty: Gaps
    without_work: Gaps
    explained: Gaps


def attribute_idle_time(program: Program, timeline: Timeline) -> IdleBreakdown:
    """Attribute the idle time of each rank's GPU in the chosen steps to causes.

    ``timeline`` is one of the program's graph, measured or replayed.
    """
    return _attribute_gaps(program, timeline, [_find_gpu_gaps(program, timeline)])[0]


def attribute_stream_idle_time(program: Program, timeline: Timeline) -> tuple[IdleBreakdown, IdleBreakdown]:
    """Attribute the idle time of each rank's GPU, and that of each stream, as :func:`attribute_idle_time` does.

    A stream that nothing more is launched on is idle until the end of the step for no other reason.
    """
    gpus = _find_gpu_gaps(program, timeline)
    windows = split_by_stream(gpus.within, program.kernels)
    streams = _find_window_gaps(program, timeline, windows, STREAM_KEYS)
    ended = replace(streams, explained=streams.empty.select(streams.empty.kernel != NO_KERNEL))
    of_gpus, of_streams = _attribute_gaps(program, timeline, [gpus, ended])
    return of_gpus, of_streams


def _find_gpu_gaps(program: Program, timeline: Timeline) -> _WindowGaps:
    return _find_window_gaps(program, timeline, find_step_windows(program, timeline), ())


def _find_window_gaps(program: Program, timeline: Timeline, within: Windows, keys: tuple[str, ...]) -> _WindowGaps:
    start, end = timeline.activity_start_ns, timeline.activity_end_ns
    work_start = compute_work_start_ns(timeline, program.kernels)
    empty = without_work = find_gaps(start, end, within)
    if not np.array_equal(start, work_start):
        without_work = find_gaps(work_start, end, within)
    return _WindowGaps(within, keys, empty, without_work, empty)


def _attribute_gaps(program: Program, timeline: Timeline, found: Sequence[_WindowGaps]) -> list[IdleBreakdown]:
    """Attribute the gaps to causes, all of them in one pass over the graph."""
    ranges = [_make_time_ranges(program.graph, timeline, gaps.within, gaps.explained) for gaps in found]
    joined = TimeRanges(
        *(np.concatenate([getattr(part, name) for part in ranges]) for name in ("begin_ns", "end_ns", "vertex"))
    )
    pieces = _classify_ranges(program, timeline, joined)
    until = np.cumsum([part.vertex.size for part in ranges])
    return [
        _build_breakdown(gaps, pieces.select_ranges(end - part.vertex.size, end))
        for gaps, part, end in zip(found, ranges, until.tolist(), strict=True)
    ]


def _classify_ranges(program: Program, timeline: Timeline, ranges: TimeRanges) -> IdlePieces:
    """Classify the segments of the time ranges part by part, as many at once as memory should hold."""
    found: list[IdlePieces] = []
    for rows in split_time_ranges(program.graph, timeline, ranges, MAX_SEGMENTS_AT_ONCE):
        part = ranges.select(rows)
        pieces = classify_idle_segments(program, timeline, part, follow_binding_edges(program.graph, timeline, part))
        found.append(replace(pieces, range_index=pieces.range_index + rows.start))
    return IdlePieces(
        *(
            np.concatenate([np.empty(0, np.int64), *(getattr(part, name) for part in found)])
            for name in ("range_index", "cause", "time_ns")
        )
    )


def _build_breakdown(gaps: _WindowGaps, pieces: IdlePieces) -> IdleBreakdown:
    """Build the breakdown from the classified pieces of ``gaps.explained``."""
    explained, others = gaps.explained, [_find_rendezvous_waits(gaps)]
    if explained is not gaps.empty:
        trailing = gaps.empty.select(gaps.empty.kernel == NO_KERNEL)
        others.append((IdleCause.NOTHING_LAUNCHED, trailing.window, trailing.kernel, trailing.dur_ns))
    window = np.concatenate([explained.window[pieces.range_index], *(part[1] for part in others)])
    kernel = np.concatenate([explained.kernel[pieces.range_index], *(part[2] for part in others)])
    waited = np.concatenate([np.zeros(pieces.range_index.size), *(np.full(p[1].size, p is others[0]) for p in others)])
    cause = [pieces.cause, *(np.full(part[1].size, CAUSE_CODES[part[0]]) for part in others)]
    segments = gaps.within.table[[*gaps.keys, "step"]][window].hstack(
        [
            pl.Series("cause", [str(one) for one in CAUSES])[np.concatenate(cause)],
            make_column("kernel", kernel, NO_KERNEL),
            pl.Series("waited", waited, dtype=pl.Boolean),
            pl.Series("time_ns", np.concatenate([pieces.time_ns, *(part[3] for part in others)])),
        ]
    )
    return IdleBreakdown(segments, _sum_busy_and_idle(gaps))


def _sum_busy_and_idle(gaps: _WindowGaps) -> pl.DataFrame:
    """Sum busy and idle time of each window, as in :attr:`IdleBreakdown.steps`."""
    table = gaps.within.table
    idle_ns = np.zeros(table.height, dtype=np.int64)
    np.add.at(idle_ns, gaps.without_work.window, gaps.without_work.dur_ns)
    time_ns = (table["end_ns"] - table["begin_ns"]).to_numpy()
    times = {"time_ns": time_ns, "busy_ns": time_ns - idle_ns, "idle_ns": idle_ns}
    return table[[*gaps.keys, "step"]].hstack(pl.DataFrame(times))


def _find_rendezvous_waits(gaps: _WindowGaps) -> tuple[IdleCause, Ints, Ints, Ints]:
    """Find the time in which collectives ran but only waited: gaps without work, minus gaps without any activity.

    Returns:
        The cause, and for each such time its window, the activity that ended it, and its length.
    """
    outer, inner = gaps.without_work, gaps.empty
    # Gaps of one window are in order, and every gap without activities lies in one without work.
    by_time = np.lexsort(
        (
            np.repeat([0, 1], [outer.window.size, inner.window.size]),
            np.concatenate([outer.begin_ns, inner.begin_ns]),
            np.concatenate([outer.window, inner.window]),
        )
    )
    latest = np.maximum.accumulate(np.where(by_time < outer.window.size, np.arange(by_time.size), 0))
    is_inner = by_time >= outer.window.size
    waited_ns = outer.dur_ns.copy()
    np.subtract.at(waited_ns, by_time[latest[is_inner]], inner.dur_ns[by_time[is_inner] - outer.window.size])
    there = waited_ns > 0
    return IdleCause.RENDEZVOUS, outer.window[there], outer.kernel[there], waited_ns[there]


def _make_time_ranges(graph: Graph, timeline: Timeline, within: Windows, gaps: Gaps) -> TimeRanges:
    """Convert gaps to time ranges with the vertex that ends each: the next activity's start, or the step's end."""
    mark = _find_end_marks(timeline, within.table)[gaps.window]
    node = np.where(gaps.kernel == NO_KERNEL, mark, timeline.host_node_count + gaps.kernel)
    return TimeRanges(gaps.begin_ns, gaps.end_ns, graph.vertex[2 * node])


def _find_end_marks(timeline: Timeline, windows: pl.DataFrame) -> Ints:
    """Return the end mark of each step on the CPU; 0 without marks, where steps end with the GPU's work."""
    if not timeline.mark_count:
        return np.zeros(windows.height, dtype=np.int64)
    return timeline.find_end_marks(windows["index"].to_numpy())
