"""GPU time by phase of a training step."""

from dataclasses import dataclass

import polars as pl

ORDER = ("forward", "backward", "optimizer")

# Kernels without an op count as forward. Where they are more than this part of a training step's time, as with
# extensions that PyTorch doesn't see or graphs without a capture, that would be a guess.
MOST_UNKNOWN = 0.25


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
    """The phases that have kernels, in their order; none where too much of a training step is of an unknown one."""
    whole = kernels["time_us"].sum() or 1.0
    rows = kernels.group_by("phase").agg(time=pl.col("time_us").sum(), count=pl.len())
    found = {phase: (time, count) for phase, time, count in rows.iter_rows()}
    unknown = kernels.filter(pl.col("phase") == ORDER[0], pl.col("op").is_null())["time_us"].sum()
    if len(found) > 1 and float(unknown) > MOST_UNKNOWN * float(whole):
        return ()
    return tuple(
        PhaseTime(phase, time / steps, 100 * time / whole, count / steps)
        for phase in ORDER
        if phase in found
        for time, count in [found[phase]]
    )
