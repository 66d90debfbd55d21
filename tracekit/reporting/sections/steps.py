"""The measured steps, one by one."""

from dataclasses import dataclass

import polars as pl

from tracekit.replay.engine import measured
from tracekit.replay.measure import of_all_ranks, per_step
from tracekit.replay.run import Run


@dataclass(frozen=True, slots=True)
class Step:
    """One chosen step as it was recorded.

    Attributes:
        step: Its ``ProfilerStep`` number; 0 in a trace without steps.
        time_us: From the end of the step before to its end; of the trace's first step, from its start, or from when
            the GPU was through with work from before.
        kernel_time_us: Time in which the GPU ran something of it; of several ranks in the mean.
        exposed_comm_us: The part of it in which only collectives ran.
        first: It is the trace's first, which starts with an empty queue; with others chosen it doesn't count.
    """

    step: int
    time_us: float
    kernel_time_us: float
    exposed_comm_us: float
    first: bool


def build(run: Run) -> tuple[Step, ...]:
    """The chosen steps, in order."""
    times = measured_steps(run).select(
        "step", *(pl.col(f"{part}_ns") / 1e3 for part in ("time", "busy", "exposed")), "first"
    )
    return tuple(Step(*row) for row in times.iter_rows())


def measured_steps(run: Run) -> pl.DataFrame:
    """The chosen steps that have a time, as :func:`tracekit.replay.measure.of_all_ranks` gives them."""
    table = of_all_ranks(per_step(measured(run.graph), run.kernels, run.steps))
    return table.join(run.chosen.select("step"), on="step", how="semi", maintain_order="left").drop_nulls("time_ns")
