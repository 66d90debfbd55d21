"""GPU time by phase of a training step."""

from dataclasses import dataclass
from typing import Annotated

import polars as pl

from tracekit.reporting.columns import Column

PHASE_ORDER = ("forward", "backward", "optimizer")

# Kernels without an op count as forward. Above this fraction of a training step's time that would be a guess: with
# extensions that PyTorch doesn't see, or graphs without a capture.
MAX_UNKNOWN_FRACTION = 0.25


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """GPU time of one phase in the median step."""

    phase: Annotated[str, Column("Forward, backward or optimizer.", "phase")]
    time_us: Annotated[float, Column("Summed time of its kernels per step.", "time")]
    share: Annotated[float, Column("Of all kernels' summed time, percent.", "of kernel time")]
    kernels: Annotated[float, Column("Kernels per step.", "kernels")]


def build_phase_times(kernels: pl.DataFrame, steps: int) -> tuple[PhaseTime, ...]:
    """Build the phases that have kernels, in order; empty if the phase of too much of a training step is unknown."""
    whole = kernels["time_us"].sum() or 1.0
    unknown = pl.col("time_us").filter(pl.col("op").is_null()).sum()
    rows = kernels.group_by("phase").agg(time=pl.col("time_us").sum(), count=pl.len(), unknown=unknown).rows()
    found = {phase: (time, count) for phase, time, count, _ in rows}
    unknown_us = {phase: time for phase, _, _, time in rows}
    if len(found) > 1 and unknown_us.get(PHASE_ORDER[0], 0.0) > MAX_UNKNOWN_FRACTION * float(whole):
        return ()
    return tuple(
        PhaseTime(phase, time / steps, 100 * time / whole, count / steps)
        for phase in PHASE_ORDER
        if phase in found
        for time, count in [found[phase]]
    )
