"""Finding: the host limits the step, which would hardly be shorter with infinitely fast kernels."""

from collections.abc import Iterator
from math import inf

from tracekit.analysis.idle_causes import IdleCause
from tracekit.messages import Value
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.whatif import KernelSelection, cuda_graph

MIN_HOST_FRACTION = 0.5
MIN_UNSCALED_FRACTION = 0.05
"""Fraction of the step that neither GPU nor host account for, from which on the finding mentions it."""


def find_launch_bound(context: FindingContext) -> Iterator[Finding]:
    """Find a launch-bound step: the host takes half of it with zero-time kernels, and CUDA graphs save at least 1 %.

    Time that is left with both kernels and host at zero isn't the host's: these waits and gaps stay as measured.
    """
    part, kept = (context.replays.compute_step_time_us(inf, host) / context.step_time_us for host in (1.0, inf))
    if part - kept < MIN_HOST_FRACTION:
        return
    saves_us = context.compute_edit_saving_us(lambda run: cuda_graph(run, KernelSelection({})))
    if not context.is_worth_reporting(saves_us):
        return
    floor: dict[str, Value] = {
        "floor_us": part * context.step_time_us,
        "floor_pct": 100 * part,
        "remedies": context.list_launch_remedies(),
    }
    message = told.LAUNCH_BOUND(**floor)
    if kept >= MIN_UNSCALED_FRACTION:
        message = told.LAUNCH_BOUND_PARTLY(**floor, kept_us=kept * context.step_time_us)
    yield Finding(
        message=message,
        saves_us=saves_us,
        evidence=context.list_late_launches(shown.LAUNCH_LATE(), IdleCause.LAUNCH_BOUND, IdleCause.LAUNCH_LATENCY),
        parts=(IdleCause.LAUNCH_BOUND.value, IdleCause.LAUNCH_LATENCY.value),
    )
