"""Input and results of the checks. Costs are in percent of the measured step's time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import polars as pl

from tracekit.graph.ranks.lost import LackingRanks
from tracekit.messages import Message
from tracekit.messages.traces import FORMAT_LACKS
from tracekit.run import MeasuredRun
from tracekit.trace import RankTrace, Trace
from tracekit.workload.step_kinds import compute_time_share

# Costs from which on a check warns or fails, unless it sets its own limits.
MIN_WARN_PCT = 2.0
MIN_FAIL_PCT = 20.0

SEPARATE_CHECKS = frozenset(("shapes", "known_ops", "graphs", "collective_sizes", "idle", "unrecorded_work"))
"""Checks whose costs are of parts of the step that don't overlap; predictions of these parts rest on little."""


class Status(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement of a good prediction, and whether the trace meets it.

    Attributes:
        name: Short and stable name, for programs.
        title: What was checked.
        status: The result.
        evidence: What the trace holds, with numbers.
        cost: What the shortcoming costs the prediction; None if nothing.
        cost_pct: Percent of the step's time that it concerns; 0 if unknown or if the check is ok.
        fix: What to do about it; None if nothing can be done.
        option: The argument of ``torch.profiler.profile`` that fixes it; empty if none does.
    """

    name: str
    title: str
    status: Status
    evidence: Message
    cost: Message | None = None
    cost_pct: float = 0.0
    fix: Message | None = None
    option: str = ""

    def drop_cost_if_ok(self) -> Self:
        """Return the check without cost and fix if it is ok."""
        return self if self.status is not Status.OK else replace(self, cost=None, cost_pct=0.0, fix=None, option="")


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Input of the checks.

    Attributes:
        trace: All ranks that were read.
        kernels: Rows of the kernel table in the measured steps.
        beside: Number of ranks whose traces were given, but are read elsewhere.
        lacking: Ranks whose recordings lack collectives that others took part in; None if there are none.
    """

    trace: Trace
    run: MeasuredRun
    kernels: pl.DataFrame
    beside: int = 0
    lacking: LackingRanks | None = None

    @classmethod
    def from_trace(cls, trace: Trace, run: MeasuredRun, beside: int = 0, lacking: LackingRanks | None = None) -> Self:
        """Return the context of a trace and its measured run."""
        return cls(trace, run, run.kernels.filter(run.is_in_chosen_steps), beside, lacking)

    @property
    def rank(self) -> RankTrace:
        """The measured rank."""
        return self.run.trace

    @property
    def has_format(self) -> bool:
        """Whether another tool than PyTorch's profiler recorded it."""
        return any(message.template is FORMAT_LACKS for message in self.rank.warnings)

    @property
    def is_amd(self) -> bool:
        """Whether HIP launched the work, or the GPU is AMD's."""
        source = self.run.source
        return bool(self.rank.calls["name"].str.starts_with("hip").any()) or (
            source is not None and source.gpu.vendor == "amd"
        )

    def compute_gpu_pct(self, rows: pl.Expr) -> float:
        """Compute the percent of the measured steps' GPU time in some rows of the kernel table."""
        return compute_time_share(self.kernels, "dur_ns", rows)

    def compute_step_pct(self, rows: pl.Expr) -> float:
        """Compute the percent of the step in which some kernels work; kernels that overlap split their common time."""
        return self.compute_gpu_pct(rows) * self.work_pct / 100

    @property
    def work_pct(self) -> float:
        """Percent of the step in which the GPU works; collectives that only wait for other ranks don't work."""
        return self.to_step_pct(self.run.measured_step.kernel_time_us - self.run.measured_step.waiting_us)

    def to_step_pct(self, time_us: float) -> float:
        """Convert a time to percent of the measured step."""
        return 100 * time_us / (self.run.measured_step.step_time_us or 1.0)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Quality of a trace for predictions.

    Attributes:
        source: Where it was read from.
        rank: The examined rank; ``None`` outside a distributed job.
        ranks_read: Number of ranks whose traces were read.
        ranks_examined: Number of ranks that the checks looked at.
        world_size: Number of ranks of the job.
        grade: A to D, of :func:`grade`.
        checks: All checks that apply to the trace.
        best: The check whose fix would help most; ``None`` if none needs a fix.
        snippet: Python code that records a better trace; empty if a new recording wouldn't help.
        warnings: Further warnings, such as possible secrets in the trace.
    """

    source: str
    rank: int | None
    ranks_read: int
    ranks_examined: int
    world_size: int
    grade: str
    checks: tuple[Check, ...]
    best: Check | None
    snippet: str
    warnings: tuple[Message, ...]


def grade_cost(cost_pct: float, *, warn: float = MIN_WARN_PCT, fail: float = MIN_FAIL_PCT) -> Status:
    """Return the status for a cost."""
    if cost_pct >= fail:
        return Status.FAIL
    return Status.WARN if cost_pct >= warn else Status.OK


def grade_cost_bound(cost_pct: float) -> Status:
    """Return the status for a cost that is only an upper bound: it warns but never fails."""
    return grade_cost(cost_pct, fail=float("inf"))


def grade(checks: Sequence[Check]) -> str:
    """Grade the checks. A: all are ok. B: there are warnings. C: one check fails. D: several fail.

    Warnings about separate parts of the step fail together if they cost as much as a check that fails.
    """
    failed = sum(check.status is Status.FAIL for check in checks)
    warned = [check for check in checks if check.status is Status.WARN]
    if not failed and sum(check.cost_pct for check in warned if check.name in SEPARATE_CHECKS) >= MIN_FAIL_PCT:
        failed = 1
    if failed:
        return "C" if failed == 1 else "D"
    return "B" if warned else "A"


def choose_most_helpful(checks: Sequence[Check]) -> Check | None:
    """Choose the check with a fix that costs most: among those that fail, or else those that warn.

    A warning's cost is often only an upper bound.
    """
    fixable = [check for check in checks if check.status is not Status.OK and check.fix]
    return max(fixable, key=lambda check: (check.status is Status.FAIL, check.cost_pct), default=None)
