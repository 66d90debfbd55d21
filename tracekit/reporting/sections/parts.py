"""The parts of the measured step, and whose each is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from tracekit.analysis.critical_path import COMMUNICATION, GPU, HOST, LATENCY, UNEXPLAINED
from tracekit.analysis.idle import IdleBreakdown
from tracekit.analysis.idle_causes import IdleCause
from tracekit.format import name_place
from tracekit.replay.step_time import StepTime
from tracekit.reporting.columns import Column

COLLECTIVE = "collective"

IDLE_OWNERS: Mapping[str, str] = {
    **dict.fromkeys(
        (IdleCause.LAUNCH_BOUND, IdleCause.SYNC_BOUND, IdleCause.ALLOCATOR, IdleCause.DATA_LOADING),
        HOST,
    ),
    **dict.fromkeys((IdleCause.LAUNCH_LATENCY, IdleCause.KERNEL_GAP, IdleCause.DEPENDENCY), LATENCY),
    **dict.fromkeys((IdleCause.WAITS_FOR_COMPUTE, IdleCause.WAITS_FOR_COPY, IdleCause.UNRECORDED), GPU),
    **dict.fromkeys((IdleCause.WAITS_FOR_COMMUNICATION, IdleCause.RENDEZVOUS), COMMUNICATION),
    **dict.fromkeys((IdleCause.IN_GRAPH, IdleCause.NOTHING_LAUNCHED, IdleCause.UNEXPLAINED), UNEXPLAINED),
}
"""Whose an idle GPU's time is, by cause."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of the measured step; all of them add up to it."""

    name: Annotated[str, Column("Family of kernels, or why the GPU was idle.", "part")]
    owner: Annotated[
        str, Column("Whose the time is: gpu, communication, host, latency or unexplained.", "whose it is", name_place)
    ]
    time_us: Annotated[float, Column("Time in the median step.", "time")]
    share: Annotated[float, Column("Of the step, percent.", "of the step")]


def build_step_parts(step: StepTime, families: Mapping[str, float], idle: IdleBreakdown) -> tuple[StepPart, ...]:
    """Build the parts, longest first.

    Args:
        step: The measured step.
        families: Fraction of the time in which the GPU works by family of kernels.
        idle: Causes of the GPU's idle and waiting time, on the scale of that step.
    """
    parts = sorted(_iter_parts(step, families, idle), key=lambda part: (-part[2], part[0]))
    return tuple(StepPart(*part, share=100 * part[2] / step.step_time_us) for part in parts)


def _iter_parts(step: StepTime, families: Mapping[str, float], idle: IdleBreakdown) -> Iterator[tuple[str, str, float]]:
    works_us = step.kernel_time_us - step.waiting_us
    for family, fraction in families.items():
        yield family, COMMUNICATION if family == COLLECTIVE else GPU, fraction * works_us
    for cause, time_us, _ in idle.sum_by_cause().iter_rows():
        yield cause, IDLE_OWNERS[cause], time_us
