"""The CPU limits the step: it would hardly be shorter with infinitely fast kernels."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from tracekit.replay.run import Run
from tracekit.reporting.findings.model import Finding

LIMITING = 0.5


def find(run: Run, kernels: pl.DataFrame) -> Iterator[Finding]:
    """Fires if at least half of the step is left when kernels take no time."""
    part = run.step_with(np.zeros(run.kernels.height)).span_us / run.replay.span_us
    if part < LIMITING:
        return
    floor_us = part * run.measured.step_time_us
    yield Finding(
        title=f"The CPU sets a floor of {floor_us / 1e3:.3g} ms, {100 * part:.0f} % of the step, whatever the GPU.",
        advice="Fewer, larger launches (CUDA graphs, torch.compile, larger batches), fewer synchronisations.",
        saves_us=run.measured.idle_us,
    )
