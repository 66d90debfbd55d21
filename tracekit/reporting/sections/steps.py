"""The measured steps, one by one."""

from dataclasses import dataclass
from typing import Annotated

from tracekit.reporting.columns import Column
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step that was asked for, as recorded."""

    step: Annotated[int, Column("ProfilerStep number; 0 in a trace without steps.", "step")]
    time_us: Annotated[
        float, Column("From the end of the step before to its end; of the trace's first from its start.", "time")
    ]
    kernel_time_us: Annotated[float, Column("Time in which the GPU ran something of it.", "GPU busy")]
    exposed_comm_us: Annotated[float, Column("The part of it in which only collectives ran.", "only communicating")]
    first: Annotated[
        bool, Column("Whether it is the trace's first step, which starts with an empty queue: left out of figures.")
    ]


def build_measured_steps(run: MeasuredRun) -> tuple[MeasuredStep, ...]:
    """Build the steps that were asked for, in order."""
    steps = run.measured_steps
    times_us = ((steps[f"{part}_ns"] / 1e3).to_list() for part in ("time", "busy", "exposed"))
    return tuple(map(MeasuredStep, steps["step"].to_list(), *times_us, steps["first"].to_list()))
