"""Find idle gaps: times without any activity of a GPU or a stream, within the windows of the steps."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints, group_rows
from tracekit.program import Program
from tracekit.replay.engine import Timeline

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
        begin_ns: Start of each gap.
        end_ns: End of each gap.
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

    Args:
        start_ns: Start of each activity, in the order of the kernel table.
        end_ns: End of each activity.
        within: The windows.
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
