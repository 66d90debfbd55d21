"""Checks of the GPU's idle time: whether the trace explains it, and whether the GPU was idle at all."""

from tracekit.analysis.idle import attribute_idle_time
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.unrecorded_work import measure_unrecorded_time
from tracekit.doctor.model import Check, CheckContext, grade_cost
from tracekit.messages import Message
from tracekit.messages import doctor_checks as told

MIN_SHOWN_PCT = 0.1
MIN_WARN_PCT = 5.0
"""Percent of the step from which on idle time that nothing explains is a shortcoming."""


def check_idle_time(context: CheckContext) -> Check | None:
    """Warn if the GPU is idle within CUDA graphs, or for no recorded reason: predictions keep that as measured."""
    run = context.run
    if context.rank.calls.is_empty() or not run.measured_step.idle_us:
        return None
    idle = attribute_idle_time(run.program, run.measured_timeline).scale_to(run.measured_step)
    causes_us = dict(idle.sum_by_cause().select("cause", "time_us").iter_rows())
    hidden, unknown = (
        context.to_step_pct(causes_us.get(cause, 0.0)) for cause in (IdleCause.IN_GRAPH, IdleCause.UNEXPLAINED)
    )
    idle_us = run.measured_step.idle_us - causes_us.get(IdleCause.UNRECORDED, 0.0)
    idle_pct, cost = context.to_step_pct(idle_us), hidden + unknown
    return Check(
        "idle",
        "Idle time",
        grade_cost(cost, warn=MIN_WARN_PCT),
        _describe_idle_time(idle_pct, hidden, unknown),
        told.IDLE_TIME_COST(step_pct=cost),
        cost,
        told.IDLE_IN_GRAPH_FIX() if hidden >= unknown else told.IDLE_UNEXPLAINED_FIX(),
    )


def check_unrecorded_work(context: CheckContext) -> Check | None:
    """Warn if the CPU waited for work of the GPU that the trace doesn't hold."""
    found = measure_unrecorded_time(context.run.program)
    if found is None:
        return None
    cost = context.to_step_pct(found.time_us)
    return Check(
        "unrecorded_work",
        "Waits",
        grade_cost(cost, warn=0.0),
        told.UNRECORDED_WORK_WAITED_FOR(waits=found.waits, time_us=found.time_us),
        told.UNRECORDED_WORK_COST(step_pct=cost),
        cost,
        told.UNRECORDED_WORK_FIX(),
    )


def _describe_idle_time(idle_pct: float, graph_pct: float, open_pct: float) -> Message:
    """Say what part of the step is idle, and what parts of that the trace doesn't explain, if they are worth a word."""
    if graph_pct >= MIN_SHOWN_PCT and open_pct >= MIN_SHOWN_PCT:
        return told.IDLE_TIME_SPLIT(idle_pct=idle_pct, graph_pct=graph_pct, open_pct=open_pct)
    if graph_pct >= MIN_SHOWN_PCT:
        return told.IDLE_TIME_IN_GRAPHS(idle_pct=idle_pct, graph_pct=graph_pct)
    if open_pct >= MIN_SHOWN_PCT:
        return told.IDLE_TIME_UNEXPLAINED(idle_pct=idle_pct, open_pct=open_pct)
    return told.IDLE_TIME_EXPLAINED(idle_pct=idle_pct)
