"""Plan: assign tables greedily with several choices of ways to shard them, improve each, and rank what comes out.

A plan is evaluated by the kernels of each rank as they run, and the exchanges of the rank that sends most.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints
from tracekit.comm.cluster import ASSUMED_HOST_MEMORY
from tracekit.messages import Message
from tracekit.messages import layouts as messages
from tracekit.parallelism.sharded_tables import ExchangeGroup
from tracekit.sharding.candidates import (
    HOSTED_LABELS,
    USABLE_HOST_MEMORY_FRACTION,
    ComputeKernel,
    ShardingSetting,
    ShardingType,
    TableOption,
    describe_shard,
)
from tracekit.sharding.loads import (
    Candidate,
    Exchange,
    Load,
    build_candidates,
    choose_update,
    describe_rank,
    predict_times,
)
from tracekit.sharding.plan import PartTime, ShardedTable, ShardingPlan, ShardingPlans, TableShard
from tracekit.sharding.search import Assignment, Choice, allow_all, assign_greedily, fits_memory, improve
from tracekit.sharding.tables import PlannedTable, ShardingError
from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.ops.table_lookups import TableLookup, compute_cache_fill

KERNEL_COLUMNS = ("time_us", "low_us", "high_us")
MAX_LISTED_RANKS = 16
"""Ranks whose kernels are predicted as they run: those with most to do, by the sums of their shards."""


def evaluate_assignment(name: str, tables: Sequence[PlannedTable], assignment: Assignment) -> ShardingPlan:
    """Return the plan of an assignment."""
    exchange = assignment.exchange
    setting = exchange.setting
    chosen = _find_busiest(assignment)
    lookups, updates = (_predict_kernels(tables, assignment, chosen, updates=kind) for kind in (False, True))
    slowest = _find_slowest(lookups, updates)
    most = assignment.loads.max(axis=0)
    parts = (
        _take_rank("lookup", lookups, slowest),
        _predict_exchange("sums", assignment, "reduce_scatter"),
        _take_rank("update", updates, slowest),
        _predict_exchange("gradients", assignment, "all_gather"),
        _predict_collective("reduced", exchange, "all_reduce", float(assignment.shared_bytes[1])),
        _hide(_predict_collective("indices", exchange, "all_to_all", float(most[Load.INDICES])), setting.dense_time_us),
    )
    counts = np.zeros(setting.ranks, np.int64)
    for ranks in assignment.ranks:
        counts[ranks] += 1
    ranks_table = pl.DataFrame(
        {
            "rank": np.arange(setting.ranks),
            "tables": counts,
            "lookup_us": lookups["time_us"],
            "update_us": updates["time_us"],
            "sent_bytes": _compute_sent_bytes(assignment),
            "memory_bytes": assignment.loads[:, Load.MEMORY],
            "capacity_bytes": np.full(setting.ranks, setting.capacity_bytes),
            "host_bytes": assignment.loads[:, Load.HOST_MEMORY],
        }
    )
    sharded = tuple(
        ShardedTable(table, option.type, option.kernel, _list_shards(table, option, ranks.tolist()))
        for number, table in enumerate(tables)
        for option, ranks in [(assignment.get_candidate(number).option, assignment.ranks[number])]
    )
    return ShardingPlan(name, setting, sharded, parts, ranks_table, assignment)


def _find_busiest(assignment: Assignment) -> Ints:
    """Find the ranks with most to look up and to update, of which one is the slowest."""
    busy = assignment.loads[:, [Load.LOOKUP, Load.UPDATE]].sum(axis=1)
    return np.sort(np.argsort(-busy, kind="stable")[:MAX_LISTED_RANKS])


def list_kernels(
    tables: Sequence[PlannedTable], assignment: Assignment, chosen: Ints, *, updates: bool
) -> tuple[list[Columns], list[int]]:
    """List the kernels of chosen ranks and their ranks: one for the tables of each place and optimizer."""
    setting, listed = assignment.exchange.setting, set(chosen.tolist())
    groups: dict[tuple[int, str, ComputeKernel], list[TableLookup]] = {}
    dense_bytes = 0.0
    for number, table in enumerate(tables):
        option = assignment.get_candidate(number).option
        dense_bytes += table.dense_step_bytes if option.kernel is ComputeKernel.DENSE else 0.0
        over, kind = option.count_row_shards(setting), choose_update(table, option) if updates else ""
        for shard, rank in enumerate(assignment.ranks[number].tolist()):
            if rank in listed:
                lookup = describe_shard(table, option, setting, shard % over)
                groups.setdefault((rank, kind, option.kernel), []).append(lookup)
    rows: list[Columns] = [describe_rank(lookups, kind or None) for (_, kind, _), lookups in groups.items()]
    owners = [rank for rank, _, _ in groups]
    if not updates:
        cached = {rank: lookups for (rank, _, kernel), lookups in groups.items() if kernel is ComputeKernel.CACHED}
        rows += map(compute_cache_fill, cached.values())
        owners += cached
    if updates and dense_bytes:
        rows += [{"bytes": dense_bytes}] * len(listed)
        owners += listed
    return rows, owners


def _predict_kernels(
    tables: Sequence[PlannedTable], assignment: Assignment, chosen: Ints, *, updates: bool
) -> pl.DataFrame:
    """Predict the kernels of chosen ranks, one after the other; those of others by their loads beside these."""
    setting, load = assignment.exchange.setting, Load.UPDATE if updates else Load.LOOKUP
    rows, owners = list_kernels(tables, assignment, chosen, updates=updates)
    times = predict_times(rows, updates, setting).with_columns(rank=pl.Series(owners, dtype=pl.Int64))
    of_ranks = times.group_by("rank").agg(pl.col(KERNEL_COLUMNS).sum())
    everywhere = pl.DataFrame({"rank": np.arange(setting.ranks), "load": assignment.loads[:, load]})
    joined = everywhere.join(of_ranks, on="rank", how="left", maintain_order="left")
    known = joined.filter(pl.col("rank").is_in(chosen)).fill_null(0.0)
    of_load = known.select(pl.col(KERNEL_COLUMNS).sum() / pl.col("load").sum()).fill_nan(0.0).row(0, named=True)
    is_known = pl.col("rank").is_in(chosen)
    return joined.with_columns(
        pl.when(is_known).then(pl.col(name).fill_null(0.0)).otherwise(pl.col("load") * of_load[name]).alias(name)
        for name in KERNEL_COLUMNS
    )


def _compute_sent_bytes(assignment: Assignment) -> Floats:
    """Compute the bytes of sums that each rank sends to others outside of its node's reductions."""
    setting, loads = assignment.exchange.setting, assignment.loads
    groups = ((Load.SENT, setting.ranks), (Load.RAIL, setting.cluster.nodes))
    return np.asarray(sum(loads[:, load] * (ranks - 1) / ranks for load, ranks in groups))


def _find_slowest(lookups: pl.DataFrame, updates: pl.DataFrame) -> int:
    """Find the rank whose look-ups and updates take longest: all wait for it once a step, at the exchange of sums."""
    return int((lookups["time_us"] + updates["time_us"]).arg_max() or 0)


def _take_rank(name: str, times: pl.DataFrame, rank: int) -> PartTime:
    row = times.row(rank, named=True)
    return PartTime(name, row["time_us"], row["low_us"], row["high_us"], rank)


def _predict_exchange(name: str, assignment: Assignment, of_rows: str) -> PartTime:
    """Predict the exchange of sums or their gradients: all-to-alls, and of tables split by rows ``of_rows``."""
    exchange, most = assignment.exchange, assignment.loads.max(axis=0)
    slowest = int(assignment.loads[:, Load.SENT].argmax()) if most[Load.SENT] else None
    times = [
        exchange.compute_interval_us("all_to_all", most[Load.SENT]),
        exchange.compute_interval_us(of_rows, float(assignment.shared_bytes[0])),
        exchange.compute_interval_us(of_rows, most[Load.NODE], ExchangeGroup.NODE),
        exchange.compute_interval_us("all_to_all", most[Load.RAIL], ExchangeGroup.RAIL),
    ]
    low, time, high = (sum(values) for values in zip(*times, strict=True))
    return PartTime(name, time, low, high, slowest)


def _predict_collective(name: str, exchange: Exchange, collective: str, bytes_: float) -> PartTime:
    low, time, high = exchange.compute_interval_us(collective, bytes_)
    return PartTime(name, time, low, high)


def _hide(part: PartTime, hidden_us: float) -> PartTime:
    """Return what is left of a part beside other work."""
    low, time, high = (max(end - hidden_us, 0.0) for end in (part.low_us, part.time_us, part.high_us))
    return PartTime(part.name, time, low, high)


def _list_shards(table: PlannedTable, option: TableOption, ranks: Sequence[int]) -> tuple[TableShard, ...]:
    """List the shards of a table by their ranks; the last one of rows may have fewer."""
    if option.type is ShardingType.DATA_PARALLEL:
        return tuple(TableShard(rank, 0, 0, table.rows, table.width) for rank in ranks)
    width, over = table.width // option.columns, len(ranks) // option.columns
    block = -(-table.rows // over)
    starts = [min(number * block, table.rows) for number in range(over + 1)]
    places = (divmod(number, over) for number in range(len(ranks)))
    return tuple(
        TableShard(rank, starts[row], column * width, starts[row + 1] - starts[row], width)
        for rank, (column, row) in zip(ranks, places, strict=True)
    )


BEST = "best found"
DOUBTFUL_FRACTION = 0.05
"""Of a time, within which plans aren't ranked: that the law misses between plans of one cluster, which share its error
in general. A judgement; no public measurements of plans on one cluster were found."""


def _allow_only(*types: ShardingType) -> Choice:
    def allowed(ways: Sequence[Candidate]) -> Sequence[int]:
        """Allow some types, in their order, on the GPUs first; all others if none of these is possible."""
        rest = allow_all(ways)
        mine = [
            place
            for hosted in (False, True)
            for kind in types
            for place in rest
            if ways[place].option.type is kind and ways[place].option.is_hosted is hosted
        ]
        return mine or rest

    return allowed


def _allow_first(*types: ShardingType) -> Choice:
    """Allow only the first of some types that a table can be sharded by."""

    def allowed(ways: Sequence[Candidate]) -> Sequence[int]:
        possible = {way.option.type for way in ways}
        return _allow_only(next((kind for kind in types if kind in possible), TABLE))(ways)

    return allowed


TABLE, COLUMN, ROW = ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE, ShardingType.ROW_WISE
NODE, GRID, COPY = ShardingType.TABLE_ROW_WISE, ShardingType.GRID, ShardingType.DATA_PARALLEL
PLANS: dict[str, tuple[ShardingType, ...]] = {
    "table-wise": (TABLE,),
    "column-wise": (COLUMN, TABLE),
    "row-wise": (ROW, TABLE),
    "row-wise in nodes": (NODE, TABLE),
    "grid": (GRID, NODE, TABLE),
    "data-parallel": (COPY, TABLE),
}
"""Plans of one way to shard tables each, placed as well as possible, to compare the best with; what the first type
isn't possible for takes the next."""
MIXTURES = ((TABLE, COPY), (ROW, COPY), (TABLE, COLUMN, COPY), (TABLE, ROW))
"""Further mixtures of ways that the search starts from: each kind of exchange that a plan does without saves its
latency, which changes of single tables don't find."""


def find_assignments(
    candidates: Sequence[Sequence[Candidate]],
    exchange: Exchange,
    progress: Callable[[str], None] = lambda name: None,
) -> dict[str, Assignment]:
    """Find the fastest assignment and the best of each way to shard tables, by names; none where nothing fits."""
    found: dict[str, Assignment] = {}
    for name, types in PLANS.items():
        progress(name)
        start = assign_greedily(candidates, exchange, _allow_first(*types))
        if start is not None and any(start.get_candidate(t).option.type is types[0] for t in range(len(candidates))):
            found[name] = improve(start, _allow_first(*types))
    progress(BEST)
    starts = [*found.values()]
    for types in MIXTURES:
        starts += filter(None, [assign_greedily(candidates, exchange, _allow_only(*types), weighs=True)])
    for weighs in (False, True):
        starts += filter(None, [assign_greedily(candidates, exchange, allow_all, weighs=weighs)])
    improved = [improve(start, allow_all) for start in starts]
    if improved:
        found[BEST] = min(improved, key=Assignment.compute_step_us)
    return found


def plan_sharding(
    tables: Sequence[PlannedTable],
    setting: ShardingSetting,
    progress: Callable[[str], None] = lambda name: None,
) -> ShardingPlans:
    """Find the fastest plan, and the best of each way to shard tables.

    Raises:
        ShardingError: There are no tables, or they don't fit.
    """
    if not tables:
        raise ShardingError(messages.SHARDING_TABLES_MISSING())
    exchange = Exchange(setting)
    candidates = build_candidates(tables, setting)
    _check_memory(tables, candidates, setting)
    found = find_assignments(candidates, exchange, progress)
    if BEST not in found:
        raise ShardingError(_describe_shortage(tables, candidates, setting))
    plans = [evaluate_assignment(name, tables, one) for name, one in found.items()]
    best = min(plans, key=lambda plan: plan.time_us)
    others = sorted((plan for plan in plans if plan.tables != best.tables), key=lambda plan: plan.time_us)
    ranked = [replace(best, name=BEST), *(plan for plan in others if plan.name != BEST)]
    return ShardingPlans(setting, tuple(ranked), tuple(_collect_notes(setting, tables, ranked)))


def _check_memory(
    tables: Sequence[PlannedTable], candidates: Sequence[Sequence[Candidate]], setting: ShardingSetting
) -> None:
    """Raise an error where a table can't lie anywhere."""
    for table, ways in zip(tables, candidates, strict=True):
        least = min(float(way.load[Load.MEMORY]) for way in ways)
        if least > setting.capacity_bytes:
            raise ShardingError(
                messages.TABLE_EXCEEDS_MEMORY(
                    table=table.name, needed_bytes=least, usable_bytes=max(setting.capacity_bytes, 0.0)
                )
            )
        if not any(fits_memory(way.load, setting) for way in ways):
            raise ShardingError(_describe_host_shortage(tables, candidates, setting))


def _describe_shortage(
    tables: Sequence[PlannedTable], candidates: Sequence[Sequence[Candidate]], setting: ShardingSetting
) -> Message:
    needed = sum(table.weight_bytes + table.state_bytes for table in tables)
    if _compute_host_needs(tables, candidates, setting) > setting.host_capacity_bytes * setting.ranks:
        return _describe_host_shortage(tables, candidates, setting)
    return messages.TABLES_EXCEED_MEMORY(
        tables=len(tables),
        needed_bytes=needed,
        ranks=setting.ranks,
        usable_bytes=max(setting.capacity_bytes, 0.0) * setting.ranks,
    )


def _describe_host_shortage(
    tables: Sequence[PlannedTable], candidates: Sequence[Sequence[Candidate]], setting: ShardingSetting
) -> Message:
    """Describe that tables fit neither into the GPUs' memory nor into the hosts', and what each host would need."""
    nodes = setting.cluster.nodes
    needs = _compute_host_needs(tables, candidates, setting)
    return messages.TABLES_EXCEED_HOST_MEMORY(
        tables=len(tables),
        needed_bytes=sum(table.weight_bytes + table.state_bytes for table in tables),
        nodes=nodes,
        host_bytes=setting.cluster.host_memory_bytes,
        told="known" if setting.cluster.host_memory_gib else "assumed",
        host_needs_bytes=needs / nodes / USABLE_HOST_MEMORY_FRACTION,
    )


def _compute_host_needs(
    tables: Sequence[PlannedTable], candidates: Sequence[Sequence[Candidate]], setting: ShardingSetting
) -> float:
    """Compute the bytes that hosts have to hold: tables too large for the GPUs, and what the rest takes beyond them."""
    hosted, rest = 0.0, 0.0
    for table, ways in zip(tables, candidates, strict=True):
        on_gpus = [way for way in ways if not way.option.is_hosted]
        held = table.weight_bytes + table.state_bytes
        if any(fits_memory(way.load, setting) for way in on_gpus):
            rest += held
        else:
            hosted += held
    return hosted + max(rest - setting.capacity_bytes * setting.ranks, 0.0)


def _collect_notes(
    setting: ShardingSetting, tables: Sequence[PlannedTable], plans: Sequence[ShardingPlan]
) -> list[Message]:
    notes = []
    unknown = sum(table.pattern is None for table in tables)
    if unknown:
        notes.append(messages.SHARDING_SKEW_ASSUMED(tables=unknown))
    close = [plan.name for plan in plans[1:] if plan.time_us <= plans[0].time_us * (1 + DOUBTFUL_FRACTION)]
    if close:
        notes.append(messages.SHARDING_PLANS_EQUAL(plans=close, within_pct=100 * DOUBTFUL_FRACTION))
    hosted = sum(one.kernel in HOSTED_LABELS for one in plans[0].tables)
    if hosted:
        by_host = plans[0].ranks["host_bytes"].to_numpy().reshape(setting.cluster.nodes, -1).sum(axis=1)
        host_bytes = setting.cluster.host_memory_bytes
        notes.append(messages.SHARDING_ON_HOST(tables=hosted, taken_bytes=float(by_host.max()), host_bytes=host_bytes))
        if not setting.cluster.host_memory_gib:
            notes.append(messages.SHARDING_HOST_ASSUMED(host_bytes=host_bytes, times=ASSUMED_HOST_MEMORY))
    return notes
