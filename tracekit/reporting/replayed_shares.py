"""What a replayed step is made of: its critical path by resource, and the GPU's work by family."""

from collections.abc import Mapping
from dataclasses import dataclass

from tracekit.analysis.critical_path import compute_resource_shares
from tracekit.analysis.family_times import measure_family_times_ns
from tracekit.prediction import Prediction
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class ReplayedShares:
    """What a step is made of, in the chosen steps together.

    Attributes:
        resources: Percent of the critical path by resource.
        families: Fraction of the time in which the GPU works by family of kernels, largest first.
    """

    resources: Mapping[str, float]
    families: Mapping[str, float]


def compute_measured_shares(run: MeasuredRun) -> ReplayedShares:
    """Compute what the measured step is made of."""
    return _compute_shares(run.program, run.measured_timeline)


def compute_target_shares(target: Prediction) -> ReplayedShares:
    """Compute what a predicted step is made of; the bubble of a pipeline belongs to no resource."""
    found = _compute_shares(target.program, target.replay_timeline())
    works = 1 - target.pipeline.bubble if target.pipeline else 1.0
    return ReplayedShares({kind: works * share for kind, share in found.resources.items()}, found.families)


def _compute_shares(program: Program, timeline: Timeline) -> ReplayedShares:
    times_ns = measure_family_times_ns(program, timeline)
    whole_ns = sum(times_ns.values())
    families = {family: time_ns / whole_ns for family, time_ns in times_ns.items()}
    return ReplayedShares(compute_resource_shares(program, timeline), families)
