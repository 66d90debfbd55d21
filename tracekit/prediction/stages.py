"""A job of one stage on a target where it has several: what its ranks see of each other, and what a step becomes."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from tracekit.arrays import Floats
from tracekit.prediction.layout import Layout
from tracekit.prediction.model import Target
from tracekit.prediction.pipeline import Pipeline, pipelined
from tracekit.replay.engine import Timeline
from tracekit.replay.measure import StepTime
from tracekit.replay.run import Run


def of_one_stage(layouts: tuple[Layout, Layout] | None) -> tuple[Layout, Layout] | None:
    """The change that the ranks of each stage see among themselves, where the stages are new.

    Args:
        layouts: Of the trace, and on the target; None where it stays.
    """
    if layouts is None or not layouts[0].pp == 1 < layouts[1].pp:
        return layouts
    old, stage = layouts[0], layouts[1].of_one_stage
    return None if old == stage and not old.sharded else (old, stage)


def staged(
    run: Run, lines: Sequence[Timeline], target: Target, layouts: tuple[Layout, Layout] | None
) -> tuple[Pipeline | None, Sequence[Floats | float]]:
    """The pipeline that a job becomes, if it does, and how much longer that makes the steps of each timeline.

    Args:
        run: The measured run.
        lines: Its replays with the target's times.
        target: Where it is to run.
        layouts: Of the trace, and on the target; None where it stays.

    Raises:
        LayoutError: The job can't be cut into such stages.
    """
    if layouts is None or target.cluster is None or not layouts[0].pp == 1 < layouts[1].pp:
        return None, (1.0,) * len(lines)
    return pipelined(run, lines, layouts[1], target.cluster)


def growth(layouts: tuple[Layout, Layout] | None, pipeline: Pipeline | None) -> float:
    """What the job works through in a step of another layout, over what it does in the trace.

    Args:
        layouts: Of the trace, and on the target; None where it stays.
        pipeline: That it becomes, if it does.
    """
    if layouts is None:
        return 1.0
    old, new = layouts
    return new.dp * new.batch / (old.dp * old.batch) * (pipeline.growth if pipeline else 1.0)


def worked(step: StepTime, step_time_us: float, pipeline: Pipeline | None, layout: Layout | None) -> StepTime:
    """A step that lasts so long; in a pipeline, a GPU's times are those of its part of the work.

    Args:
        step: Of one stage.
        step_time_us: How long the step of the whole pipeline takes.
        pipeline: That the job becomes, if it does.
        layout: On the target.
    """
    if pipeline is not None and layout is not None:
        often = pipeline.passed if layout.tp * layout.ep > 1 else 1 / pipeline.stages
        exposed_us = step.exposed_comm_us * often + pipeline.gather_us
        step = replace(
            step,
            kernel_time_us=(step.kernel_time_us - step.exposed_comm_us) * pipeline.work + exposed_us,
            exposed_comm_us=exposed_us,
            waiting_us=step.waiting_us * often,
        )
    # The GPU's times are medians as replayed, the step is on the scale of the measured ones.
    busy_us = min(step.kernel_time_us, step_time_us)
    return replace(
        step, step_time_us=step_time_us, kernel_time_us=busy_us, exposed_comm_us=min(step.exposed_comm_us, busy_us)
    )


def meetings(pipeline: Pipeline | None, in_passes: pl.Expr) -> pl.Expr:
    """How often a stage does each collective, over the trace: those that aren't in its passes come once a step.

    Args:
        pipeline: That the job becomes, if it does.
        in_passes: Which collectives are in them.
    """
    if pipeline is None:
        return pl.lit(1.0)
    return pl.when(in_passes).then(pipeline.passed).otherwise(1 / pipeline.stages)
