"""When the GPU ran nothing: stretches of time without an activity, in the windows of the steps."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.replay.engine import Timeline
from tracekit.replay.measure import per_step

Ints = npt.NDArray[np.int64]

NO_KERNEL = -1


@dataclass(frozen=True, slots=True)
class Gaps:
    """Stretches of time in which a GPU did nothing, cut at the windows; those of one window in order of time.

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


def windows(timeline: Timeline, kernels: pl.DataFrame, steps: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """The chosen steps as ``step``, ``index`` among all, ``begin_ns``, ``end_ns``: from the end of the one before.

    Of several ranks each one's own, with ``rank``.
    """
    table = per_step(timeline, kernels, steps).with_row_index("index").drop_nulls("time_ns")
    rows = table.join(chosen.select("step"), on="step", how="semi", maintain_order="left")
    rank = ["rank"] if "rank" in steps.columns else []
    return rows.select(*rank, "step", "index", begin_ns=pl.col("end_ns") - pl.col("time_ns"), end_ns="end_ns")


def find(start_ns: Ints, end_ns: Ints, kernels: pl.DataFrame, within: pl.DataFrame) -> Gaps:
    """Stretches of the windows in which none of their GPU's activities ran.

    Args:
        start_ns: When each activity started, in the order of the kernel table.
        end_ns: When it ended.
        kernels: The kernel table.
        within: The windows.
    """
    if "rank" not in within.columns:
        return _of_one_gpu(start_ns, end_ns, within, np.arange(within.height), np.arange(kernels.height))
    found = [
        _of_one_gpu(start_ns, end_ns, within, *(np.flatnonzero(table["rank"] == rank) for table in (within, kernels)))
        for rank in within["rank"].unique().sort()
    ]
    columns = zip(*((gaps.begin_ns, gaps.end_ns, gaps.window, gaps.kernel) for gaps in found), strict=True)
    return Gaps(*(np.concatenate(parts) for parts in columns))


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
