"""Times that break the order of a stream: activities far from their place, and durations that run over the next."""

import numpy as np

from tracekit.arrays import Bools, Ints, compute_least_from
from tracekit.timing.arrays import NEVER_NS, TOLERANCE_NS, ActivityTimes, BlockingReturns

MIN_DISPLACED_NS = 1_000_000
"""An activity out of its stream's order by less may have been launched by several threads at once."""
MIN_IMPOSSIBLE_NS = 1_000_000_000
"""An activity earlier than its launch by more is displaced: clocks of one machine agree better."""
LAUNCH_LATENCY_NS = 8_000


def find_displaced(times: ActivityTimes, returns: BlockingReturns) -> Bools:
    """Find the activities that lie far from their place among those launched before and after on their stream.

    One that lies in the past starts before an earlier-launched one; one that lies in the future, after a later-launched
    one. Of those that contradict each other the fewer are displaced, or those that a call waited for in vain::

        launched    1   2   3   4
        started     1       3   4            2 (27 hours before): 2 is displaced, not 1
    """
    displaced = times.has_launch & (times.start_ns < times.launched_ns - MIN_IMPOSSIBLE_NS)
    if 2 * displaced.sum() > times.has_launch.sum():  # a clock, not single activities
        displaced[:] = False
    for rows in _list_streams(times, times.has_launch & ~displaced):
        start = times.start_ns[rows]
        earlier = np.concatenate([[-NEVER_NS], np.maximum.accumulate(start)[:-1]])
        later = np.concatenate([compute_least_from(start)[1:], [NEVER_NS]])
        in_past, in_future = start < earlier - MIN_DISPLACED_NS, start > later + MIN_DISPLACED_NS
        in_vain = (start > returns.latest_ns[rows] + MIN_DISPLACED_NS) & in_future
        fewer_in_past = in_past.sum() < in_future.sum() + (not in_vain.any())
        displaced[rows] = in_past if fewer_in_past else in_future
    return displaced


def place_displaced(times: ActivityTimes, displaced: Bools) -> ActivityTimes:
    """Place displaced activities after those launched before them and after their own launch.

    Several in a row follow one another, and end before the next one that isn't displaced if they can::

        stream   |== previous ==|[displaced 1][displaced 2]     |== following ==|
    """
    start = times.start_ns.copy()
    for rows in _list_streams(times, times.has_launch):
        moved = displaced[rows]
        if not moved.any():
            continue
        length = np.where(moved, (times.end_ns - times.start_ns)[rows], 0)
        previous = np.maximum.accumulate(np.where(moved, -NEVER_NS, times.end_ns[rows]))
        before = np.cumsum(length) - length
        since = before - np.maximum.accumulate(np.where(moved, 0, before))
        free = np.where(moved, times.launched_ns[rows] + LAUNCH_LATENCY_NS, times.end_ns[rows])
        earliest = before + np.maximum.accumulate(free - before)
        following = compute_least_from(np.where(moved, NEVER_NS, times.start_ns[rows]))
        to_run_end = compute_least_from(np.where(moved, NEVER_NS, before)) - before
        latest = np.where(following == NEVER_NS, earliest, following - to_run_end)
        fits = np.clip(latest, previous + since, earliest)
        start[rows[moved]] = fits[moved]
    return times.move(start, start + times.end_ns - times.start_ns)


def clip_overruns(times: ActivityTimes) -> tuple[ActivityTimes, Bools]:
    """End activities where the next one on their stream starts, if they run on too long.

    Where the next one may be a programmatic dependent launch, which starts before the previous one ends, an activity
    runs on too long only if it ends after the next one has ended.

    Returns:
        The times, and which activities were clipped.
    """
    end, clipped = times.end_ns.copy(), np.zeros(times.end_ns.size, dtype=np.bool_)
    for rows in _list_streams(times, np.ones_like(times.is_graph), by_start=True):
        this, following = rows[:-1], rows[1:]
        latest = np.where(times.may_begin_early[following], end[following], times.start_ns[following])
        over = (end[this] > latest + TOLERANCE_NS) & (times.start_ns[following] > times.start_ns[this])
        over &= ~(times.is_graph[this] & times.is_graph[following])
        end[this[over]] = times.start_ns[following[over]]
        clipped[this[over]] = True
    return times.move(times.start_ns, end), clipped


def _list_streams(times: ActivityTimes, chosen: Bools, *, by_start: bool = False) -> list[Ints]:
    """List the chosen rows of each stream in the order in which they were launched, or started."""
    order = np.lexsort((times.start_ns if by_start else times.launched_ns, times.stream))
    order = order[chosen[order]]
    cuts = np.flatnonzero(np.diff(times.stream[order])) + 1
    return [rows for rows in np.split(order, cuts) if rows.size]
