"""Checks of dependencies: sync events, and how well the replay reproduces the step."""

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Check, CheckContext, Status, grade_cost, grade_cost_bound
from tracekit.messages import doctor_checks as told
from tracekit.run import MAX_TRUSTED_ERROR_PCT

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
