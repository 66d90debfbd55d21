"""Replays of a job on one target, with several kernel times and hosts; each is made once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tracekit.arrays import Floats
from tracekit.fleet.join import JoinedFleet
from tracekit.fleet.rounds import HIGH, LIKELY, LOW, RankTarget
from tracekit.fleet.runner import FleetRunner
from tracekit.prediction.model import StepOnHost
from tracekit.prediction.target_host import HostTimes
from tracekit.replay.step_time import JobSteps, StepScale, StepTime, StepTimes

Replay = tuple[int, float, int]
"""As :attr:`tracekit.fleet.rounds.RankTarget.replays` lists them."""


@dataclass
class TargetReplays:
    """The replays of a job on one target.

    Attributes:
        runner: Works on the ranks.
        joined: The ranks.
        items: The ranks on the target.
        steps: The job's steps.
        scale: Puts replays on the measured scale.
    """

    runner: FleetRunner
    joined: JoinedFleet
    items: Sequence[RankTarget]
    steps: JobSteps
    scale: StepScale
    _found: dict[Replay, StepTimes] = field(default_factory=dict)

    def run(self, *wanted: Replay) -> None:
        """Make some replays, all of them together."""
        missing = tuple(one for one in dict.fromkeys(wanted) if one not in self._found)
        if missing:
            items = [replace(one, replays=missing) for one in self.items]
            self._found |= dict(zip(missing, self.runner.replay(self.joined, items), strict=True))

    def compute_median(self, wanted: Replay) -> StepTime:
        """Compute the median step of a replay."""
        self.run(wanted)
        return self.steps.compute_median(self._found[wanted], self.scale)

    def compute_step_us(self, wanted: Replay) -> float:
        """Compute the time of the median step of a replay."""
        self.run(wanted)
        return self.steps.compute_median_step_us(self._found[wanted].spans, self.scale)

    def predict_on_host(self, host: HostTimes) -> StepOnHost:
        """Predict the step with a host that is some times as fast as the measured one."""
        wanted = list_host_replays(host)
        self.run(*wanted)
        ends = [self.compute_step_us(one) for one in wanted]
        return StepOnHost(ends[0], min(ends), max(ends))


def list_host_replays(host: HostTimes) -> tuple[Replay, Replay, Replay]:
    """List the replays for a step and the ends of its interval."""
    return (LIKELY, host.likely, LIKELY), (LOW, host.low, LOW), (HIGH, host.high, HIGH)


@dataclass(frozen=True, slots=True)
class ReplayedChanges:
    """A predicted step, and what it is with another host: :class:`tracekit.prediction.changed_step.StepChanges`.

    Attributes:
        replays: The job's replays.
        host_time: Factor on the duration of the host's own work in the predicted step.
        step_us: The predicted step.
    """

    replays: TargetReplays
    host_time: float
    step_us: float

    def compute_step_us(self, kernel_factor: Floats | float = 1.0, host_time: float | None = None) -> float:
        """Compute the step with another host; its kernels stay as they are."""
        assert kernel_factor == 1.0
        return self.compute_changed_us((LIKELY, self.host_time if host_time is None else host_time, LIKELY))

    def compute_changed_us(self, wanted: Replay) -> float:
        """Compute the step of another replay."""
        replayed_us = self.replays.compute_step_us((LIKELY, self.host_time, LIKELY))
        changed_us = self.replays.compute_step_us(wanted)
        return self.step_us * changed_us / replayed_us if replayed_us else self.step_us
