"""Find idle gaps: times without any activity of a GPU or a stream, within the windows of the steps."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.replay.engine import Timeline
from tracekit.run import MeasuredRun

NO_KERNEL = -1
STREAM_KEYS = ("rank", "device", "stream")


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


def find_step_windows(run: MeasuredRun, timeline: Timeline) -> pl.DataFrame:
    """Return the chosen steps as windows: ``step``, ``index`` among all steps, ``begin_ns``, ``end_ns``.

    A window begins at the end of the previous step. With several ranks there is one window per rank and step, with a
    column ``rank``.
    """
    table = run.step_timer.tabulate(timeline).with_row_index("index").drop_nulls("time_ns")
    rows = table.join(run.chosen_steps.select("step"), on="step", how="semi", maintain_order="left")
    return rows.select("rank", "step", "index", begin_ns=pl.col("end_ns") - pl.col("time_ns"), end_ns="end_ns")


def split_by_stream(within: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Repeat the windows for each stream of their GPU, with ``device`` and ``stream``."""
    return within.join(kernels.select(STREAM_KEYS).unique().sort(STREAM_KEYS), on="rank")


def find_gaps(start_ns: Ints, end_ns: Ints, kernels: pl.DataFrame, within: pl.DataFrame) -> Gaps:
    """Find the gaps within windows in which no activity of the window's rank, or stream, ran.

    Args:
        start_ns: Start of each activity, in the order of the kernel table.
        end_ns: End of each activity.
        kernels: The kernel table.
        within: The windows.
    """
    keys = [key for key in STREAM_KEYS if key in within.columns]
    groups = within.select(keys).unique(maintain_order=True).with_row_index("group")
    found = [
        _find_gaps_of_group(start_ns, end_ns, within, windows, activities)
        for windows, activities in zip(
            *(_split_rows_by_group(table, groups, keys) for table in (within, kernels)), strict=True
        )
    ]
    columns = zip(*((gaps.begin_ns, gaps.end_ns, gaps.window, gaps.kernel) for gaps in found), strict=True)
    return Gaps(*(np.concatenate(parts) for parts in columns))


def _split_rows_by_group(table: pl.DataFrame, groups: pl.DataFrame, keys: list[str]) -> list[Ints]:
    """Return the rows of each group, in order."""
    group = table.select(keys).join(groups, on=keys, how="left", nulls_equal=True, maintain_order="left")["group"]
    numbers = group.fill_null(groups.height).to_numpy()
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(1, groups.height + 1)))[: groups.height]


def _find_gaps_of_group(start_ns: Ints, end_ns: Ints, within: pl.DataFrame, mine: Ints, activities: Ints) -> Gaps:
    """Find the gaps between some activities in some windows."""
    begin, end = (within[name].to_numpy()[mine] for name in ("begin_ns", "end_ns"))
    gap_begin, gap_end, next_activity = _find_idle_ranges(start_ns, end_ns, activities)
    first = np.searchsorted(gap_end, begin, side="right")
    last = np.searchsorted(gap_begin, end)
    count = np.maximum(last - first, 0)
    window = np.repeat(np.arange(begin.size), count)
    gap = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return Gaps(
        np.maximum(gap_begin[gap], begin[window]),
        np.minimum(gap_end[gap], end[window]),
        mine[window],
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
