"""Scale replayed steps to measured times, each step by its own ratio."""

from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class StepScale:
    """Measured and self-replayed time of each step of a job.

    Attributes:
        measured_ns: Measured time by step, in the order of the trace.
        replayed_ns: Time of the same steps in the replay with the measured kernel times.
    """

    measured_ns: Floats
    replayed_ns: Floats

    def apply(self, time_ns: Ints | Floats) -> Floats:
        """Scale the steps of another replay: the measured time times the ratio of the two replays.

        Where the self-replay gives a step no time, the difference is added instead.

        Example: a step measured at 110, self-replayed at 100 and replayed at 50 becomes 110 * 50 / 100 = 55.
        """
        given = self.replayed_ns > 0
        ratio = np.divide(time_ns, self.replayed_ns, out=np.ones_like(self.replayed_ns), where=given)
        return self.measured_ns * ratio + np.where(given, 0.0, time_ns - self.replayed_ns)
