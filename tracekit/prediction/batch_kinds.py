"""Separate the batches of a serving engine by kind: prefill, decode and mixed ones take times of their own."""

import polars as pl

from tracekit.errors import StepError
from tracekit.run import MeasuredRun

UNNAMED_KIND = "batch"
"""Kind of the batches of an engine that doesn't tell it."""
KIND = pl.col("kind").fill_null(UNNAMED_KIND)
KIND_ORDER = ("prefill", "mixed", "decode")


def separate_batches(run: MeasuredRun) -> dict[str, MeasuredRun]:
    """Return the run with each kind of batch measured alone; empty if no serving engine marked its steps.

    Of chosen steps of one kind, which is what is measured by default, the others of the trace count too.
    """
    if run.chosen_steps["tokens"].null_count() == run.chosen_steps.height:
        return {}
    chosen = run.chosen_steps.select(KIND)["kind"].unique()
    steps = run.steps if len(chosen) == 1 else run.asked_steps
    found: dict[str, MeasuredRun] = {}
    for kind in steps.select(KIND)["kind"].unique(maintain_order=True):
        if chosen.to_list() == [kind]:
            found[kind] = run
        elif (alone := _measure_kind(run, steps.filter(kind == KIND))) is not None:
            found[kind] = alone
    return dict(sorted(found.items(), key=lambda item: _find_place(item[0])))


def _measure_kind(run: MeasuredRun, steps: pl.DataFrame) -> MeasuredRun | None:
    """Return the run with some steps measured; None if nothing ran on the GPU in them."""
    try:
        measured = run.measure_steps(steps)
    except StepError:
        return None
    return measured if measured.measured_step.step_time_us > 0 else None


def _find_place(kind: str) -> tuple[int, str]:
    return (KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER), kind)
