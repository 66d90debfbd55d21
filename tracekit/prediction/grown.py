"""A prediction with kernels that the trace doesn't hold, told by those that it holds."""

from dataclasses import replace

import polars as pl

from tracekit.prediction import notes
from tracekit.prediction.copies import LIKELY_TAKEN, TAKEN
from tracekit.prediction.layout import PARTS, SHARERS
from tracekit.prediction.model import Prediction
from tracekit.prediction.stages import meetings
from tracekit.replay.run import Run


def with_added(prediction: Prediction, run: Run, kernels: pl.DataFrame) -> Prediction:
    """A prediction with the trace's own kernels in a row each, and those that were put in by family.

    Args:
        prediction: Of a run with kernels put in.
        run: The run without them.
        kernels: The kernel table with them, behind the others.
    """
    own = run.kernels.height
    group = pl.col("group_description")
    added = kernels[own:].select("family", "step", group, time_us=prediction.kernels["time_us"][own:])
    chosen = added.filter(pl.col("step").is_in(run.chosen["step"].implode()))
    added_us = dict(chosen.group_by("family", maintain_order=True).agg(pl.col("time_us").sum()).iter_rows())
    often = meetings(prediction.pipeline, group.is_in([PARTS, SHARERS]))
    of_stage_us = chosen.filter(family="collective").select((pl.col("time_us") * often).sum()).item()
    put_in_us = of_stage_us / run.chosen.height
    step = prediction.step
    gather_us = prediction.pipeline.gather_us if prediction.pipeline else 0.0
    exposed_us = min(step.exposed_comm_us - gather_us, put_in_us)
    # What slows the GPU's kernels lengthens a step as far as the GPU has something to do in it.
    hidden_us = (put_in_us - exposed_us) * min(step.kernel_time_us / step.step_time_us, 1.0)
    slower_us = LIKELY_TAKEN * hidden_us
    longer = 1 + slower_us / step.step_time_us
    return replace(
        prediction,
        step=replace(
            step,
            step_time_us=step.step_time_us * longer,
            kernel_time_us=step.kernel_time_us + slower_us,
            span_us=step.span_us * longer,
        ),
        speedup=prediction.speedup / longer,
        kernels=prediction.kernels.head(own),
        added_us=added_us,
        high_us=prediction.high_us + TAKEN * hidden_us,
        notes=(*prediction.notes, notes.of_added(put_in_us, exposed_us, slower_us)),
    )
