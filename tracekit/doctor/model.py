"""What a check looks at, and what it finds. Costs are percent of the measured step's time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import polars as pl

from tracekit.replay.run import Run
from tracekit.trace import RankTrace, Trace
from tracekit.workload.shares import share

# A check warns from the first cost on and fails from the second on, unless it says otherwise.
WARN_PCT = 2.0
FAIL_PCT = 20.0


class Status(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a good prediction needs, and whether the trace has it.

    Attributes:
        name: Short name, stable: for programs.
        title: What was looked at.
        status: How it went.
        evidence: What the trace holds, with numbers.
        cost: What a shortcoming costs the prediction, one sentence; blank if there is none.
        cost_pct: Part of the step's time that it concerns; 0 where that can't be told, or where all is well.
        fix: What to do about it; blank if nothing can be done.
        option: The argument of ``torch.profiler.profile`` that does it; blank if none does.
    """

    name: str
    title: str
    status: Status
    evidence: str
    cost: str = ""
    cost_pct: float = 0.0
    fix: str = ""
    option: str = ""

    def judged(self) -> Self:
        """The same without cost and fix if it is ok."""
        return self if self.status is not Status.OK else replace(self, cost="", cost_pct=0.0, fix="", option="")


@dataclass(frozen=True, slots=True)
class Case:
    """What the checks look at.

    Attributes:
        trace: All ranks that were read.
        run: The one that is measured.
        kernels: The kernel table's rows in the measured steps.
    """

    trace: Trace
    run: Run
    kernels: pl.DataFrame

    @classmethod
    def of(cls, trace: Trace, run: Run) -> Self:
        """The case of a trace and the run that was prepared from it."""
        return cls(trace, run, run.kernels.filter(run.in_steps))

    @property
    def rank(self) -> RankTrace:
        """The rank that is measured."""
        return self.run.trace

    @property
    def is_amd(self) -> bool:
        """Whether HIP launched the work."""
        return bool(self.rank.calls["name"].str.starts_with("hip").any())

    def gpu_share(self, rows: pl.Expr) -> float:
        """Percent of the measured steps' GPU time that falls on some rows of the kernel table."""
        return share(self.kernels, "dur_ns", rows)

    def step_share(self, rows: pl.Expr) -> float:
        """Percent of the step that some kernels work, where those that overlap share the time they cover."""
        return self.gpu_share(rows) * self.work_share / 100

    @property
    def work_share(self) -> float:
        """Percent of the step in which the GPU works, without collectives that only wait for other ranks."""
        return self.of_step(self.run.measured.kernel_time_us - self.run.measured.waiting_us)

    def of_step(self, time_us: float) -> float:
        """A time as percent of the measured step."""
        return 100 * time_us / (self.run.measured.step_time_us or 1.0)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """How good a trace is for predictions.

    Attributes:
        source: Where it was read from.
        rank: The rank that was looked at; ``None`` outside a distributed job.
        ranks_read: Ranks whose traces were read.
        world_size: Ranks of the job.
        grade: A to D, by :func:`grade`.
        checks: All checks that apply to the trace.
        best: The one whose fix would help most; ``None`` if nothing needs one.
        snippet: How to record a better trace, Python; blank if recording again wouldn't help.
        warnings: What else to know, such as secrets that the trace seems to carry.
    """

    source: str
    rank: int | None
    ranks_read: int
    world_size: int
    grade: str
    checks: tuple[Check, ...]
    best: Check | None
    snippet: str
    warnings: tuple[str, ...]


def by_cost(cost_pct: float, *, warn: float = WARN_PCT, fail: float = FAIL_PCT) -> Status:
    """The status that a cost means."""
    if cost_pct >= fail:
        return Status.FAIL
    return Status.WARN if cost_pct >= warn else Status.OK


def at_most_warn(cost_pct: float) -> Status:
    """The status of a cost that is an upper bound."""
    return by_cost(cost_pct, fail=float("inf"))


def grade(checks: Sequence[Check]) -> str:
    """A: every check is ok. B: there are warnings. C: one check fails. D: several do."""
    failed = sum(check.status is Status.FAIL for check in checks)
    if failed:
        return "C" if failed == 1 else "D"
    return "B" if any(check.status is Status.WARN for check in checks) else "A"


def most_helpful(checks: Sequence[Check]) -> Check | None:
    """The check with a fix that costs most: of those that fail, else of those that warn, often with an upper bound."""
    fixable = [check for check in checks if check.status is not Status.OK and check.fix]
    return max(fixable, key=lambda check: (check.status is Status.FAIL, check.cost_pct), default=None)
