"""Checks of what was recorded: its format, times and steps, and whether all ranks and events were read."""

import polars as pl

from tracekit.analysis.kernel_doubts import find_below_bound
from tracekit.doctor import recipe
from tracekit.doctor.model import Check, CheckContext, Status, grade_cost
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.ingest.ledger import DROPPED, EVENTS, READ, describe_events
from tracekit.messages import Message, Severity, traces
from tracekit.messages import doctor_checks as told
from tracekit.messages import traces as ledger_messages
from tracekit.messages.traces import FORMAT_LACKS
from tracekit.workload.steps import count_optimizer_steps, is_whole_trace


def check_format(context: CheckContext) -> Check | None:
    """Warn of what another tool's format lacks."""
    found = [message.values for message in context.rank.warnings if message.template is FORMAT_LACKS]
    if not found:
        return None
    evidence = told.FORMAT_OF_TOOL(tool=found[0]["tool"], lacks=found[0]["lacks"])
    return Check("format", "Format", Status.WARN, evidence, fix=told.FORMAT_FIX())


NAME, TITLE = "times", "Recorded times"


def check_times(context: CheckContext) -> Check:
    """Warn if recorded times broke physics, whether they were corrected or not."""
    below = find_below_bound(context.run.kernels, context.run.gpu)
    faults = (*context.run.provenance.time_faults, *([below] if below else []))
    if not faults:
        return Check(NAME, TITLE, Status.OK, told.TIMES_IN_ORDER())
    return Check(
        NAME,
        TITLE,
        Status.WARN,
        told.TIMES_CORRECTED(faults=faults),
        told.TIMES_CORRECTED_COST(),
        fix=told.TIMES_CORRECTED_FIX(),
    )


# Usual spread of the steps of one job.
MAX_USUAL_SPREAD_PCT = 5.0
MIN_FIRST_SLOWDOWN = 1.2
WARMUP_CALL_PATTERN = (
    r"^(cuda|hip|cu)(Malloc|Free|HostAlloc|HostMalloc|MemCreate|StreamCreate|EventCreate|(Module|Library)Load)"
)
# The first launch of a kernel loads it. Other launches take that long only if the launch queue is full.
MIN_LOADING_US = 1000.0


def check_step_marks(context: CheckContext) -> Check:
    """Warn if the trace holds fewer than two marked steps."""
    name, title, steps = "steps", "Steps", context.run.steps
    if is_whole_trace(context.run.steps):
        cost = context.to_step_pct(_measure_outside_gpu_work_us(context))
        updates = count_optimizer_steps(context.rank)
        several = told.STEPS_WITHOUT_MARKS_SEVERAL(updates=updates) if updates > 1 else told.STEPS_WITHOUT_MARKS()
        return Check(
            name,
            title,
            Status.WARN,
            several,
            told.STEPS_WITHOUT_MARKS_COST(step_pct=cost),
            cost,
            told.STEPS_MARK_FIX(schedule=recipe.SCHEDULE),
            recipe.SCHEDULE,
        )
    if steps.height == 1:
        return Check(
            name,
            title,
            Status.WARN,
            told.ONE_STEP_MARKED(),
            told.ONE_STEP_COST(),
            fix=recipe.suggest(recipe.SCHEDULE),
            option=recipe.SCHEDULE,
        )
    counts = told.STEPS_MARKED(marked=steps.height, measured=context.run.measured_step.steps)
    return Check(name, title, Status.OK, counts)


def _measure_outside_gpu_work_us(context: CheckContext) -> float:
    """Measure the time of the trace before the GPU's first activity and after its last."""
    (start, end), busy = context.run.steps.select("start_ns", "end_ns").row(0), context.rank.activities
    before = max(busy["ts_ns"].min() - start, 0)
    after = max(end - (busy["ts_ns"] + busy["dur_ns"]).max(), 0)
    return float(before + after) / 1e3


def check_step_spread(context: CheckContext) -> Check | None:
    """Warn if the measured steps differ by more than usual."""
    times = _tabulate_step_times(context)
    rest = times.filter(~pl.col("first"))
    if rest.height < 2:
        return None
    time = pl.col("time_ns")
    middle, low, high = rest.select(m=time.median(), l=time.min(), h=time.max()).row(0)
    cost = 100 * (high - low) / 2 / (middle or 1.0)
    status = grade_cost(cost, warn=MAX_USUAL_SPREAD_PCT)
    return Check(
        "steady",
        "Steady steps",
        status,
        told.STEPS_SPREAD(steps=rest.height, min_us=low / 1e3, max_us=high / 1e3, median_us=middle / 1e3),
        told.STEPS_SPREAD_COST(half_width_pct=cost),
        cost,
        told.STEPS_SPREAD_FIX(),
    )


def check_warmup(context: CheckContext) -> Check:
    """Warn if the measured steps still allocate memory, load kernels or create streams."""
    steps, calls = context.run.chosen_steps.select("start_ns", "end_ns"), context.rank.calls
    warming = pl.concat(
        [calls.filter(pl.col("name").str.contains(WARMUP_CALL_PATTERN)), _find_loading_launches(context)]
    )
    inside = warming.join_where(steps, pl.col("ts_ns") >= pl.col("start_ns"), pl.col("ts_ns") < pl.col("end_ns"))
    cost = context.to_step_pct(inside.select(pl.col("dur_ns").sum() / 1e3).item() / steps.height)
    status = grade_cost(cost)
    return Check(
        "warm",
        "Warmed up",
        status,
        _describe_warmup_calls(context, inside.height),
        told.WARM_UP_CALLS_COST(step_pct=cost),
        cost,
        recipe.suggest(recipe.SCHEDULE),
        recipe.SCHEDULE,
    )


def _find_loading_launches(context: CheckContext) -> pl.DataFrame:
    """Find launches that load their kernel: long ones, each the first of its kernel; graph launches don't count."""
    first = context.rank.activities.filter(pl.col("kind") == "kernel").sort("ts_ns").unique("name", keep="first")
    launches = context.rank.calls.join(first.select("correlation"), on="correlation", how="semi")
    return launches.filter((pl.col("dur_ns") > MIN_LOADING_US * 1e3) & ~pl.col("name").str.contains(GRAPH_LAUNCH_CALLS))


def _describe_warmup_calls(context: CheckContext, calls: int) -> Message:
    first, rest = (pl.col("time_ns").filter(rows).median() for rows in (pl.col("first"), ~pl.col("first")))
    slower = _tabulate_step_times(context).select((first / rest).fill_null(0.0)).item()
    if slower > MIN_FIRST_SLOWDOWN:
        return told.WARM_UP_CALLS_FIRST_SLOW(calls=calls, slowdown=slower)
    return told.WARM_UP_CALLS(calls=calls)


def _tabulate_step_times(context: CheckContext) -> pl.DataFrame:
    run = context.run
    table = run.program.step_timer.tabulate(run.measured_timeline)
    return table.join(run.asked_steps.select("step"), on="step", how="semi")


LOSSES = frozenset(
    (
        traces.EVENTS_UNTIMED,
        traces.EVENTS_DISTANT,
        traces.EVENTS_LOST,
        traces.EVENTS_CUT,
        traces.STEPS_CUT,
        traces.METADATA_LOST,
        traces.STEP_MARKS_UNNUMBERED,
        traces.OP_INPUTS_MALFORMED,
        traces.ACTIVITY_SIZES_IMPOSSIBLE,
        ledger_messages.CATEGORY_NOT_READ,
        ledger_messages.SPANS_UNMATCHED,
        traces.ZIP_DATA_DAMAGED,
        traces.COMPRESSED_DATA_CUT,
        traces.COMPRESSED_DATA_CORRUPT,
    )
)
"""Warnings about parts of a file that were not read."""

UNKNOWN_LOSSES = frozenset((traces.EVENTS_CUT, traces.STEPS_CUT))
"""Those that leave unknown how much was lost."""


def check_all_ranks(context: CheckContext) -> Check | None:
    """Warn if ranks of the job are missing."""
    world = context.rank.world_size
    if world <= 1:
        return None
    if context.lacking:
        lacking = context.lacking.to_message()
        return Check("ranks", "Ranks", Status.FAIL, lacking, told.RANKS_MISSING_COST(), fix=told.RANKS_LACKING_FIX())
    read = len({rank.rank for rank in context.trace.ranks}) + context.beside
    if read >= world:
        return Check("ranks", "Ranks", Status.OK, told.RANKS_ALL_READ(ranks=world))
    evidence, fix = told.RANKS_READ(ranks_read=read, ranks=world), told.RANKS_MISSING_FIX()
    if read > 1:
        return Check("ranks", "Ranks", Status.WARN, evidence, told.RANKS_MISSING_COST(), fix=fix)
    cost = context.to_step_pct(context.run.measured_step.exposed_comm_us)
    alone = told.RANKS_ALONE_COST(step_pct=cost)
    return Check("ranks", "Ranks", grade_cost(cost, warn=0), evidence, alone, cost, fix)


def check_lost_events(context: CheckContext) -> Check:
    """Warn if events were lost."""
    losses = [warning for rank in context.trace.ranks for warning in rank.warnings if warning.template in LOSSES]
    if not losses:
        return Check("events", "Events", Status.OK, describe_events(context.rank.ledger))
    cost = max(_compute_lost_pct(rank.ledger) for rank in context.trace.ranks)
    return Check(
        "events",
        "Events",
        Status.FAIL if any(one.template in UNKNOWN_LOSSES for one in losses) else grade_cost(cost, warn=0),
        told.EVENTS_MISSING(losses=[*dict.fromkeys(losses)]),
        told.EVENTS_MISSING_COST(lost_pct=cost) if cost else told.EVENTS_UNCOUNTED_COST(),
        cost,
        told.EVENTS_MISSING_FIX(),
    )


def _compute_lost_pct(ledger: pl.DataFrame) -> float:
    """Compute the percent of events that are missing, among those and the ones that were read."""
    events = ledger.filter(pl.col("unit") == EVENTS)
    is_lost = (pl.col("effect") == DROPPED) & (pl.col("severity") == Severity.WARNING)
    lost = int(events.filter(is_lost)["count"].sum())
    read = int(events.filter(pl.col("effect") == READ)["count"].sum())
    return 100 * lost / max(lost + read, 1)
