"""What a report holds: its sections. Times are microseconds, shares are percent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.prediction import Prediction, Refused
from tracekit.replay.run import SelfReplay
from tracekit.reporting.findings.model import Finding
from tracekit.reporting.sections.accuracy import LawError
from tracekit.reporting.sections.bars import TimeBar
from tracekit.reporting.sections.breakdown import FamilyTime
from tracekit.reporting.sections.communication import CollectiveTime
from tracekit.reporting.sections.coverage import WorkCoverage
from tracekit.reporting.sections.critical import Critical
from tracekit.reporting.sections.idle import IdleTime
from tracekit.reporting.sections.kernels import KernelTime
from tracekit.reporting.sections.modules import ModuleTime
from tracekit.reporting.sections.over_bound import OverBound
from tracekit.reporting.sections.phases import PhaseTime
from tracekit.reporting.sections.provenance import Provenance
from tracekit.reporting.sections.ranks import RankTime
from tracekit.reporting.sections.roofs import Roof
from tracekit.reporting.sections.sensitivity import Speeds
from tracekit.reporting.sections.source import Source
from tracekit.reporting.sections.steps import Step
from tracekit.reporting.sections.streams import StreamTime
from tracekit.reporting.sections.what_if import EditSaving
from tracekit.units import duration

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True)
class Report:
    """Everything there is to say about a run and its predictions."""

    source: Source
    replay: SelfReplay
    coverage: WorkCoverage
    breakdown: tuple[FamilyTime, ...]
    phases: tuple[PhaseTime, ...]
    modules: tuple[ModuleTime, ...]
    idle: tuple[IdleTime, ...]
    streams: tuple[StreamTime, ...]
    ranks: tuple[RankTime, ...]
    bars: tuple[TimeBar, ...]
    kernels: tuple[KernelTime, ...]
    over_bound: tuple[OverBound, ...]
    roofs: tuple[Roof, ...]
    communication: tuple[CollectiveTime, ...]
    steps: tuple[Step, ...]
    critical: Critical
    speeds: Speeds
    accuracy: tuple[LawError, ...]
    what_if: tuple[EditSaving, ...]
    provenance: Provenance
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    targets: tuple[Prediction, ...]
    refused: tuple[Refused, ...] = ()

    def figure(self, name: str) -> Figure:
        """A chart for a notebook.

        Args:
            name: ``"time"``, ``"roofline"``, ``"speeds"`` or ``"steps"``.

        Raises:
            TracekitError: There is no chart of that name.
        """
        from tracekit.render.notebook import figure

        return figure(self, name)

    def to_html(self) -> str:
        """The report as one self-contained page, as ``tracekit report -o report.html`` writes it."""
        from tracekit.render.html import page

        return page(self)

    def __repr__(self) -> str:
        targets = "".join(f", {target.brief}" for target in self.targets)
        return f"Report({self.source.trace}: {duration(self.source.step_time_us)}{targets})"

    def _repr_html_(self) -> str:
        from tracekit.render.notebook import card

        return card(self)
