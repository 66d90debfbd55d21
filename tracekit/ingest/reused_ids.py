"""Correlation ids that begin again, such as with each step, in the trace of one process or of several in turn."""

from collections.abc import Mapping

import polars as pl

from tracekit.ingest.correlations import LAUNCHING_CALLS, MAX_CLOCK_ERROR_NS, MULTI_LAUNCH_CALLS
from tracekit.ingest.fields import ACTIVITY_KINDS

MAX_WRONG_FRACTION = 0.02
"""Largest part of calls and activities that may overlap others of their thread or stream; of activities that may start
before their launch."""

_LAUNCHES = f"{LAUNCHING_CALLS}|{MULTI_LAUNCH_CALLS}"

Tables = Mapping[str, pl.DataFrame]


def renew_reused_ids(tables: Tables) -> tuple[Tables, int] | None:
    """Give each use of a correlation id an id of its own: the first activity of an id belongs to its first call.

    ::

        call      1 2 3     1 2 3     1 2 3
        activity     1 2 3     1 2 3     1 2 3

    Returns:
        The tables and the number of ids used again. ``None`` if there are none, if all launches have one, or where the
        calls are rather those of processes side by side: they take turns, overlap on a thread or on a stream, or share
        an id on several GPUs.
    """
    calls = tables["calls"].drop_nulls("correlation").sort("ts_ns")
    lane = (pl.coalesce("device", "pid").alias("device"), pl.coalesce("stream", "tid").alias("stream"))
    activities = pl.concat(tables[kind].select("correlation", "ts_ns", "dur_ns", *lane) for kind in ACTIVITY_KINDS)
    activities = activities.drop_nulls("correlation")
    ended = (pl.col("ts_ns") + pl.col("dur_ns")).cum_max().shift().over("correlation")
    began_anew = (pl.col("ts_ns") >= ended).fill_null(value=False)
    calls = calls.with_columns(use=began_anew.cast(pl.Int64).cum_sum().over("correlation"))
    launches = calls.filter(pl.col("name").str.contains(_LAUNCHES)).join(activities, on="correlation", how="semi")
    again = launches.filter(pl.col("use") > 0)["correlation"].n_unique()
    if not again or launches["correlation"].n_unique() == 1 or _has_side_by_side(launches, activities):
        return None
    if not _fits(_find_uses(activities, launches), launches):
        return None
    size = int(calls["use"].to_numpy().max()) + 1
    uses_of = {"calls": calls, "syncs": calls} | dict.fromkeys(ACTIVITY_KINDS, launches)
    return {name: _renew(table, uses_of.get(name), size) for name, table in tables.items()}, again


def _has_side_by_side(launches: pl.DataFrame, activities: pl.DataFrame) -> bool:
    """Return whether the calls are rather those of several processes at once."""
    pids = launches["pid"].drop_nulls()
    takes_turns = len(pids) > 0 and pids.rle().len() > pids.n_unique()
    lanes = ((launches, ("pid", "tid")), (activities, ("device", "stream")))
    is_shared = activities.group_by("correlation").agg(pl.col("device").n_unique())["device"] > 1
    return takes_turns or any(_measure_overlap(*lane) > MAX_WRONG_FRACTION for lane in lanes) or bool(is_shared.any())


def _measure_overlap(spans: pl.DataFrame, lane: tuple[str, str]) -> float:
    """Measure which part of the spans begins before another of its lane has ended."""
    ended = (pl.col("ts_ns") + pl.col("dur_ns")).cum_max().shift().over(*lane)
    late = spans.sort("ts_ns").select(((ended - pl.col("ts_ns")) > pl.col("dur_ns") / 2).fill_null(value=False).mean())
    return float(late.item() or 0.0)


def _find_uses(spans: pl.DataFrame, calls: pl.DataFrame, key: str = "correlation") -> pl.DataFrame:
    """Find the use of the id that each span has: as many to each in order, else that of the last call before it."""
    uses = calls.sort("ts_ns").select(pl.col("correlation").alias(key), "ts_ns", "use")
    counts = uses.group_by(key).agg(known=pl.col("use").unique().sort())
    ordered = spans.sort("ts_ns").join(counts, on=key, how="left", maintain_order="left")
    ordered = ordered.join_asof(uses, on="ts_ns", by=key, check_sortedness=False)
    size = pl.len().over(key)
    place = pl.int_range(pl.len()).over(key) // (size // pl.col("known").list.len())
    in_order = pl.col("known").list.get(place, null_on_oob=True)
    even = (size % pl.col("known").list.len() == 0).fill_null(value=False)
    return ordered.with_columns(use=pl.when(even).then(in_order).otherwise("use").fill_null(0)).drop("known")


def _fits(found: pl.DataFrame, launches: pl.DataFrame) -> bool:
    """Return whether nearly all activities start after their launch."""
    called = launches.group_by("correlation", "use").agg(called_ns=pl.col("ts_ns").min())
    joined = found.join(called, on=("correlation", "use"), how="inner")
    early = joined.select((pl.col("called_ns") > pl.col("ts_ns") + MAX_CLOCK_ERROR_NS).mean()).item()
    return early is not None and early <= MAX_WRONG_FRACTION


def _renew(table: pl.DataFrame, calls: pl.DataFrame | None, size: int) -> pl.DataFrame:
    """Return a table whose ids are told apart by their use."""
    columns = [name for name in ("correlation", "wait_on_record") if name in table.columns]
    if calls is None or table.is_empty():
        return table
    renewed = table.with_row_index("place")
    for name in columns:
        spans = renewed.select("place", "ts_ns", name).drop_nulls(name)
        used = _find_uses(spans, calls, name)
        ids = used.select("place", new=pl.col(name) * size + pl.col("use"))
        renewed = renewed.join(ids, on="place", how="left", maintain_order="left").with_columns(
            pl.col("new").alias(name)
        )
        renewed = renewed.drop("new")
    return renewed.drop("place")
