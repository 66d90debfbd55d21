"""The report as plain data: its sections hold numbers and strings, no tables, graphs or runs.

Times are in microseconds, shares in percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from tracekit.format import format_duration
from tracekit.messages import Message
from tracekit.prediction.model import PredictedStep
from tracekit.reporting.findings.context import Finding
from tracekit.reporting.plain import encode_plain, read_report
from tracekit.reporting.sections.communication import CollectiveTime, CopyTime, RankTime
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.groups import FamilyTime, ModuleTime, PhaseTime, WorkCoverage
from tracekit.reporting.sections.kernels import KernelOverBound, KernelTime, LawError, Roof
from tracekit.reporting.sections.limits import CriticalPathSection, IdleTime, SpeedSensitivity, StreamTime
from tracekit.reporting.sections.peak_use import PeakSlice, PeakUse
from tracekit.reporting.sections.recording import EventLedger, Provenance
from tracekit.reporting.sections.serving import ServingTimes
from tracekit.reporting.sections.step import MeasuredStep, ReplayError, SourceSummary, StepPart, TimeBar
from tracekit.reporting.sections.targets import EditSaving, RefusedStep
from tracekit.reporting.sections.timeline import StepCourse, TimelineSection


class TargetsReport(Protocol):
    """What the decision between targets, and the tables of them, are made from."""

    @property
    def source(self) -> SourceSummary:
        """The measured run."""
        ...

    @property
    def decision(self) -> Decision | None:
        """The decision; ``None`` without targets."""
        ...

    @property
    def has_baseline(self) -> bool:
        """Whether the source's step is one to compare targets with: that of a program that never ran is none."""
        ...

    @property
    def targets(self) -> tuple[PredictedStep, ...]:
        """The predictions, in order of rank."""
        ...


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """The sections that say what a trace holds, and how much of it can be modelled."""

    source: SourceSummary
    replay: ReplayError
    events: EventLedger
    coverage: WorkCoverage
    modules: tuple[ModuleTime, ...]
    kernels: tuple[KernelTime, ...]
    over_bound: tuple[KernelOverBound, ...]
    warnings: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Report(TraceInfo):
    """All sections of the report on a run and its predictions."""

    decision: Decision | None
    serving: ServingTimes | None
    breakdown: tuple[FamilyTime, ...]
    phases: tuple[PhaseTime, ...]
    idle: tuple[IdleTime, ...]
    streams: tuple[StreamTime, ...]
    ranks: tuple[RankTime, ...]
    parts: tuple[StepPart, ...]
    bars: tuple[TimeBar, ...]
    roofs: tuple[Roof, ...]
    communication: tuple[CollectiveTime, ...]
    copies: tuple[CopyTime, ...]
    course: StepCourse | None
    timelines: TimelineSection | None
    steps: tuple[MeasuredStep, ...]
    critical: CriticalPathSection
    speeds: SpeedSensitivity
    accuracy: tuple[LawError, ...]
    what_if: tuple[EditSaving, ...]
    provenance: Provenance
    findings: tuple[Finding, ...]
    targets: tuple[PredictedStep, ...]
    peak_use: tuple[PeakUse, ...]
    peak_slices: tuple[PeakSlice, ...]
    refused: tuple[RefusedStep, ...] = ()

    @property
    def has_baseline(self) -> bool:
        """Whether the source's step is one to compare targets with: that of a program that never ran is none."""
        return not (self.source.is_captured and self.targets)

    @property
    def compared_bars(self) -> tuple[TimeBar, ...]:
        """The bars of the steps that are compared."""
        return self.bars if self.has_baseline else self.bars[1:]

    def to_json(self) -> bytes:
        """Return the whole report as JSON, for :meth:`from_json`.

        ``tracekit report --json`` and ``tracekit predict --json`` print the documented selection instead.
        """
        return encode_plain(self)

    @classmethod
    def from_json(cls, content: bytes | str) -> Self:
        """Read a report that :meth:`to_json` wrote with the same version of tracekit.

        Raises:
            TraceError: The content is something else.
        """
        return read_report(content, cls)

    def __repr__(self) -> str:
        targets = "".join(f", {target.summary}" for target in self.targets)
        return f"Report({self.source.trace}: {format_duration(self.source.step_time_us)}{targets})"
