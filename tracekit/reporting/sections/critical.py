"""The critical path: what the step would get shorter with."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tracekit.replay.critical import CriticalPath, critical_path
from tracekit.replay.engine import measured
from tracekit.replay.run import Run
from tracekit.replay.slack import by_op, slack_ns

MARK = "mark"
LONGEST = 20
NEAR = 0.02
"""Slack, as a part of the steps, up to which an op is told to be near the path."""
MOST_NEAR = 5
"""How many ops are listed."""


@dataclass(frozen=True, slots=True)
class CriticalTime:
    """One op's part of the critical path.

    Attributes:
        on: Where it is spent: ``gpu``, ``host``, ``latency`` or ``unexplained``.
        op: The op that ran, was launched or was waited for.
        time_us: On the path, in a mean step.
        share: Of the path, percent.
    """

    on: str
    op: str
    time_us: float
    share: float


@dataclass(frozen=True, slots=True)
class NearTime:
    """An op that nothing waits for as yet.

    Attributes:
        op: The op.
        time_us: What its kernels take in a mean step.
        slack_us: How much longer one of them may take before the step does.
    """

    op: str
    time_us: float
    slack_us: float


@dataclass(frozen=True, slots=True)
class Critical:
    """The critical path of the measured steps.

    Attributes:
        places: Where the path runs (``gpu``, ``host``, ``latency``, ``unexplained``) to its share in percent.
        ops: The ops with most of it, longest first.
        omitted: How many more there are.
        edges: Kind of edge to its share in percent, longest first.
        families: Family of the kernel that ran, was launched or was waited for, likewise.
        modules: Module that launched it, likewise; nothing where stacks weren't read.
        near: Ops beside the path that would be on it if they took a little longer, nearest first.
    """

    places: tuple[tuple[str, float], ...]
    ops: tuple[CriticalTime, ...]
    omitted: int
    edges: tuple[tuple[str, float], ...]
    families: tuple[tuple[str, float], ...]
    modules: tuple[tuple[str, float], ...]
    near: tuple[NearTime, ...]


def build(run: Run) -> Critical:
    """The critical path of the measured run."""
    path = critical_path(run, measured(run.graph))
    places = tuple((on, 100 * part) for on, part in path.by("on").select("on", "share").iter_rows())
    ops = path.by("on", "op").select("on", "op", "time_us", "share")
    steps = run.chosen["step"].n_unique()
    rows = tuple(
        CriticalTime(on, "end of the step" if op == MARK else op or "–", time_us / steps, 100 * part)
        for on, op, time_us, part in ops.head(LONGEST).iter_rows()
    )
    edges, families, modules = (_shares(path, column) for column in ("edge", "family", "module"))
    return Critical(places, rows, max(ops.height - LONGEST, 0), edges, families, modules, tuple(_near(run)))


def _shares(path: CriticalPath, column: str) -> tuple[tuple[str, float], ...]:
    rows = path.by(column).drop_nulls(column).select(column, "share")
    return tuple((name, 100 * part) for name, part in rows.iter_rows())


def _near(run: Run) -> Iterator[NearTime]:
    """Ops none of whose kernels is on the path, though some would be with a little more time."""
    rows = by_op(run, slack_ns(run)).filter(pl.col("slack_us") > 0)
    near = rows.filter(pl.col("slack_us") < NEAR * run.replay.span_us, pl.col("time_us") > 0)
    for op, time_us, slack_us in near.head(MOST_NEAR).iter_rows():
        yield NearTime(op, time_us, slack_us)
