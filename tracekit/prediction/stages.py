"""Treat a one-stage job on a target where it has several stages: the layout within a stage, and the step time."""

from dataclasses import replace

import polars as pl

from tracekit.parallelism.layout import Layout
from tracekit.parallelism.pipeline_parallel import Pipeline
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
        often = pipeline.stage_pass_ratio if layout.tp * layout.ep > 1 else 1 / pipeline.stages
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
