"""Where the step's time goes on each GPU."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import polars as pl

from tracekit.prediction import Prediction
from tracekit.replay.measure import StepTime
from tracekit.replay.run import Run

LAST = ("waiting", "idle")
NO_STEP = "other"
"""What the GPU's work counts to where no chosen step is known to have launched any."""


@dataclass(frozen=True, slots=True)
class TimeBar:
    """Where the step's time goes on one GPU; the parts add up to the step.

    Attributes:
        label: ``measured``, or the target's name.
        step_time_us: The step.
        parts: Family to time, in the order of the measured bar, whose largest comes first; then ``waiting`` for other
            ranks, if any, and ``idle``. Kernels that overlap share the time they cover.
    """

    label: str
    step_time_us: float
    parts: tuple[tuple[str, float], ...]


def build(run: Run, targets: Sequence[Prediction]) -> tuple[TimeBar, ...]:
    """The measured step and those of the targets."""
    bars = [_bar(run, "measured", run.measured, run.kernels["dur_ns"] / 1e3)]
    bars += [_bar(run, target.label, target.step, target.kernels["time_us"], target.added_us) for target in targets]
    order = families(bars)
    return tuple(replace(bar, parts=tuple(sorted(bar.parts, key=lambda part: order.index(part[0])))) for bar in bars)


def families(bars: Iterable[TimeBar]) -> list[str]:
    """The parts that any of the bars has: those of the first in its order, waiting and idle last."""
    return in_order(family for bar in bars for family, _ in bar.parts)


def in_order(parts: Iterable[str]) -> list[str]:
    """Each part once, as they first come, but waiting and idle last."""
    found = dict.fromkeys(parts)
    return [*(family for family in found if family not in LAST), *(family for family in LAST if family in found)]


def _bar(
    run: Run, label: str, step: StepTime, time_us: pl.Series, added_us: Mapping[str, float] = MappingProxyType({})
) -> TimeBar:
    added = pl.DataFrame([*added_us.items()], schema={"family": pl.String, "time": pl.Float64}, orient="row")
    rows = pl.concat([pl.DataFrame({"family": run.kernels["family"], "time": time_us}).filter(run.in_steps), added])
    families = rows.group_by("family").agg(pl.col("time").sum()).sort("time", "family", descending=[True, False])
    whole = families["time"].sum()
    shares = [(family, time / whole) for family, time in families.iter_rows()] if whole else [(NO_STEP, 1.0)]
    works_us = step.kernel_time_us - step.waiting_us
    parts = [(family, share * works_us) for family, share in shares]
    waiting = [("waiting", step.waiting_us)] if step.waiting_us else []
    return TimeBar(label, step.step_time_us, (*parts, *waiting, ("idle", step.idle_us)))
