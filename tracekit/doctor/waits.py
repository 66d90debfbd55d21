"""Whether the trace says what waits for what: sync events, and how well the replay gives the step back."""

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Case, Check, Status, at_most_warn, by_cost
from tracekit.replay.run import TRUSTED_ERROR_PCT
from tracekit.units import many

WRONG_ERROR_PCT = 15.0
"""Error of the replay beyond which the graph isn't this program's."""


def between_streams(case: Case) -> Check:
    """Warns if several streams ran and nothing recorded which waits for which."""
    name, title, syncs = "syncs", "Sync events", case.rank.syncs
    times = case.kernels.group_by("device", "stream").agg(pl.col("dur_ns").sum())
    by_stream = times.sort("dur_ns", "device", "stream", descending=[True, False, False])
    used = many(by_stream.height, "stream")
    if syncs.height:
        waits = syncs.filter(pl.col("name").str.contains("Wait Event"))
        resolved = waits.filter(pl.col("wait_on_stream") >= 0).height
        return _recorded(f"{used}, {syncs.height:,} sync events", waits.height, resolved)
    if by_stream.height <= 1:
        return Check(name, title, Status.OK, f"{used}: none needed")
    if case.is_amd:
        return Check(name, title, Status.OK, f"{used}; AMD's profiler records none: waits are inferred from times")
    main = (pl.col("device") == by_stream["device"][0]) & (pl.col("stream") == by_stream["stream"][0])
    cost = case.step_share(~main)
    status = at_most_warn(cost)
    return Check(
        name,
        title,
        status,
        f"{used}, no sync events",
        f"waits of {cost:.0f} % of the step, on other streams, are inferred from times",
        cost,
        recipe.SYNCS_IN_SHORT,
        recipe.SYNCS,
    )


def _recorded(evidence: str, waits: int, resolved: int) -> Check:
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


def replay(case: Case) -> Check:
    """Warns if the replay misses the measured step."""
    error = case.run.replay.error_pct
    cost = abs(error)
    status = by_cost(cost, warn=TRUSTED_ERROR_PCT, fail=WRONG_ERROR_PCT)
    return Check(
        "replay",
        "Replay",
        status,
        f"misses the measured step by {error:+.1f} %",
        "the trace holds waits that no recorded or inferred dependency explains",
        cost,
    )
