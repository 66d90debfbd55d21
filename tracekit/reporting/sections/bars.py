"""Breakdown of the step's time on each GPU."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.prediction import Prediction
from tracekit.replay.step_time import StepTime
from tracekit.reporting.replayed_shares import ReplayedShares
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


def build_time_bars(
    run: MeasuredRun, targets: Sequence[Prediction], replayed: Sequence[ReplayedShares]
) -> tuple[TimeBar, ...]:
    """Build the bars of the measured step and of the targets.

    Args:
        run: The measured run.
        targets: Its predictions.
        replayed: What the measured step, and then each target's, is made of.
    """
    steps = [(label_times(run.trace), run.measured_step), *((target.label, target.step) for target in targets)]
    bars = [_build_bar(label, step, shares.families) for (label, step), shares in zip(steps, replayed, strict=True)]
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


def _build_bar(label: str, step: StepTime, families: Mapping[str, float]) -> TimeBar:
    works_us = step.kernel_time_us - step.waiting_us
    parts = [(family, share * works_us) for family, share in (families or {UNASSIGNED_FAMILY: 1.0}).items()]
    waiting = [("waiting", step.waiting_us)] if step.waiting_us else []
    return TimeBar(label, step.step_time_us, (*parts, *waiting, ("idle", step.idle_us)))
