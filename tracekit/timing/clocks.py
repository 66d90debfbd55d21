"""The offset and drift between the GPU's clock and the CPU's, estimated from launches and blocking calls.

Both bound the offset ``x(t)`` by which GPU times are late: a kernel starts after its launch, so ``x <= start -
launched``; a blocking call returns after its activity, so ``x >= end - returned``::

    CPU   |launch|              |---- sync ----|
    GPU            |== kernel ==|......            recorded late by x: the kernel seems to end after the sync
"""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Bools, Floats, Ints
from tracekit.timing.arrays import NEVER_NS, TOLERANCE_NS, ActivityTimes, BlockingReturns

RETURN_LAG_NS = 5_000
"""A blocking call returns 5 to 15 us after its activity has ended (34 public traces)."""
LAUNCH_LAG_NS = 4_000
"""The least time from a launch call's start to the kernel's: 4 to 6 us on A100, H100, MI300X."""
MIN_WITNESSES = 3
"""Fewer launches that contradict the clock are displaced activities, not a clock."""
N_WINDOWS = 64


@dataclass(frozen=True, slots=True)
class ClockShift:
    """How late the GPU's times are: ``offset_ns + drift * (time - origin_ns)``."""

    offset_ns: float
    drift: float
    origin_ns: int

    def apply(self, times: ActivityTimes) -> ActivityTimes:
        """Return the times on the CPU's clock."""
        moved = times.start_ns - self.compute_late_ns(times.start_ns)
        return times.move(moved, moved + times.end_ns - times.start_ns)

    def compute_late_ns(self, at_ns: Ints) -> Ints:
        """Return how late times of the GPU's clock are."""
        late: Ints = np.rint(self.offset_ns + self.drift * (at_ns - self.origin_ns)).astype(np.int64)
        return late


def estimate_shift(times: ActivityTimes, returns: BlockingReturns, ignored: Bools) -> ClockShift | None:
    """Estimate the clock's offset, and its drift where no offset alone explains the times; ``None`` if they agree.

    Activities ``ignored`` say nothing about the clock: displaced or clipped.
    """
    rows = np.flatnonzero(times.has_launch & ~ignored)
    ended = np.flatnonzero((returns.latest_ns < NEVER_NS) & ~ignored)
    if rows.size == 0:
        return None
    at, most = times.start_ns[rows], (times.start_ns - times.launched_ns)[rows].astype(np.float64)
    until, least = times.end_ns[ended], (times.end_ns - returns.latest_ns)[ended].astype(np.float64)
    origin = int(at.min())
    high = _find_witnessed_min(most)
    late = least.size > 0 and least.max() > returns.clock_error_ns
    if high >= -TOLERANCE_NS and not late:
        return None
    low = _find_agreeing_max(least, high)
    if low <= high:
        return ClockShift(_choose_between(low, high), 0.0, origin)
    drift = _estimate_drift(at - origin, most)
    high = _find_witnessed_min(most - drift * (at - origin))
    low = _find_agreeing_max(least - drift * (until - origin), high)
    return ClockShift(_choose_between(low, high), drift, origin) if low <= high + TOLERANCE_NS else None


def _find_witnessed_min(values: Floats) -> float:
    """Return the least value that several launches share: the third least, or the largest of fewer."""
    place = min(MIN_WITNESSES, values.size) - 1
    return float(np.partition(values, place)[place])


def _find_agreeing_max(values: Floats, high: float) -> float:
    """Return the largest value; without those above ``high`` if these are fewer than half of the positive ones."""
    above = values > high
    if 2 * above.sum() < (values > 0).sum():
        values = values[~above]
    return float(values.max(initial=-np.inf))


def _choose_between(low: float, high: float) -> float:
    """Choose the offset within its bounds at which calls return as late, and kernels start as late, as usual."""
    if np.isinf(low):
        return high - LAUNCH_LAG_NS
    return max(min(low + RETURN_LAG_NS, high - LAUNCH_LAG_NS), low)


def _estimate_drift(at: Ints, most: Floats) -> float:
    """Estimate the drift: the slope of the lower hull of launch lags, over its middle.

    Only the shortest lags are launches on an idle GPU; the line below all of them that is nearest in the mean is an
    edge of their lower convex hull (Moon, Skelly, Towsley, INFOCOM 1999).
    """
    window = np.minimum(at * N_WINDOWS // max(int(at.max()), 1), N_WINDOWS - 1)
    order = np.lexsort((most, window))
    first = order[np.concatenate([[True], np.diff(window[order]) > 0])]
    x, y = at[first].astype(np.float64), most[first]
    middle = x.mean()
    left, right = np.flatnonzero(x <= middle), np.flatnonzero(x > middle)
    if not left.size or not right.size:
        return 0.0
    slope = (y[right][None, :] - y[left][:, None]) / (x[right][None, :] - x[left][:, None])
    at_middle = y[left][:, None] + slope * (middle - x[left][:, None])
    return float(slope.flat[int(at_middle.argmin())])
