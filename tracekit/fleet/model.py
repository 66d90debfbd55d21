"""Define what is reported of a job of many ranks."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.comm import Cluster
from tracekit.format import format_duration
from tracekit.messages import Message, name_option
from tracekit.prediction.model import PredictedStep
from tracekit.replay.step_time import StepTime
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.step import SourceSummary

ONE_PIECE_OPTIONS = ("unprofiled_step",)
"""Options that only a prediction in one piece has: how much of the host's work the profiler's is, is found by many
replays one after another, each of which takes two rounds over the ranks."""


def name_fleet_option(option: str) -> str:
    """Name an option as the command line does; say of one that takes all ranks in memory that it does."""
    name = name_option(option)
    in_one_piece = option.replace("-", "_") in ONE_PIECE_OPTIONS
    return f"{name} (without {name_option('engine')})" if in_one_piece else name


@dataclass(frozen=True, slots=True)
class FleetReport:
    """A job of many ranks: its measured step, who holds it up, and its step on targets.

    Attributes:
        source: Summary of the measured job, as in the report of a trace in one piece.
        decision: How fast, at what cost, and whether it pays, likewise; None without targets.
        trace: Name of the first trace.
        gpu: Canonical name of the traces' GPU; None if unknown.
        source_cluster: The cluster of the traces; None if unknown.
        ranks: Number of ranks that were read.
        world_size: Ranks of the job.
        kernels: Kernels of all ranks.
        step: The measured step, all ranks together.
        replayed_us: The same, replayed with the measured kernel times.
        stragglers: A row per rank, as :func:`tracekit.analysis.waits.find_stragglers` returns it.
        links: A row per process group of one size: how fast its collectives were (:mod:`tracekit.fleet.stragglers`).
        steps: A row per step: quantiles over the ranks of what each takes without waiting for others.
        targets: The predictions, in order of rank.
        warnings: What is wrong with the traces or left out.
    """

    source: SourceSummary
    decision: Decision | None
    trace: str
    gpu: str | None
    source_cluster: Cluster | None
    ranks: int
    world_size: int
    kernels: int
    step: StepTime
    replayed_us: float
    stragglers: pl.DataFrame
    links: pl.DataFrame
    steps: pl.DataFrame
    targets: tuple[PredictedStep, ...]
    warnings: tuple[Message, ...]

    @property
    def has_baseline(self) -> bool:
        """Whether the source's step is one to compare targets with: that of a program that never ran is none."""
        return not (self.source.is_captured and self.targets)

    @property
    def error_pct(self) -> float:
        """Error of the replay, in percent."""
        return 100 * (self.replayed_us / self.step.step_time_us - 1)

    def __getitem__(self, name: str) -> PredictedStep:
        """Return the prediction for a cluster or a GPU, by its canonical name."""
        found: Mapping[str, PredictedStep] = {one.label: one for one in self.targets}
        return found[name]

    def __repr__(self) -> str:
        return f"FleetReport({self.ranks} ranks, {format_duration(self.step.step_time_us)})"
