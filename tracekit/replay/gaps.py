"""When a GPU or a stream ran nothing: stretches of time without an activity, in the windows of the steps."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.replay.engine import Timeline
from tracekit.replay.measure import per_step
from tracekit.replay.run import Run

NO_KERNEL = -1
KEYS = ("rank", "device", "stream")


@dataclass(frozen=True, slots=True)
class Gaps:
    """Stretches in which a GPU or a stream did nothing, cut at the windows; those of one window in order of time.

    Attributes:
        begin_ns: Where each one begins.
        end_ns: Where it ends.
        window: The row of the windows that it lies in.
        kernel: The activity that it ended with, a row of the kernel table; ``NO_KERNEL`` without one.
    """

    begin_ns: Ints
    end_ns: Ints
    window: Ints
    kernel: Ints

    @property
    def dur_ns(self) -> Ints:
        """Lengths."""
        return self.end_ns - self.begin_ns

    def where(self, rows: Bools) -> "Gaps":
        """Some of them."""
        return Gaps(self.begin_ns[rows], self.end_ns[rows], self.window[rows], self.kernel[rows])


def windows(run: Run, timeline: Timeline) -> pl.DataFrame:
    """The chosen steps as ``step``, ``index`` among all, ``begin_ns``, ``end_ns``: from the end of the one before.

    Of several ranks each one's own, with ``rank``.
    """
    table = per_step(timeline, run.kernels, run.steps).with_row_index("index").drop_nulls("time_ns")
    rows = table.join(run.chosen.select("step"), on="step", how="semi", maintain_order="left")
    rank = ["rank"] if "rank" in run.steps.columns else []
    return rows.select(*rank, "step", "index", begin_ns=pl.col("end_ns") - pl.col("time_ns"), end_ns="end_ns")


def of_streams(within: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """The windows once for each stream of their GPU, with ``device`` and ``stream``."""
    keys = [key for key in KEYS if key in kernels.columns]
    streams = kernels.select(keys).unique().sort(keys)
    return within.join(streams, on="rank") if "rank" in keys else within.join(streams, how="cross")


def find(start_ns: Ints, end_ns: Ints, kernels: pl.DataFrame, within: pl.DataFrame) -> Gaps:
    """Stretches of the windows in which none of their rank's activities ran, or of their stream's.

    Args:
        start_ns: When each activity started, in the order of the kernel table.
        end_ns: When it ended.
        kernels: The kernel table.
        within: The windows.
    """
    keys = [key for key in KEYS if key in within.columns]
    if not keys:
        return _of_one_gpu(start_ns, end_ns, within, np.arange(within.height), np.arange(kernels.height))
    groups = within.select(keys).unique(maintain_order=True).with_row_index("group")
    found = [
        _of_one_gpu(start_ns, end_ns, within, windows, activities)
        for windows, activities in zip(*(_rows(table, groups, keys) for table in (within, kernels)), strict=True)
    ]
    columns = zip(*((gaps.begin_ns, gaps.end_ns, gaps.window, gaps.kernel) for gaps in found), strict=True)
    return Gaps(*(np.concatenate(parts) for parts in columns))


def _rows(table: pl.DataFrame, groups: pl.DataFrame, keys: list[str]) -> list[Ints]:
    """The rows of each group, in order."""
    group = table.select(keys).join(groups, on=keys, how="left", nulls_equal=True, maintain_order="left")["group"]
    numbers = group.fill_null(groups.height).to_numpy()
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(1, groups.height + 1)))[: groups.height]


def _of_one_gpu(start_ns: Ints, end_ns: Ints, within: pl.DataFrame, mine: Ints, activities: Ints) -> Gaps:
    """The gaps of some windows between some activities."""
    begin, end = (within[name].to_numpy()[mine] for name in ("begin_ns", "end_ns"))
    gap_begin, gap_end, next_activity = _gaps(start_ns, end_ns, activities)
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


def _gaps(start_ns: Ints, end_ns: Ints, activities: Ints) -> tuple[Ints, Ints, Ints]:
    """All stretches in which none of some activities ran: begin, end and next activity, in order of time."""
    start, end = start_ns[activities], end_ns[activities]
    order = np.lexsort((end, start))
    never, forever = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    covered = np.concatenate([[never], np.maximum.accumulate(end[order])])
    begins = np.concatenate([start[order], [forever]])
    following = np.concatenate([activities[order], [NO_KERNEL]])
    idle = begins > covered
    return covered[idle], begins[idle], following[idle]
