"""Correlation ids, which join a call to the work that it launched.

Where they are missing or shared, other keys do; where they begin again, such as with each step, they are renewed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from tracekit.arrays import is_unique
from tracekit.ingest.fields import ACTIVITY_KINDS
from tracekit.messages import Message, traces
from tracekit.rules import Rule
from tracekit.trace import RankTrace

RULE = Rule(
    "launch-order",
    "Kernels that share an id belong, in order, to the launches of these ids and to those without a kernel.",
    "No public trace of the ablation shares ids. In a trace made by hand, with two such pairs among 24 kernels, four "
    "belong to no op without the rule, and on a GPU twice as fast the step is 8 % short.",
)
FIRST_ORDERED_ID_KEY = "first_ordered_id"
"""Metadata key of the smallest correlation id that the rule gave; ids that the trace recorded are smaller."""

MULTI_LAUNCH_CALLS = "GraphLaunch|MultiDevice"
"""Calls that launch several kernels: a CUDA graph, or one kernel on each of several devices (NCCL up to 2.12)."""
KERNEL_LAUNCHES = "LaunchKernel|LaunchCooperativeKernel"
"""Calls that launch one kernel."""
LAUNCHING_CALLS = f"{KERNEL_LAUNCHES}|Memcpy|Memset|urEnqueue|CommandListAppend"
MAX_CLOCK_ERROR_NS = 1_000_000
"""By how much a kernel may seem to start before its launch."""


@dataclass(frozen=True, slots=True)
class ResolvedLaunches:
    """Calls and activities whose correlation ids are right.

    Attributes:
        calls: Calls of the runtime and driver.
        activities: GPU activities.
        messages: What other keys replaced, or which ids were dropped.
        first_ordered_id: The smallest id of those joined by order; ``None`` without any.
    """

    calls: pl.DataFrame
    activities: pl.DataFrame
    messages: tuple[Message, ...] = ()
    first_ordered_id: int | None = None


def resolve_correlations(calls: pl.DataFrame, activities: pl.DataFrame) -> ResolvedLaunches:
    """Join activities to their launches by correlation id, else by External id, else by order.

    A call launches one kernel, except for CUDA graphs and launches on several devices at once. Any other id shared by
    several kernels is wrong: all its kernels would wait for that one call and belong to its op. Ids that no other key
    replaces are dropped.

    Args:
        calls: Calls of the runtime and driver, with ``external_id``.
        activities: GPU activities, with ``external_id``.
    """
    if activities.height and activities["correlation"].null_count() == activities.height:
        found = _pair_by_external_id(calls, activities)
        said = (traces.IDS_EXTERNAL(),) if found.height else ()
        return ResolvedLaunches(*_set_pairs(calls, activities, found), said)
    wrong = _find_shared_ids(calls, activities)
    if wrong.is_empty():
        return ResolvedLaunches(calls, activities)
    found = _pair_by_order(calls, activities, wrong)
    if found.height:
        said = (traces.IDS_BY_ORDER(kernels=found.height),)
        first = _find_free_id(calls, activities)
        return ResolvedLaunches(*_set_pairs(calls, activities, found), said, first)
    ids = wrong["correlation"].implode()
    without = pl.when(~pl.col("correlation").is_in(ids)).then("correlation").alias("correlation")
    message = traces.IDS_AMBIGUOUS(
        ambiguous=int(wrong["len"].sum()), kernels=activities.filter(pl.col("kind") == "kernel").height
    )
    return ResolvedLaunches(calls.with_columns(without), activities.with_columns(without), (message,))


def drop_ordered_ids(rank: RankTrace) -> RankTrace:
    """Return the trace without the rule: nobody launched the kernels that it joined to launches."""
    first = rank.metadata.get(FIRST_ORDERED_ID_KEY)
    if not isinstance(first, int):
        return rank
    recorded = pl.when(pl.col("correlation") < first).then("correlation").alias("correlation")
    kernels = rank.activities.filter(kind="kernel")
    ambiguous = traces.IDS_AMBIGUOUS(
        ambiguous=kernels.filter(pl.col("correlation") >= first).height, kernels=kernels.height
    )
    return replace(
        rank,
        calls=rank.calls.with_columns(recorded),
        activities=rank.activities.with_columns(recorded),
        warnings=tuple(ambiguous if one.template is traces.IDS_BY_ORDER else one for one in rank.warnings),
    )


def _find_shared_ids(calls: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Find the ids of a call that several kernels share although it can launch one only: ``correlation``, ``len``."""
    of_kernels = activities["correlation"].filter(activities["kind"] == "kernel")
    if is_unique(of_kernels):
        return pl.DataFrame(schema={"correlation": pl.Int64, "len": pl.UInt32})
    several = calls.filter(pl.col("name").str.contains(MULTI_LAUNCH_CALLS)).select("correlation")
    shared = of_kernels.to_frame().group_by("correlation").len().filter(pl.col("len") > 1).drop_nulls("correlation")
    return shared.join(calls, on="correlation", how="semi").join(several, on="correlation", how="anti")


def _pair_by_external_id(calls: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Pair the launches and activities of one op, which share its External id, in order: ``call``, ``activity``.

    Ops with another number of launches than activities are left out.
    """
    launches = calls.with_row_index("call").filter(pl.col("name").str.contains(LAUNCHING_CALLS))
    launches = launches.drop_nulls("external_id").sort("ts_ns")
    run = activities.with_row_index("activity").drop_nulls("external_id").sort("ts_ns")
    place = pl.int_range(pl.len()).over("external_id").alias("place")
    many = pl.len().over("external_id").alias("many")
    key = ("external_id", "place", "many")
    return (
        launches.select("call", "external_id", place, many)
        .join(run.select("activity", "external_id", place, many), on=key)
        .select("call", "activity")
    )


def _pair_by_order(calls: pl.DataFrame, activities: pl.DataFrame, wrong: pl.DataFrame) -> pl.DataFrame:
    """Pair kernels of shared ids with the launches of these ids and those without a kernel: ``call``, ``activity``.

    A stream runs its kernels in the order of their launches::

        launch   1     2 (no kernel)   3
        kernel   a (1)     b (1)            c (3)        b is launch 2's

    None is paired if the numbers differ, if a kernel would start before its launch, or if the kernels of a stream
    would not be in the order of their launches.
    """
    ids = wrong["correlation"].implode()
    launched = activities["correlation"].drop_nulls().unique().implode()
    free = ~pl.col("correlation").is_in(launched) | pl.col("correlation").is_in(ids)
    launches = (
        calls.with_row_index("call")
        .filter(pl.col("name").str.contains(KERNEL_LAUNCHES), free.fill_null(True))
        .sort("ts_ns")
    )
    kernels = (
        activities.with_row_index("activity")
        .filter(pl.col("kind") == "kernel", pl.col("correlation").is_in(ids))
        .sort("ts_ns")
    )
    if launches.height != kernels.height:
        return _NO_PAIRS
    pairs = pl.DataFrame({"call": launches["call"], "activity": kernels["activity"]})
    early = launches["ts_ns"] > kernels["ts_ns"] + MAX_CLOCK_ERROR_NS
    paired_calls, paired = _set_pairs(calls, activities, pairs)
    order = (
        paired.filter(pl.col("kind") == "kernel")
        .join(paired_calls.select("correlation", launched="ts_ns"), on="correlation")
        .sort("ts_ns")
        .select((pl.col("launched").diff().over(pl.coalesce("device", "pid"), pl.coalesce("stream", "tid")) < 0).any())
        .item()
    )
    return _NO_PAIRS if early.any() or order else pairs


_NO_PAIRS = pl.DataFrame(schema={"call": pl.UInt32, "activity": pl.UInt32})


def _set_pairs(calls: pl.DataFrame, activities: pl.DataFrame, pairs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give each pair of a call and an activity a correlation id of its own."""
    numbered = pairs.with_row_index("new", offset=_find_free_id(calls, activities)).cast(pl.Int64)
    return (
        _set_ids(calls, numbered.select("new", row="call")),
        _set_ids(activities, numbered.select("new", row="activity")),
    )


def _find_free_id(calls: pl.DataFrame, activities: pl.DataFrame) -> int:
    """Find the smallest id that is greater than all in use."""
    used = pl.concat([calls["correlation"], activities["correlation"]]).drop_nulls()
    return int(used.to_numpy().max(initial=0)) + 1


def _set_ids(table: pl.DataFrame, ids: pl.DataFrame) -> pl.DataFrame:
    joined = table.with_columns(row=pl.int_range(pl.len())).join(ids, on="row", how="left", maintain_order="left")
    return joined.with_columns(correlation=pl.coalesce("new", "correlation")).drop("row", "new")


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
