"""GPU work by the time of its launch, for finding what marks of the host enclose."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from tracekit.arrays import Ints
from tracekit.trace import RankTrace


@dataclass(frozen=True, slots=True)
class LaunchedWork:
    """What the calls of a trace launched, in order.

    Attributes:
        at_ns: When each call with GPU work began.
        work_ns: GPU time that it and all before it launched.
    """

    at_ns: Ints
    work_ns: Ints

    @classmethod
    def from_trace(cls, trace: RankTrace) -> Self:
        """Sum the activities of each call; those without one have no place on the host."""
        row = trace.launches.row
        at_ns = trace.calls["ts_ns"].to_numpy()[row[row >= 0]]
        order = np.argsort(at_ns, kind="stable")
        return cls(at_ns[order], np.cumsum(trace.activities["dur_ns"].to_numpy()[row >= 0][order]))

    @property
    def total_ns(self) -> int:
        """All of it."""
        return int(self.work_ns[-1]) if self.work_ns.size else 0

    def measure(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """Measure what was launched from each start until before each end."""
        before = np.concatenate([[0], self.work_ns])
        found: Ints = before[np.searchsorted(self.at_ns, end_ns)] - before[np.searchsorted(self.at_ns, start_ns)]
        return found
