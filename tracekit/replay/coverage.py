"""Measure how much of some time windows a set of intervals covers."""

import numpy as np

from tracekit.arrays import Ints
from tracekit.compiled import compile_lazily


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
