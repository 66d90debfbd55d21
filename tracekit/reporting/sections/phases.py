"""GPU time by phase of a training step."""

from dataclasses import dataclass

import polars as pl

ORDER = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """GPU time of one phase in the median step.

    Attributes:
        phase: forward, backward or optimizer.
        time_us: Its kernels' summed time per step.
        share: Of all kernels' summed time.
        kernels: Kernels per step.
    """

    phase: str
    time_us: float
    share: float
    kernels: float


def build(kernels: pl.DataFrame, steps: int) -> tuple[PhaseTime, ...]:
    """The phases that have kernels, in their order."""
    whole = kernels["time_us"].sum() or 1.0
    rows = kernels.group_by("phase").agg(time=pl.col("time_us").sum(), count=pl.len())
    found = {phase: (time, count) for phase, time, count in rows.iter_rows()}
    return tuple(
        PhaseTime(phase, time / steps, 100 * time / whole, count / steps)
        for phase in ORDER
        if phase in found
        for time, count in [found[phase]]
    )
