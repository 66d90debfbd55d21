"""Evaluate an assignment: kernels of each rank as they run, exchanges of the rank that sends most, with intervals."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from tracekit.sharding.assignment import Assignment
from tracekit.sharding.candidates import ComputeKernel, ShardingType, TableOption, describe_shard
from tracekit.sharding.loads import Exchange, Load, choose_update, describe_rank, predict_times
from tracekit.sharding.plan import PartTime, ShardedTable, ShardingPlan, TableShard
from tracekit.sharding.tables import PlannedTable
from tracekit.workload.ops.memory_traffic import Columns
from tracekit.workload.ops.table_lookups import TableLookup

KERNEL_COLUMNS = ("time_us", "low_us", "high_us")


def evaluate_assignment(name: str, tables: Sequence[PlannedTable], assignment: Assignment) -> ShardingPlan:
    """Return the plan of an assignment.

    Args:
        name: Name of the plan.
        tables: The tables.
        assignment: Where their shards lie.
    """
    exchange = assignment.exchange
    setting = exchange.setting
    lookups, updates = (_predict_kernels(tables, assignment, updates=kind) for kind in (False, True))
    most = assignment.loads.max(axis=0)
    parts = (
        _find_slowest("lookup", lookups),
        _predict_exchange("sums", assignment, "reduce_scatter"),
        _find_slowest("update", updates),
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
            "sent_bytes": assignment.loads[:, Load.SENT] * (setting.ranks - 1) / setting.ranks,
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
    return ShardingPlan(name, setting, sharded, parts, ranks_table)


def _predict_kernels(tables: Sequence[PlannedTable], assignment: Assignment, *, updates: bool) -> pl.DataFrame:
    """Predict each rank's kernels: one for the tables of each place and optimizer, one after the other."""
    setting = assignment.exchange.setting
    groups: dict[tuple[int, str, ComputeKernel], list[TableLookup]] = {}
    dense_bytes = 0.0
    for number, table in enumerate(tables):
        option = assignment.get_candidate(number).option
        dense_bytes += table.dense_step_bytes if option.kernel is ComputeKernel.DENSE else 0.0
        lookup = describe_shard(table, option, setting)
        kind = choose_update(table, option) if updates else ""
        for rank in assignment.ranks[number].tolist():
            groups.setdefault((rank, kind, option.kernel), []).append(lookup)
    rows: list[Columns] = [describe_rank(lookups, kind or None) for (_, kind, _), lookups in groups.items()]
    owners = [rank for rank, _, _ in groups]
    if updates and dense_bytes:
        rows += [{"bytes": dense_bytes}] * setting.ranks
        owners += range(setting.ranks)
    times = predict_times(rows, updates, setting).with_columns(rank=pl.Series(owners, dtype=pl.Int64))
    of_ranks = times.group_by("rank").agg(pl.col(KERNEL_COLUMNS).sum())
    everywhere = pl.DataFrame({"rank": np.arange(setting.ranks)})
    return everywhere.join(of_ranks, on="rank", how="left", maintain_order="left").fill_null(0.0)


def _find_slowest(name: str, times: pl.DataFrame) -> PartTime:
    row = times.row(int(times["time_us"].arg_max() or 0), named=True)
    return PartTime(name, row["time_us"], row["low_us"], row["high_us"], row["rank"])


def _predict_exchange(name: str, assignment: Assignment, of_rows: str) -> PartTime:
    """Predict the exchange of sums or their gradients: all-to-alls, and of tables split by rows ``of_rows``."""
    exchange, most = assignment.exchange, assignment.loads.max(axis=0)
    slowest = int(assignment.loads[:, Load.SENT].argmax()) if most[Load.SENT] else None
    times = [
        exchange.compute_interval_us("all_to_all", most[Load.SENT]),
        exchange.compute_interval_us(of_rows, float(assignment.shared_bytes[0])),
        exchange.compute_interval_us(of_rows, most[Load.NODE], within_node=True),
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
    if option.is_placed:
        width = table.width // option.columns
        return tuple(TableShard(rank, 0, number * width, table.rows, width) for number, rank in enumerate(ranks))
    block = -(-table.rows // len(ranks))
    starts = [min(number * block, table.rows) for number in range(len(ranks) + 1)]
    return tuple(
        TableShard(rank, starts[number], 0, starts[number + 1] - starts[number], table.width)
        for number, rank in enumerate(ranks)
    )
