"""As much of a run as a browser can show as a timeline."""

from dataclasses import replace

import polars as pl

from tracekit.replay.run import Run

MOST_KERNELS = 200_000
"""Drawn on all timelines together: some 300 MB of text, which Perfetto takes seconds to read and a worker to write."""


def excerpt(run: Run, timelines: int) -> tuple[Run | None, str | None]:
    """The first of the chosen steps, as many as fit.

    Args:
        run: The measured run.
        timelines: How often each kernel is drawn: measured, and on every target.

    Returns:
        The run with fewer chosen steps, ``None`` if not even one fits; and what that leaves out, if anything.
    """
    chosen = run.kernels.filter(run.in_steps)
    steps = chosen.group_by("step").len().sort("step").with_columns(drawn=timelines * pl.col("len").cum_sum())
    fitting = steps.filter(pl.col("drawn") <= MOST_KERNELS)
    if fitting.height == steps.height:
        return run, None
    too_much = f"all would be {steps['drawn'][-1]:,} kernels, more than the {MOST_KERNELS:,} that are drawn"
    if fitting.is_empty():
        return None, f"there is no timeline: {too_much}; choose fewer steps or targets, or use `tracekit export`"
    first, last = fitting["step"][0], fitting["step"][-1]
    shown = replace(run, chosen=run.chosen.filter(pl.col("step").is_in(fitting["step"].implode())))
    return shown, f"the timeline shows the steps {first} to {last} only: {too_much}; choose the steps to see others"
