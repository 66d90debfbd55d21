"""Describe a job's step in another layout: stages that the trace doesn't have, and kernels that were inserted."""

from dataclasses import replace

import polars as pl

from tracekit.parallelism.ddp import COLLECTIVE_SM_FRACTION, MAX_COLLECTIVE_SM_FRACTION
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.pipeline_parallel import Pipeline
from tracekit.parallelism.process_groups import CP_GROUP, EP_GROUP, TP_GROUP
from tracekit.prediction import notes
from tracekit.prediction.model import Prediction
from tracekit.prediction.note_order import order_notes
from tracekit.program import Program
from tracekit.replay.step_time import StepTime


def get_stage_layouts(layouts: tuple[Layout, Layout] | None) -> tuple[Layout, Layout] | None:
    """Return the layouts of one stage's ranks, where the stages are new.

    Args:
        layouts: Layouts of the trace and on the target; None where the layout stays.
    """
    if layouts is None or not layouts[0].pp == 1 < layouts[1].pp:
        return layouts
    old, stage = layouts[0], layouts[1].stage_layout
    return None if old == stage and not old.sharded else (old, stage)


def compute_batch_ratio(layouts: tuple[Layout, Layout] | None, pipeline: Pipeline | None) -> float:
    """Compute what the job processes in a step of another layout, relative to the trace.

    Args:
        layouts: Layouts of the trace and on the target; None where the layout stays.
        pipeline: The pipeline, if the job becomes one.
    """
    if layouts is None:
        return 1.0
    old, new = layouts
    return new.dp * new.batch / (old.dp * old.batch) * (pipeline.micro_batch_ratio if pipeline else 1.0)


def scale_to_pipeline_step(
    step: StepTime, step_time_us: float, pipeline: Pipeline | None, layout: Layout | None
) -> StepTime:
    """Scale a one-stage step to the pipeline's step time; its GPU times become those of a stage's part of the work.

    Args:
        step: The step of one stage.
        step_time_us: Step time of the whole pipeline.
        pipeline: The pipeline, if the job becomes one.
        layout: Layout on the target.
    """
    if pipeline is not None and layout is not None:
        often = pipeline.stage_pass_ratio if layout.tp * layout.cp * layout.ep > 1 else 1 / pipeline.stages
        exposed_us = step.exposed_comm_us * often + pipeline.gather_us
        step = replace(
            step,
            kernel_time_us=(step.kernel_time_us - step.exposed_comm_us) * pipeline.stage_work_ratio + exposed_us,
            exposed_comm_us=exposed_us,
            waiting_us=step.waiting_us * often,
        )
    # The GPU's times are medians as replayed, the step is on the scale of the measured ones.
    busy_us = min(step.kernel_time_us, step_time_us)
    return replace(
        step,
        step_time_us=step_time_us,
        kernel_time_us=busy_us,
        exposed_comm_us=min(step.exposed_comm_us, busy_us),
        mean_us=step.mean_us * (step_time_us / step.step_time_us if step.step_time_us else 1.0),
    )


def count_collectives_per_step(pipeline: Pipeline | None, in_passes: pl.Expr) -> pl.Expr:
    """Count each collective per step of a stage, relative to the trace.

    Collectives outside the passes run once a step.

    Args:
        pipeline: The pipeline, if the job becomes one.
        in_passes: Selects the collectives in the passes.
    """
    if pipeline is None:
        return pl.lit(1.0)
    return pl.when(in_passes).then(pipeline.stage_pass_ratio).otherwise(1 / pipeline.stages)


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
    often = count_collectives_per_step(prediction.pipeline, group.is_in([TP_GROUP, CP_GROUP, EP_GROUP]))
    of_stage_us = chosen.filter(family="collective").select((pl.col("time_us") * often).sum()).item()
    put_in_us = of_stage_us / program.chosen_steps.height
    step = prediction.step
    gather_us = prediction.pipeline.gather_us if prediction.pipeline else 0.0
    exposed_us = min(step.exposed_comm_us - gather_us, put_in_us)
    # Collectives beside each other slow a kernel once; slower kernels lengthen a step only while the GPU is busy.
    beside_us = min(put_in_us, step.kernel_time_us) - exposed_us
    hidden_us = max(beside_us, 0.0) * min(step.kernel_time_us / step.step_time_us, 1.0)
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
