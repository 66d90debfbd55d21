"""The measured steps, one by one."""

from dataclasses import dataclass

import polars as pl

from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step that was asked for, as recorded.

    Attributes:
        step: Its ``ProfilerStep`` number; 0 in a trace without steps.
        time_us: From the end of the previous step to its end. The trace's first step is measured from its start, or
            from when the GPU had finished earlier work.
        kernel_time_us: Time in which the GPU ran anything of it; for several ranks the mean.
        exposed_comm_us: Part of the kernel time in which only collectives ran.
        first: Whether it is the trace's first step, which starts with an empty launch queue; no figure counts it if
            others were asked for.
    """

    step: int
    time_us: float
    kernel_time_us: float
    exposed_comm_us: float
    first: bool


def build_measured_steps(run: MeasuredRun) -> tuple[MeasuredStep, ...]:
    """Build the steps that were asked for, in order."""
    times = run.measured_steps.select(
        "step", *(pl.col(f"{part}_ns") / 1e3 for part in ("time", "busy", "exposed")), "first"
    )
    return tuple(MeasuredStep(*row) for row in times.iter_rows())
