"""Breakdown of the step's time on each GPU."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import polars as pl

from tracekit.prediction import Prediction
from tracekit.replay.step_time import StepTime
from tracekit.reporting.sections.source import label_times
from tracekit.run import MeasuredRun

TRAILING_PARTS = ("waiting", "idle")
UNASSIGNED_FAMILY = "other"
"""Family of the GPU's work if no chosen step is known to have launched any."""


@dataclass(frozen=True, slots=True)
class TimeBar:
    """Where the step's time goes on one GPU; the parts add up to the step.

    Attributes:
        label: ``measured`` (of a captured program ``captured``), or the target's name.
        step_time_us: Step time.
        parts: Time by family, in the order of the measured bar, largest first; then ``waiting`` for other ranks, if
            any, and ``idle``. Kernels that overlap split the time that they cover.
    """

    label: str
    step_time_us: float
    parts: tuple[tuple[str, float], ...]


def build_time_bars(run: MeasuredRun, targets: Sequence[Prediction]) -> tuple[TimeBar, ...]:
    """Build the bars of the measured step and of the targets."""
    bars = [_build_bar(run, label_times(is_captured=run.is_captured), run.measured_step, run.kernels["dur_ns"] / 1e3)]
    bars += [
        _build_bar(run, target.label, target.step, target.kernels["time_us"], target.inserted_us) for target in targets
    ]
    order = list_parts(bars)
    return tuple(replace(bar, parts=tuple(sorted(bar.parts, key=lambda part: order.index(part[0])))) for bar in bars)


def list_parts(bars: Iterable[TimeBar]) -> list[str]:
    """List the parts that any of the bars has: in the order of the first bar, waiting and idle last."""
    return order_parts(family for bar in bars for family, _ in bar.parts)


def order_parts(parts: Iterable[str]) -> list[str]:
    """Return each part once in order of first appearance, but waiting and idle last."""
    found = dict.fromkeys(parts)
    return [
        *(family for family in found if family not in TRAILING_PARTS),
        *(family for family in TRAILING_PARTS if family in found),
    ]


def _build_bar(
    run: MeasuredRun,
    label: str,
    step: StepTime,
    time_us: pl.Series,
    added_us: Mapping[str, float] = MappingProxyType({}),
) -> TimeBar:
    added = pl.DataFrame([*added_us.items()], schema={"family": pl.String, "time": pl.Float64}, orient="row")
    rows = pl.concat(
        [pl.DataFrame({"family": run.kernels["family"], "time": time_us}).filter(run.is_in_chosen_steps), added]
    )
    families = rows.group_by("family").agg(pl.col("time").sum()).sort("time", "family", descending=[True, False])
    whole = families["time"].sum()
    shares = [(family, time / whole) for family, time in families.iter_rows()] if whole else [(UNASSIGNED_FAMILY, 1.0)]
    works_us = step.kernel_time_us - step.waiting_us
    parts = [(family, share * works_us) for family, share in shares]
    waiting = [("waiting", step.waiting_us)] if step.waiting_us else []
    return TimeBar(label, step.step_time_us, (*parts, *waiting, ("idle", step.idle_us)))
