"""The critical path: the work whose shortening would shorten the step."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from tracekit.analysis.critical_path import CriticalPath, compute_measured_path
from tracekit.analysis.slack import compute_slack_ns, summarize_by_op
from tracekit.format import name_place
from tracekit.reporting.columns import Column
from tracekit.run import MeasuredRun

MARK_NAME = "mark"
MAX_OPS = 20
MAX_NEAR_FRACTION = 0.02
"""Slack, as a fraction of the steps, up to which an op counts as near the critical path."""
MAX_NEAR_OPS = 5
"""Maximum number of listed ops near the critical path."""


@dataclass(frozen=True, slots=True)
class CriticalOp:
    """One op's time on the critical path."""

    on: Annotated[
        str, Column("Where the time is spent: gpu, communication, host, latency or unexplained.", "on", name_place)
    ]
    op: Annotated[str, Column("The op that ran, was launched or was waited for.", "op")]
    time_us: Annotated[float, Column("Time on the path in a mean step.", "time")]
    share: Annotated[float, Column("Of the path, percent.", "of the path")]


@dataclass(frozen=True, slots=True)
class NearCriticalOp:
    """An op near the critical path, which nothing waits for yet.

    Attributes:
        op: The op.
        time_us: Time of its kernels in a mean step.
        slack_us: Time by which one of its kernels may become longer before the step does.
    """

    op: str
    time_us: float
    slack_us: float


@dataclass(frozen=True, slots=True)
class CriticalPathSection:
    """The critical path of the measured steps.

    Attributes:
        places: Percent of the path by where its time is spent, largest first.
        ops: The ops with most time on the path, longest first.
        omitted: Number of further ops.
        edges: Percent of the path by kind of edge, longest first.
        families: Percent of the path by family of the kernel that ran, was launched or was waited for.
        modules: Percent of the path by module that launched the kernel; empty if stacks weren't read.
        near: Ops that would be on the path if they took slightly longer, least slack first.
    """

    places: tuple[tuple[str, float], ...]
    ops: tuple[CriticalOp, ...]
    omitted: int
    edges: tuple[tuple[str, float], ...]
    families: tuple[tuple[str, float], ...]
    modules: tuple[tuple[str, float], ...]
    near: tuple[NearCriticalOp, ...]


def build_critical_path(run: MeasuredRun) -> CriticalPathSection:
    """Build the critical path of the measured run."""
    path = compute_measured_path(run.program)
    places, edges, families, modules = (_sum_shares(path, column) for column in ("on", "edge", "family", "module"))
    ops = path.sum_by("on", "op")
    steps = run.chosen_steps["step"].n_unique()
    rows = tuple(
        CriticalOp(on, "end of the step" if op == MARK_NAME else op or "–", time_us / steps, 100 * part)
        for on, op, time_us, part, _ in ops.head(MAX_OPS).iter_rows()
    )
    return CriticalPathSection(
        places, rows, max(ops.height - MAX_OPS, 0), edges, families, modules, tuple(_find_near_critical_ops(run))
    )


def _sum_shares(path: CriticalPath, column: str) -> tuple[tuple[str, float], ...]:
    return tuple((name, 100 * part) for name, _, part, _ in path.sum_by(column).iter_rows() if name is not None)


def _find_near_critical_ops(run: MeasuredRun) -> Iterator[NearCriticalOp]:
    """Find the ops without a kernel on the path whose slack is small."""
    rows = summarize_by_op(run.program, compute_slack_ns(run.program)).iter_rows()
    most_us = MAX_NEAR_FRACTION * run.self_replay.span_us
    near = (NearCriticalOp(*row) for row in rows)
    yield from islice((one for one in near if 0 < one.slack_us < most_us and one.time_us > 0), MAX_NEAR_OPS)
