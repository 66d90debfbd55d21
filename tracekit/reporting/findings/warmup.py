"""Finding: a step that is still warming up among the measured ones."""

from collections.abc import Iterator

import numpy as np

from tracekit.arrays import select_table
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Evidence, Finding

MIN_SLOWDOWN = 1.3
MIN_STEPS = 3


def find_warmup_step(context: FindingContext) -> Iterator[Finding]:
    """Find a first measured step, of at least three, that takes 30 % longer than the median of the others.

    The trace's first step doesn't count if it is left out.
    """
    steps = context.run.measured_steps
    steps = select_table(steps, np.isin(steps["step"].to_numpy(), context.run.chosen_steps["step"].to_numpy()))
    if steps.height < MIN_STEPS:
        return
    first_us, median_us = steps["time_ns"][0] / 1e3, float(steps["time_ns"][1:].median() or 0) / 1e3  # type: ignore[arg-type]
    if first_us < MIN_SLOWDOWN * median_us:
        return
    number, last = steps["step"][0], steps["step"][-1]
    rows = zip(steps["step"], steps["time_ns"] / 1e3, strict=True)
    yield Finding(
        message=told.WARM_UP(step=number, step_us=first_us, median_us=median_us, first=number + 1, last=last),
        saves_us=None,
        evidence=tuple(Evidence(f"step {step}", time_us) for step, time_us in rows),
    )
