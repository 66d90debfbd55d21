"""Checks of the host and of dependencies: calls, launches and kernels, sync events, idle time, overhead."""

import polars as pl

from tracekit.analysis.graph_replays import count_replayed_nodes
from tracekit.analysis.idle import attribute_idle_time
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.waits import measure_unrecorded_time
from tracekit.doctor import recipe
from tracekit.doctor.model import Check, CheckContext, Status, grade_cost, grade_cost_bound
from tracekit.ingest.cuda_graph_captures import is_whole_graph
from tracekit.messages import Message
from tracekit.messages import doctor_checks as told
from tracekit.run import MAX_TRUSTED_ERROR_PCT
from tracekit.workload.kernel_table import has_work
from tracekit.workload.owners import count_lost_launches, lacks_graphs
from tracekit.workload.step_kinds import compute_time_share

SLOWING_OPTIONS = {
    "with_stack": recipe.NO_STACKS,
    "with_modules": recipe.NO_MODULES,
    "profile_memory": recipe.NO_MEMORY,
}


def check_cpu_activity(context: CheckContext) -> Check:
    """Fail if the trace has no CPU ops or no runtime calls."""
    ops, calls = context.rank.ops.height, context.rank.calls.height
    name, title, evidence = (
        "cpu_activity",
        "CPU activity",
        told.CPU_ACTIVITY_COUNTS(ops=ops, calls=calls),
    )
    if ops and calls:
        return Check(name, title, Status.OK, evidence)
    if calls:
        cost = context.compute_step_pct(~has_work() & ~is_whole_graph())
        lost = told.CPU_OPS_MISSING_COST(step_pct=cost)
    else:
        cost = 100.0
        lost = told.CPU_CALLS_MISSING_COST()
    return Check(name, title, Status.FAIL, evidence, lost, cost, recipe.suggest(recipe.ACTIVITIES), recipe.ACTIVITIES)


def check_kernels_without_launch(context: CheckContext) -> Check | None:
    """Warn about GPU work that no recorded call launched."""
    kernels, calls = context.run.kernels, context.rank.calls
    if calls.is_empty():
        return None
    orphan = pl.col("call").is_null()
    count = kernels["call"].null_count()
    within = pl.col("ts_ns") > pl.col("ts_ns").filter(pl.col("step").is_not_null()).min()
    cost = compute_time_share(kernels, "dur_ns", orphan & within.fill_null(True)) * context.work_pct / 100
    early = kernels.filter(orphan & (pl.col("ts_ns") < calls["ts_ns"].min())).height
    status = grade_cost(cost)
    counts = {"unlaunched": count, "activities": kernels.height}
    evidence = told.KERNELS_UNLAUNCHED_EARLY(**counts, early=early) if early else told.KERNELS_UNLAUNCHED(**counts)
    return Check(
        "kernels_without_launch",
        "Kernels",
        status,
        evidence,
        told.KERNELS_UNLAUNCHED_COST(step_pct=cost),
        cost,
        told.KERNELS_UNLAUNCHED_FIX(schedule=recipe.SCHEDULE),
        recipe.SCHEDULE,
    )


def check_launches_without_kernel(context: CheckContext) -> Check | None:
    """Warn about launches whose kernel wasn't recorded; launches during a graph capture don't count."""
    missing, launches = count_lost_launches(context.rank)
    if not launches:
        return None
    # Missing kernels are assumed to take as long as recorded ones, if any were recorded; a graph may hold any number.
    cost = min(context.work_pct * missing / (launches - missing), 100.0) if missing < launches else 100.0
    lacks = lacks_graphs(context.rank)
    if lacks:
        cost = max(cost, 100 - context.work_pct)
    status = grade_cost(cost)
    return Check(
        "launches_without_kernel",
        "Launches",
        status,
        told.LAUNCHES_UNMATCHED(lost=missing, launches=launches),
        told.LAUNCHES_UNMATCHED_COST(step_pct=cost),
        cost,
        told.GRAPH_NODES_FIX() if lacks else told.LAUNCHES_UNMATCHED_FIX(),
    )


def check_graph_replays(context: CheckContext) -> Check | None:
    """Warn about replays of CUDA graphs that lack kernels which other replays of the same graph have."""
    found = count_replayed_nodes(context.rank)
    if not found.missing:
        return None
    # Missing kernels are assumed to take as long as recorded ones.
    cost = min(context.work_pct * found.missing / found.nodes, 100.0)
    return Check(
        "graph_replays",
        "Replays",
        grade_cost(cost, warn=0.0),
        told.GRAPH_REPLAYS_LACK_NODES(incomplete=found.incomplete, replays=found.replays, missing=found.missing),
        told.LAUNCHES_UNMATCHED_COST(step_pct=cost),
        cost,
        told.LAUNCHES_UNMATCHED_FIX(),
    )


def check_overhead(context: CheckContext) -> Check | None:
    """Warn about recording options that slow the host down; older traces and other tools don't record their options."""
    if context.has_format:
        return None
    noted = context.rank.metadata.keys() & {"record_shapes", *SLOWING_OPTIONS}
    if not context.rank.metadata or (context.rank.has_shapes and not noted):
        return None
    used = [name for name in SLOWING_OPTIONS if str(context.rank.metadata.get(name, 0)).lower() in ("1", "true")]
    cost = context.to_step_pct(context.run.measured_step.idle_us) if used else 0.0
    status = grade_cost_bound(cost)
    options = [SLOWING_OPTIONS[name] for name in used]
    return Check(
        "overhead",
        "Overhead",
        status,
        _describe_overhead(context, used, cost),
        told.RECORDING_OPTIONS_COST(step_pct=cost),
        cost,
        recipe.suggest(*options),
        ", ".join(options),
    )


def _describe_overhead(context: CheckContext, used: list[str], idle_pct: float) -> Message:
    """Describe the options that slow the host down, and the step without the profiler if it was timed."""
    without_us = context.rank.unprofiled_step_us
    if not without_us:
        return told.RECORDING_OPTIONS_ON(options=used, idle_pct=idle_pct) if used else told.RECORDING_OPTIONS_OFF()
    without_pct = context.to_step_pct(without_us)
    if not used:
        return told.RECORDING_OPTIONS_OFF_TIMED(unprofiled_pct=without_pct)
    return told.RECORDING_OPTIONS_ON_TIMED(options=used, unprofiled_pct=without_pct, idle_pct=idle_pct)


MAX_PLAUSIBLE_ERROR_PCT = 15.0
"""Replay error above which the graph can't be that of this program."""


def check_sync_events(context: CheckContext) -> Check:
    """Warn if several streams ran and no record shows which one waits for which."""
    name, title, syncs = "syncs", "Sync events", context.rank.syncs
    times = context.kernels.group_by("device", "stream").agg(pl.col("dur_ns").sum())
    by_stream = times.sort("dur_ns", "device", "stream", descending=[True, False, False])
    streams = by_stream.height
    if syncs.height:
        waits = syncs.filter(pl.col("name").str.contains("Wait Event"))
        resolved = waits.filter(pl.col("wait_on_stream") >= 0).height
        return _check_recorded_waits(streams, syncs.height, waits.height, resolved)
    if by_stream.height <= 1:
        return Check(name, title, Status.OK, told.SYNCS_UNNEEDED(streams=streams))
    if context.is_amd:
        return Check(name, title, Status.OK, told.SYNCS_UNSUPPORTED(streams=streams))
    main = (pl.col("device") == by_stream["device"][0]) & (pl.col("stream") == by_stream["stream"][0])
    cost = context.compute_step_pct(~main)
    status = grade_cost_bound(cost)
    return Check(
        name,
        title,
        status,
        told.SYNCS_MISSING(streams=streams),
        told.SYNCS_MISSING_COST(step_pct=cost),
        cost,
        told.SYNCS_MISSING_FIX(option=recipe.SYNCS_SHORT),
        recipe.SYNCS,
    )


def _check_recorded_waits(streams: int, syncs: int, waits: int, resolved: int) -> Check:
    if not waits or resolved:
        return Check("syncs", "Sync events", Status.OK, told.SYNCS_RECORDED(streams=streams, syncs=syncs))
    return Check(
        "syncs",
        "Sync events",
        Status.WARN,
        told.SYNCS_UNRESOLVED(streams=streams, syncs=syncs, waits=waits),
        told.SYNCS_UNRESOLVED_COST(),
        fix=told.SYNCS_UNRESOLVED_FIX(),
    )


def check_replay(context: CheckContext) -> Check:
    """Warn if the replay misses the measured step."""
    error = context.run.self_replay.error_pct
    cost = abs(error)
    status = grade_cost(cost, warn=MAX_TRUSTED_ERROR_PCT, fail=MAX_PLAUSIBLE_ERROR_PCT)
    return Check(
        "replay",
        "Replay",
        status,
        told.REPLAY_ERROR(error_pct=error),
        told.REPLAY_ERROR_COST(),
        cost,
    )


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
