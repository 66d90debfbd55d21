"""Limit a run to the steps that a browser can show as a timeline."""

import polars as pl

from tracekit.bounds import MAX_DRAWN_KERNELS
from tracekit.messages import Message
from tracekit.messages import reports as told
from tracekit.run import MeasuredRun


def limit_timeline_steps(run: MeasuredRun, timelines: int) -> tuple[MeasuredRun | None, Message | None]:
    """Select the first of the chosen steps, as many as fit.

    Args:
        run: The measured run.
        timelines: Number of timelines that draw each kernel: the measured one and one per target.

    Returns:
        The run with fewer chosen steps, ``None`` if not even one step fits; and a message on what is left out, ``None``
        if nothing is.
    """
    chosen = run.kernels.filter(run.is_in_chosen_steps)
    steps = chosen.group_by("step").len().sort("step").with_columns(drawn=timelines * pl.col("len").cum_sum())
    fitting = steps.filter(pl.col("drawn") <= MAX_DRAWN_KERNELS)
    if fitting.height == steps.height:
        return run, None
    too_many = {"kernels": steps["drawn"][-1], "max_kernels": MAX_DRAWN_KERNELS}
    if fitting.is_empty():
        return None, told.TIMELINE_LEFT_OUT(**too_many)
    first, last = fitting["step"][0], fitting["step"][-1]
    shown = run.replace_chosen_steps(run.chosen_steps.filter(pl.col("step").is_in(fitting["step"].implode())))
    return shown, told.TIMELINE_CUT(first=first, last=last, **too_many)
