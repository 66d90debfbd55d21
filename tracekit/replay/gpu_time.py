"""What keeps a GPU busy: the union of intervals within steps, and work from before the first step."""

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.compiled import compile_lazily
from tracekit.replay.engine import Timeline, replay_host_alone


def measure_coverage(order: Ints, start: Ints, end: Ints, rank: Ints, opens: Ints, closes: Ints, first: Ints) -> Ints:
    """Measure how much of each window the union of its rank's intervals covers.

    Example: intervals [0, 4] and [3, 6] of one rank cover 5 of the window [1, 8].

    Args:
        order: Indices of the intervals that count, sorted by start.
        start: Start of each interval.
        end: End of each interval.
        rank: Rank of each interval.
        opens: Starts of the windows, sorted by rank and then by time.
        closes: Ends of the windows.
        first: Index of each rank's first window, plus one final entry.
    """
    length = np.zeros(opens.size, dtype=np.int64)
    window, reached = first[:-1].copy(), np.full(first.size - 1, np.iinfo(np.int64).min)
    start, end = np.ascontiguousarray(start), np.ascontiguousarray(end)
    _add_coverage(order.size, order, start, end, rank, opens, closes, first, window, reached, length)
    return length


@compile_lazily
def _add_coverage(
    count: int,
    order: Ints,
    start: Ints,
    end: Ints,
    rank: Ints,
    opens: Ints,
    closes: Ints,
    first: Ints,
    window: Ints,
    reached: Ints,
    length: Ints,
) -> int:  # pragma: no cover - compiled
    for place in range(count):
        row = order[place]
        mine = rank[row]
        begin, until = max(start[row], reached[mine]), end[row]
        if until <= begin:
            continue
        reached[mine] = until
        while window[mine] < first[mine + 1] and closes[window[mine]] <= begin:
            window[mine] += 1
        for at in range(window[mine], first[mine + 1]):
            if opens[at] >= until:
                break
            length[at] += max(min(until, closes[at]) - max(begin, opens[at]), 0)
    return 0


MAX_BACKLOG_PAUSE_NS = 100_000
"""Pause of a GPU behind which no more work was queued when the step began."""
MIN_TIME_NS, MAX_TIME_NS = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class EarlierWork:
    """The work from before each rank's first step, recorded or not.

    Args:
        kernels: The kernel table.
        rank: Rank index of each kernel.
        row: Row of ``steps`` of each kernel; ``steps.height`` for kernels outside all steps.
        steps: All steps of the trace.
        firsts: Row of each rank's first step.
        is_of_several: Whether the job has other ranks, in ``steps`` or not.
    """

    def __init__(
        self, kernels: pl.DataFrame, rank: Ints, row: Ints, steps: pl.DataFrame, firsts: Ints, *, is_of_several: bool
    ) -> None:
        self._rank, self._firsts = rank, firsts
        self._recorded = _find_leftover_activities(kernels, rank, row, steps, firsts)
        if is_of_several:
            self._recorded = _select_awaited(self._recorded, kernels, rank, row, steps, firsts)
        self._delayed = _find_delayed_kernels(kernels, row, steps, firsts)

    def compute_free_times(self, timeline: Timeline, mark_ns: Ints, end_ns: Ints) -> Ints:
        """Compute when each rank's GPU had finished this work; ``MIN_TIME_NS`` without any.

        The rest of the first step is at least as long as the host alone takes for it::

            CPU   |step: launches, waits |------- launches -------|
            GPU   ... earlier work ...|= kernels =| idle |= kernel =|
                  ^ mark              ^ the step begins             ^ and ends
        """
        free = _compute_last_ends(timeline.activity_end_ns, self._rank, self._recorded, self._firsts.size)
        np.maximum.at(free, self._rank[self._delayed], timeline.activity_start_ns[self._delayed])
        if not (free > mark_ns[self._firsts]).any():
            return free
        first_mark = timeline.host_node_count - timeline.mark_count
        starts = replay_host_alone(timeline)[first_mark : timeline.host_node_count]
        alone_ns = (starts[mark_ns.size :] - starts[: mark_ns.size])[self._firsts]
        return np.minimum(free, end_ns[self._firsts] - alone_ns)


def _select_backlog(row: Ints, rank: Ints, start: Ints, end: Ints, mark: Ints) -> Ints:
    """Select the activities that kept a GPU busy from before the mark on; what starts after a pause does not count.

    ::

        mark |
        == ====  ==      =      the last one, after a pause, is work of the step whose launch was lost
    """
    table = pl.DataFrame({"row": row, "rank": rank, "start": start, "end": end, "mark": mark}).sort("rank", "start")
    busy_until = pl.max_horizontal(pl.col("end").cum_max().shift(1).over("rank"), "mark")
    is_pause = pl.col("start") - busy_until > MAX_BACKLOG_PAUSE_NS
    return table.filter(is_pause.cum_sum().over("rank") == 0)["row"].to_numpy()


def _find_leftover_activities(kernels: pl.DataFrame, rank: Ints, row: Ints, steps: pl.DataFrame, firsts: Ints) -> Ints:
    """Find the activities that belong to no step and began before their rank's first step."""
    start = kernels["ts_ns"].to_numpy()
    in_steps = row < steps.height
    began = np.full(firsts.size, MAX_TIME_NS)
    np.minimum.at(began, rank[in_steps], start[in_steps])
    end = start + kernels["dur_ns"].to_numpy()
    mark = steps["start_ns"].to_numpy()[firsts]
    found = np.flatnonzero(~in_steps & (start < began[rank]))
    if found.size:
        found = _select_backlog(found, rank[found], start[found], end[found], mark[rank[found]])
    return found


def _select_awaited(
    found: Ints, kernels: pl.DataFrame, rank: Ints, row: Ints, steps: pl.DataFrame, firsts: Ints
) -> Ints:
    """Select the leftover activities for which their rank's first step waited in the measurement.

    With several ranks only these count. Otherwise the first step counts from its mark in every replay: a longer step of
    one rank would otherwise delay the job's start.
    """
    end = (kernels["ts_ns"] + kernels["dur_ns"]).to_numpy()
    mark, least = (steps[edge].to_numpy()[firsts] for edge in ("start_ns", "end_ns"))
    through = _compute_last_ends(end, rank, found, firsts.size)
    ended = _compute_last_ends(end, rank, np.flatnonzero(row == firsts[rank]), firsts.size)
    waited = np.maximum(ended, least) - np.maximum(through, mark) >= least - mark
    kept: Ints = found[waited[rank[found]]]
    return kept


def _find_delayed_kernels(kernels: pl.DataFrame, row: Ints, steps: pl.DataFrame, firsts: Ints) -> Ints:
    """Find the kernel of each first step that waited for work from before the recording."""
    if not steps["waited_until_ns"].count():
        return np.empty(0, np.int64)
    waited = pl.DataFrame({"row": firsts, "until": steps["waited_until_ns"].gather(firsts)}).drop_nulls()
    own = pl.DataFrame({"row": row, "ts_ns": kernels["ts_ns"]}).with_row_index("kernel")
    delayed = own.join(waited, on="row").filter(pl.col("ts_ns") >= pl.col("until"))
    first = delayed.group_by("row").agg(pl.col("kernel").get(pl.col("ts_ns").arg_min()))
    return first["kernel"].sort().cast(pl.Int64).to_numpy()


def _compute_last_ends(end: Ints, rank: Ints, chosen: Ints, ranks: int) -> Ints:
    """Return the latest end of the chosen activities of each rank; ``MIN_TIME_NS`` if it has none."""
    last = np.full(ranks, MIN_TIME_NS)
    np.maximum.at(last, rank[chosen], end[chosen])
    return last
