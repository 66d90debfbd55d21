"""A job's step on a target with the hosts that it may have, and what there is to note of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from predictors import Gpu
from tracekit.analysis.contention import MIN_OVERLAP_PCT
from tracekit.fleet.evidence import FleetEvidence
from tracekit.fleet.replays import Replay, ReplayedChanges, TargetReplays, list_host_replays
from tracekit.fleet.rounds import LIKELY, LOW
from tracekit.hosts import HostSpeed, find_usual_host
from tracekit.messages import Message
from tracekit.messages.predictions import CONTENTION_LEFT_OUT
from tracekit.prediction import notes
from tracekit.prediction.model import StepOnHost, StepOnUsualHost
from tracekit.prediction.predictor import MIN_HOST_EFFECT
from tracekit.prediction.profiler_cost import list_recorded, note_host_part
from tracekit.prediction.target_host import (
    SAME,
    TYPICAL,
    UNKNOWN,
    HostTimes,
    compute_host_times,
)
from tracekit.replay.step_time import StepTime
from tracekit.run import MeasuredRun

NO_HOST = 0.0
"""Factor on the duration of the host's own work that leaves nothing of it."""


@dataclass(frozen=True, slots=True)
class HostSteps:
    """The step with other hosts.

    Attributes:
        same: With a host like the trace's; None where the usual one makes no difference.
        usual: With the usual host; None where it makes none or isn't known.
        notes: What there is to note of hosts, of the profiler's work on them, and of kernels that overlap.
    """

    same: StepOnHost | None
    usual: StepOnUsualHost | None
    notes: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class StepOnHosts:
    """A job's step on one target, with several hosts.

    Attributes:
        replays: The job's replays on it.
        host: Factors on the time of the host's own work there.
        gpu: GPU of the target.
        run: The measured run.
        source: The trace's host; None where it isn't known or stays the same.
    """

    replays: TargetReplays
    host: HostTimes
    gpu: Gpu
    run: MeasuredRun
    source: HostSpeed | None

    def list_likely_replays(self, *, is_same: bool) -> list[Replay]:
        """List what is replayed whatever the step is, so that the ranks are opened once."""
        wanted = list(list_host_replays(self.host))
        if not is_same:
            wanted += [(LIKELY, NO_HOST, LIKELY), (LIKELY, self.host.high, LIKELY), (LIKELY, self.host.likely, LOW)]
        if self.source is not None:
            there = compute_host_times(TYPICAL, self.source, self.gpu)
            wanted += [(LIKELY, there.low, LIKELY), (LIKELY, there.high, LIKELY)]
        return wanted

    def describe(self, step: StepTime, evidence: FleetEvidence, *, is_same: bool) -> HostSteps:
        """Describe the step with other hosts, as a prediction in one piece does.

        Args:
            step: The step with the likely host.
            evidence: What all ranks tell.
            is_same: Whether the target's GPU is the trace's.
        """
        if is_same:
            return HostSteps(None, None, ())
        usual = self._predict_on_usual_host(step)
        same = None
        if usual:
            same = self.replays.predict_on_host(compute_host_times(SAME, None, self.gpu, self.run.gpu))
        changed = ReplayedChanges(self.replays, self.host.likely, step.step_time_us)
        source = self.source if usual else None
        found = (
            *_note_overlap(step, evidence),
            *self._note_profiler(step, evidence),
            *notes.note_unknown_time(changed, changed.compute_changed_us((LIKELY, self.host.likely, LOW))),
            *notes.note_other_stack(self.run.gpu, self.gpu, self.host, changed),
            *notes.note_host(UNKNOWN, self.host, source, same, usual, self.gpu, changed),
        )
        return HostSteps(same, usual, found)

    def _note_profiler(self, step: StepTime, evidence: FleetEvidence) -> Iterator[Message]:
        if step.step_time_us:
            host = 1 - self.replays.compute_step_us((LIKELY, NO_HOST, LIKELY)) / step.step_time_us
            held_us = sum(one.held_ns for one in evidence.ranks) / 1e3 / self.run.chosen_steps.height
            recorded = list_recorded(self.run.trace, has_shapes=evidence.facts.shapes_recorded)
            yield from note_host_part(host, held_us, recorded)

    def _predict_on_usual_host(self, step: StepTime) -> StepOnUsualHost | None:
        """Predict the step with the usual host, where that changes it."""
        if self.source is None:
            return None
        host = compute_host_times(TYPICAL, self.source, self.gpu)
        fast_us, slow_us = (self.replays.compute_step_us((LIKELY, time, LIKELY)) for time in (host.low, host.high))
        if max(step.step_time_us / fast_us, slow_us / step.step_time_us) < MIN_HOST_EFFECT:
            return None
        host, usual = compute_host_times(TYPICAL, self.source, self.gpu, self.run.gpu), find_usual_host(self.gpu)
        there = self.replays.predict_on_host(host)
        return StepOnUsualHost(
            there.step_time_us, there.low_us, there.high_us, self.source.speed / usual.speed, usual.machines
        )


def _note_overlap(step: StepTime, evidence: FleetEvidence) -> Iterator[Message]:
    """Note that contention is left out where enough kernels overlap."""
    if evidence.overlap_pct >= MIN_OVERLAP_PCT:
        yield CONTENTION_LEFT_OUT(overlap_pct=evidence.overlap_pct, apart_us=step.step_time_us)
