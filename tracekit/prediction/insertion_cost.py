"""Report a prediction with inserted kernels in terms of the kernels that the trace holds."""

from dataclasses import replace

import polars as pl

from tracekit.parallelism.ddp import COLLECTIVE_SM_FRACTION, MAX_COLLECTIVE_SM_FRACTION
from tracekit.parallelism.process_groups import EP_GROUP, TP_GROUP
from tracekit.prediction import notes
from tracekit.prediction.model import Prediction
from tracekit.prediction.note_order import order_notes
from tracekit.prediction.stages import count_collectives_per_step
from tracekit.program import Program


def separate_inserted_kernels(prediction: Prediction, program: Program) -> Prediction:
    """Separate the inserted kernels from a prediction.

    The trace's kernels keep one row each; inserted kernels are summed by family. Overlapping collectives slow the
    kernels.

    Args:
        prediction: Prediction of the program with inserted kernels, which follow the others.
        program: The program without them.
    """
    own, replayed = program.kernels.height, prediction.program.kernels
    group = pl.col("group_description")
    added = replayed[own:].select("family", "step", group, time_us=prediction.kernels["time_us"][own:])
    chosen = added.filter(pl.col("step").is_in(program.chosen_steps["step"].implode()))
    added_us = dict(chosen.group_by("family", maintain_order=True).agg(pl.col("time_us").sum()).iter_rows())
    often = count_collectives_per_step(prediction.pipeline, group.is_in([TP_GROUP, EP_GROUP]))
    of_stage_us = chosen.filter(family="collective").select((pl.col("time_us") * often).sum()).item()
    put_in_us = of_stage_us / program.chosen_steps.height
    step = prediction.step
    gather_us = prediction.pipeline.gather_us if prediction.pipeline else 0.0
    exposed_us = min(step.exposed_comm_us - gather_us, put_in_us)
    # Slower kernels lengthen a step only for the fraction of it in which the GPU is busy.
    hidden_us = (put_in_us - exposed_us) * min(step.kernel_time_us / step.step_time_us, 1.0)
    slower_us = COLLECTIVE_SM_FRACTION * hidden_us
    longer, most_us = 1 + slower_us / step.step_time_us, MAX_COLLECTIVE_SM_FRACTION * hidden_us
    return replace(
        prediction,
        step=replace(
            step,
            step_time_us=step.step_time_us * longer,
            kernel_time_us=step.kernel_time_us + slower_us,
            span_us=step.span_us * longer,
            mean_us=step.mean_us * longer,
        ),
        energy=prediction.energy.lengthen(longer),
        speedup=None if prediction.speedup is None else prediction.speedup / longer,
        kernels=prediction.kernels.head(own),
        inserted_us=added_us,
        high_us=prediction.high_us + most_us,
        mean_low_us=min(prediction.mean_low_us, step.mean_us * longer),
        mean_high_us=prediction.mean_high_us + most_us * step.mean_us / step.step_time_us,
        notes=order_notes(
            (*prediction.notes, notes.note_inserted_collectives(put_in_us, exposed_us, slower_us)),
            step.step_time_us * longer,
        ),
    )
