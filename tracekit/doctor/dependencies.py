"""Checks of dependencies: sync events, and how well the replay reproduces the step."""

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Check, CheckContext, Status, grade_cost, grade_cost_bound
from tracekit.format import format_quantity
from tracekit.run import MAX_TRUSTED_ERROR_PCT

MAX_PLAUSIBLE_ERROR_PCT = 15.0
"""Replay error above which the graph can't be that of this program."""


def check_sync_events(context: CheckContext) -> Check:
    """Warn if several streams ran and no record shows which one waits for which."""
    name, title, syncs = "syncs", "Sync events", context.rank.syncs
    times = context.kernels.group_by("device", "stream").agg(pl.col("dur_ns").sum())
    by_stream = times.sort("dur_ns", "device", "stream", descending=[True, False, False])
    used = format_quantity(by_stream.height, "stream")
    if syncs.height:
        waits = syncs.filter(pl.col("name").str.contains("Wait Event"))
        resolved = waits.filter(pl.col("wait_on_stream") >= 0).height
        return _check_recorded_waits(f"{used}, {syncs.height:,} sync events", waits.height, resolved)
    if by_stream.height <= 1:
        return Check(name, title, Status.OK, f"{used}: none needed")
    if context.is_amd:
        return Check(name, title, Status.OK, f"{used}; AMD's profiler records none: waits are inferred from times")
    main = (pl.col("device") == by_stream["device"][0]) & (pl.col("stream") == by_stream["stream"][0])
    cost = context.compute_step_pct(~main)
    status = grade_cost_bound(cost)
    return Check(
        name,
        title,
        status,
        f"{used}, no sync events",
        f"waits of {cost:.0f} % of the step, on other streams, are inferred from times",
        cost,
        recipe.SYNCS_SHORT,
        recipe.SYNCS,
    )


def _check_recorded_waits(evidence: str, waits: int, resolved: int) -> Check:
    if not waits or resolved:
        return Check("syncs", "Sync events", Status.OK, evidence)
    return Check(
        "syncs",
        "Sync events",
        Status.WARN,
        f"{evidence}, but none of {waits:,} waits names its stream",
        "waits between streams are inferred from times",
        fix="record with torch built for CUDA 12.8 or earlier: later ones lose the stream that is waited for",
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
        f"misses the measured step by {error:+.1f} %",
        "the trace holds waits that no recorded or inferred dependency explains",
        cost,
    )
