"""The critical path: what the step would get shorter with."""

from dataclasses import dataclass

from tracekit.replay.critical import critical_path
from tracekit.replay.engine import measured
from tracekit.replay.run import Run

MARK = "mark"
LONGEST = 20
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
class Critical:
    """The critical path of the measured steps.

    Attributes:
        places: Where the path runs (``gpu``, ``host``, ``latency``, ``unexplained``) to its share in percent.
        ops: The ops with most of it, longest first.
        omitted: How many more there are.
    """

    places: tuple[tuple[str, float], ...]
    ops: tuple[CriticalTime, ...]
    omitted: int


def build(run: Run) -> Critical:
    """The critical path of the measured run."""
    path = critical_path(run.graph, measured(run.graph), run.kernels, run.steps, run.chosen)
    places = tuple((on, 100 * part) for on, part in path.by("on").select("on", "share").iter_rows())
    ops = path.by("on", "op").select("on", "op", "time_us", "share")
    steps = run.chosen["step"].n_unique()
    rows = tuple(
        CriticalTime(on, "end of the step" if op == MARK else op or "–", time_us / steps, 100 * part)
        for on, op, time_us, part in ops.head(LONGEST).iter_rows()
    )
    return Critical(places, rows, max(ops.height - LONGEST, 0))
